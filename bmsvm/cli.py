"""Command line: ``bmsvm fit``, ``predict``, ``summary``, ``report`` and ``demo``."""

from __future__ import annotations

import argparse
import csv
import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bmsvm._tables import Table, TableError, read_table
from bmsvm._version import __version__
from bmsvm.checkpoint import replacing
from bmsvm.classifier import BMSVMClassifier
from bmsvm.convergence import sampler_checks, warn_of_checks
from bmsvm.demo import run_demo
from bmsvm.inference.samplers import NAMED as SAMPLERS
from bmsvm.kernels import Fourier, Nystrom
from bmsvm.kernels.functions import NAMED as KERNELS
from bmsvm.models.couplings import COUPLINGS
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.persistence import load, save
from bmsvm.report import write_report
from bmsvm.selection import NAMED as METHODS
from bmsvm.summary import summarise_model

__all__ = ["main"]

FAILED, INTERRUPTED = 1, 130

DEFAULTS = BMSVMClassifier().get_params()

OPTIONS = {
    **{name: f"--{name}" for name in (*DEFAULTS, "checkpoint", "rank")},
    "num_chains": "--chains",
    "num_warmup": "--warmup",
    "num_samples": "--draws",
    "random_state": "--seed",
    "class_weight": "--class-weight",
    "y": "--target",
}
"""Names that errors of the package start with, and the options of this program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    An error is one line on stderr with exit code 1; 2 if the arguments are wrong.
    """
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        try:
            return options.run(options)
        except KeyboardInterrupt:
            return _fail("interrupted", INTERRUPTED)
        except BrokenPipeError:  # the reader of the output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except OSError as error:
            where = "" if error.filename is None else f"{os.fspath(error.filename)}: "
            return _fail(f"{where}{error.strerror or error}")
        except (ValueError, RuntimeError, MemoryError, ImportError) as error:
            return _fail(_in_options(str(error)) or type(error).__name__)


def _in_options(message: str) -> str:
    """Replace the name of a parameter at the start of an error by that of the option."""
    return re.sub(r"^\w+\b", lambda found: OPTIONS.get(found[0], found[0]), message)


def _fail(message: str, code: int = FAILED) -> int:
    print(f"bmsvm: error: {_one_line(message)}", file=sys.stderr)
    return code


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    print(f"bmsvm: warning: {_one_line(message)}", file=sys.stderr)


# Commands ------------------------------------------------------------------------------------


def _demo(options: argparse.Namespace) -> int:
    run_demo(options.output)
    return 0


def _fit(options: argparse.Namespace) -> int:
    table = read_table(options.data)
    labels = np.array(table.cells(options.target))
    for column in options.drop:
        table.cells(column)
    features = [name for name in table.columns if name not in {options.target, *options.drop}]
    if not features:
        raise TableError(f"{table.path} has no features beside --target and --drop")
    model = BMSVMClassifier(
        likelihood=options.likelihood,
        coupling=options.coupling,
        kernel=options.kernel,
        lengthscale=options.lengthscale,
        approximation=_approximation(options),
        sampler=options.sampler,
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.draws,
        class_weight=options.class_weight,
        standardize=None if options.standardize == "none" else options.standardize,
        random_state=options.seed,
    )
    with warnings.catch_warnings():  # these two are given below, in terms of the options
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="interrupted: ")
        model.fit(table.numbers(features), labels, checkpoint=options.checkpoint)
    model.feature_names_in_ = np.array(features, object)
    save(model, options.output)
    summary = summarise_model(model)
    if not summary.converged:
        warnings.warn(f"{summary.verdict}; increase --warmup or --draws", stacklevel=1)
    warn_of_checks(sampler_checks(model.posterior_.samples), ConvergenceWarning, stacklevel=2)
    if not options.quiet:
        print(f"saved {options.output}: {summary.facts['Chains']}", file=sys.stderr)
    if not model.run_.interrupted:
        return 0
    made = model.run_.num_samples
    return _fail(f"interrupted: saved {made} of {options.draws} draws", INTERRUPTED)


def _approximation(options: argparse.Namespace) -> Any:
    if options.rank is None:
        return options.approximation
    kinds = {"nystrom": Nystrom, "fourier": Fourier}
    if options.approximation not in kinds:
        raise ValueError("--rank needs --approximation nystrom or fourier")
    return kinds[options.approximation](rank=options.rank)


def _predict(options: argparse.Namespace) -> int:
    model = load(options.model)
    table = read_table(options.data)
    rows = _rows_for(model, table, list(table.columns))
    found, text = model.predict_uncertainty(rows), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["label", *(f"probability_{name}" for name in model.classes_), "epistemic"])
    for label, chances, epistemic in zip(
        model.predict(rows), found.probabilities.tolist(), found.epistemic.tolist(), strict=True
    ):
        writer.writerow([label, *chances, epistemic])
    if options.output is None:
        sys.stdout.write(text.getvalue())
        sys.stdout.flush()
    else:
        with replacing(options.output) as file:
            file.write(text.getvalue().encode("utf-8"))
    return 0


def _rows_for(model: BMSVMClassifier, table: Table, columns: list[str]) -> np.ndarray:
    """Return the features by name, or all these columns if the model has no names: (m, p)."""
    names = getattr(model, "feature_names_in_", columns)
    if len(names) != model.n_features_in_:
        raise TableError(
            f"{table.path} must have {model.n_features_in_} columns of features, in the order of "
            f"the training data, because the model has no feature names; it has {len(names)}"
        )
    return table.numbers(list(names))


def _summary(options: argparse.Namespace) -> int:
    summary = summarise_model(load(options.model))
    for name, value in {**summary.facts, "Convergence": summary.verdict}.items():
        print(f"{name + ':':16}{_one_line(value)}")
    print("Training rows:")
    for name, count in summary.classes:
        print(f"  {count:>8}  {_one_line(name)}")
    return 0


def _report(options: argparse.Namespace) -> int:
    if (options.held_out is None) != (options.target is None):
        raise ValueError("--held-out and --target must be given together")
    model = load(options.model)
    if options.held_out is None:
        write_report(model, options.output, title=options.title)
        return 0
    table = read_table(options.held_out)
    rows = _rows_for(model, table, [name for name in table.columns if name != options.target])
    labels = _labels_for(model, table, options.target)
    lines = [f"line {line}" for line in table.lines]
    write_report(model, options.output, rows, labels, rows=lines, title=options.title)
    return 0


def _labels_for(model: BMSVMClassifier, table: Table, target: str) -> np.ndarray:
    """Return the classes of the model that the cells of a column stand for, shape (m,)."""
    written = {str(name): name for name in model.classes_.tolist()}
    cells = table.cells(target)
    for row, cell in enumerate(cells):
        if cell not in written:
            known = ", ".join(map(repr, list(written)[:12]))
            raise table.error(target, row, f"{cell[:40]!r} is not one of the classes {known}")
    return np.array([written[cell] for cell in cells], dtype=model.classes_.dtype)


# Options -------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_one_line(message)}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bmsvm", description="Bayesian multicategory support vector machines.")
    parser.add_argument("--version", action="version", version=f"bmsvm {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    fit = commands.add_parser("fit", help="fit a model to a CSV file and save it")
    fit.set_defaults(run=_fit)
    fit.add_argument("data", help="CSV file with a header: numbers, and a column of labels")
    add = fit.add_argument
    add("--target", required=True, help="column of the labels, read as text")
    add("-o", "--output", required=True, help="model file to write")
    add("--drop", action="append", default=[], metavar="COLUMN", help="column to ignore")
    for name, choices in (
        ("likelihood", LIKELIHOODS),
        ("coupling", COUPLINGS),
        ("kernel", [name for name in KERNELS if name != "precomputed"]),
        ("approximation", ("auto", "exact", "nystrom", "fourier")),
        ("sampler", ("auto", *SAMPLERS)),
        ("standardize", ("robust", "standard", "none")),
    ):
        add(f"--{name}", choices=list(choices), default=DEFAULTS[name], help=DEFAULT)
    methods = ", ".join(("auto", "sample", *METHODS))
    add(
        "--lengthscale",
        type=_lengthscale,
        default=DEFAULTS["lengthscale"],
        help=f"a number in units of the standardised features, or one of {methods}; {DEFAULT}",
    )
    add("--rank", type=_count, help="number of basis functions of nystrom or fourier")
    add("--chains", type=_count, default=DEFAULTS["num_chains"], help=DEFAULT)
    add("--draws", type=_count, default=DEFAULTS["num_samples"], help=f"of each chain; {DEFAULT}")
    add("--warmup", type=_count, help="sweeps of warm-up; default: 300, or 150 with mode-cv")
    add("--checkpoint", metavar="DIR", help="keep the chains there and resume; needs --seed")
    add("--class-weight", choices=["balanced"], help="weights of the classes")
    add("--seed", type=int, help="seed of the random numbers")
    add("-q", "--quiet", action="store_true", help="print only warnings and errors")

    predict = commands.add_parser("predict", help="predict the rows of a CSV file")
    predict.set_defaults(run=_predict)
    predict.add_argument("model", help="model file")
    predict.add_argument("data", help="CSV file with a header; features are found by name")
    predict.add_argument("-o", "--output", help="CSV file to write; default: stdout")

    summary = commands.add_parser("summary", help="describe a saved model")
    summary.set_defaults(run=_summary)
    summary.add_argument("model", help="model file")

    report = commands.add_parser("report", help="write an HTML report of a saved model")
    report.set_defaults(run=_report)
    report.add_argument("model", help="model file")
    report.add_argument("-o", "--output", required=True, help="HTML file to write")
    report.add_argument("--held-out", metavar="DATA", help="CSV file of rows not trained on")
    report.add_argument("--target", help="column of their labels")
    report.add_argument("--title", help="heading of the page")

    demo = commands.add_parser("demo", help="fit, diagnose, predict and plot the wine data")
    demo.set_defaults(run=_demo)
    demo.add_argument("--output", type=Path, default=Path("demo-output"), help="directory to write")
    return parser


DEFAULT = "default: %(default)s"


def _count(text: str) -> int:
    """Read a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer; got {text!r}")
    return int(text)


def _lengthscale(text: str) -> float | str:
    """Read a positive number, or the name of a method."""
    if text in ("auto", "sample", *METHODS):
        return text
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not (np.isfinite(value) and value > 0):
        names = ", ".join(("auto", "sample", *METHODS))
        raise argparse.ArgumentTypeError(f"must be a positive number or one of {names}")
    return value


if __name__ == "__main__":
    sys.exit(main())
