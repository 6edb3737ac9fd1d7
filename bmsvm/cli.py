"""The command line: ``bmsvm demo``, ``fit``, ``predict``, ``summary``, ``report``."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from bmsvm._tables import Table, TableError, numbers, place_of, read_table, texts
from bmsvm._version import __version__
from bmsvm.checkpoint import replacing
from bmsvm.estimators import BMSVMClassifier
from bmsvm.estimators.classifier import FEATURES, INFERENCES
from bmsvm.estimators.summary import summarise_model
from bmsvm.inference.presets import LARGE, PRESETS
from bmsvm.inference.uncertainty import Uncertainty
from bmsvm.kernels import NAMED
from bmsvm.models.couplings import COUPLINGS
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.persistence import load, save

__all__ = ["main"]

FAILED, INTERRUPTED = 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    What goes wrong is one line on stderr: code 1, or 2 for a command that cannot be understood.
    """
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return options.run(options)
        except KeyboardInterrupt:
            return _fail("interrupted", INTERRUPTED)
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except OSError as error:
            where = "" if error.filename is None else f"{os.fspath(error.filename)}: "
            return _fail(f"{where}{error.strerror or error}")
        except (ValueError, RuntimeError, MemoryError, ImportError) as error:
            return _fail(str(error) or type(error).__name__)


def _fail(message: str, code: int = FAILED) -> int:
    print(f"bmsvm: error: {_one_line(message)}", file=sys.stderr)
    return code


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"bmsvm: warning: {_one_line(message)}", file=sys.stderr)


# Commands ------------------------------------------------------------------------------------


def _demo(options: argparse.Namespace) -> int:
    from bmsvm.demo import run_demo

    run_demo(options.output)
    return 0


def _fit(options: argparse.Namespace) -> int:
    table = read_table(options.data)
    labels = texts(table, options.target)
    dropped = {options.target, *options.drop}
    for column in options.drop:
        place_of(table, column)
    features = [column for column in table.columns if column not in dropped]
    if not features:
        raise TableError(f"{table.path} has no columns but {', '.join(map(repr, dropped))}")
    rows = numbers(table, features)
    model = BMSVMClassifier(
        likelihood=options.likelihood,
        coupling=options.coupling,
        kernel=options.kernel,
        lengthscale=options.lengthscale,
        features=options.features,
        rank=options.rank,
        preset=options.preset,
        inference=options.inference,
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.draws,
        thinning=options.thinning,
        class_weight=options.class_weight,
        standardize=not options.no_standardize,
        random_state=options.seed,
        progress_bar=not options.quiet,
    )
    model.fit(rows, labels, checkpoint=options.checkpoint)
    model.feature_names_in_ = np.array(features, object)
    model.set_params(progress_bar=False)
    save(model, options.output)
    if not options.quiet:
        print(f"saved {options.output}: {summarise_model(model).verdict}", file=sys.stderr)
    return INTERRUPTED if model.run_.interrupted else 0


def _predict(options: argparse.Namespace) -> int:
    model = load(options.model)
    rows = _rows_for(model, read_table(options.data))
    model.set_params(progress_bar=not options.quiet and len(rows) > 1000)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        found = model.predict_uncertainty(rows)
        if model.decision == "probability":
            labels = model.classes_[np.argmax(found.probabilities, axis=1)]
        else:
            labels = model.predict(rows)
    text = _predictions(model.classes_, labels, found)
    if options.output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        with replacing(options.output) as file:
            file.write(text.encode("utf-8"))
    return 0


def _rows_for(model: BMSVMClassifier, table: Table) -> np.ndarray:
    """Return the model's features in its own order; by place where it knows no names."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        return numbers(table, list(names))
    if len(table.columns) != model.n_features_in_:
        raise TableError(
            f"{table.path} has {len(table.columns)} columns; the model knows its "
            f"{model.n_features_in_} features by their order only, and needs exactly these"
        )
    return numbers(table, table.columns)


def _predictions(classes: np.ndarray, labels: np.ndarray, found: Uncertainty) -> str:
    """Write the label, the probability of each class and the epistemic uncertainty as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["label", *(f"probability_{name}" for name in classes), "epistemic"])
    for label, chances, doubt in zip(labels, found.probabilities, found.epistemic, strict=True):
        writer.writerow([label, *map(float, chances), float(doubt)])
    return text.getvalue()


def _summary(options: argparse.Namespace) -> int:
    summary = summarise_model(load(options.model))
    facts = {
        **summary.model,
        "data": f"{summary.num_rows} rows, {summary.num_features} features",
        "sampling": summary.sampling,
        "verdict": summary.verdict,
    }
    if summary.r_hat is not None and summary.ess is not None:
        facts["largest R-hat"] = f"{summary.r_hat.value:.3f} ({summary.r_hat.name})"
        facts["smallest ESS"] = f"{summary.ess.value:.0f} ({summary.ess.name})"
    if summary.lengthscale_text is not None:
        facts["lengthscale"] = summary.lengthscale_text
    for name, value in facts.items():
        print(f"{name + ':':16}{_one_line(value)}")
    print("classes:")
    for name, count in summary.classes:
        print(f"  {count:>8}  {_one_line(name)}")
    return 0


def _report(options: argparse.Namespace) -> int:
    model = load(options.model)
    if (options.held_out is None) != (options.target is None):
        raise ValueError("--held-out and --target must be given together")
    if options.held_out is None:
        model.report(options.output, title=options.title)
        return 0
    table = read_table(options.held_out)
    labels = _labels_for(model, table, options.target)
    features = table._replace(  # a model that knows no names takes all other columns
        columns=[name for name in table.columns if name != options.target],
        rows=[_without(cells, place_of(table, options.target)) for cells in table.rows],
    )
    rows = [f"line {line}" for line in table.lines]
    held_out = _rows_for(model, features)
    model.report(options.output, held_out, labels, rows=rows, title=options.title)
    return 0


def _without(cells: list[str], place: int) -> list[str]:
    return cells[:place] + cells[place + 1 :]


def _labels_for(model: BMSVMClassifier, table: Table, target: str) -> np.ndarray:
    """Return labels as the model has them, of cells as they are written: shape (m,)."""
    written = {str(name): name for name in model.classes_.tolist()}
    cells = texts(table, target)
    for cell, line in zip(cells.tolist(), table.lines, strict=True):
        if cell not in written:
            raise TableError(
                f"{table.path}, line {line}, column {target!r}: {cell[:40]!r} is no class of the "
                f"model, which has {', '.join(map(repr, list(written)[:12]))}"
            )
    return np.array([written[cell] for cell in cells.tolist()], dtype=model.classes_.dtype)


# Options -------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Says in one line what it does not understand."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_one_line(message)}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bmsvm", description="Bayesian multicategory support vector machines.")
    parser.add_argument("--version", action="version", version=f"bmsvm {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser("demo", help="fit, diagnose, predict and plot on the wine data")
    demo.add_argument("--output", type=Path, default=Path("demo-output"), help="where to write")
    demo.set_defaults(run=_demo)

    fit = commands.add_parser("fit", help="fit a model to a CSV file and save it")
    fit.add_argument("data", help="CSV file with a header: numbers, and a column of labels")
    fit.add_argument("--target", required=True, help="the column of labels, taken as text")
    fit.add_argument("-o", "--output", required=True, help="where to save the model")
    fit.add_argument(
        "--drop", action="append", default=[], metavar="COLUMN", help="leave a column out"
    )
    defaults = BMSVMClassifier().get_params()
    for name, choices in (
        ("likelihood", LIKELIHOODS),
        ("coupling", COUPLINGS),
        ("kernel", NAMED),
        ("features", FEATURES),
        ("preset", ("auto", *PRESETS, LARGE)),
        ("inference", INFERENCES),
    ):
        fit.add_argument(f"--{name}", choices=list(choices), default=defaults[name], help=_default)
    fit.add_argument(
        "--lengthscale",
        type=_lengthscale,
        default=defaults["lengthscale"],
        help="a number in units of the standardised features, or how to find it; " + _default,
    )
    for name, parameter in (
        ("chains", "num_chains"),
        ("warmup", "num_warmup"),
        ("draws", "num_samples"),
        ("thinning", "thinning"),
    ):
        shown = _default if defaults[parameter] is not None else "default: chosen by the model"
        fit.add_argument(f"--{name}", type=int, default=defaults[parameter], help=shown)
    fit.add_argument("--rank", type=int, help="columns of a Gram matrix of low rank")
    fit.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="keep the chains there while they run, and go on from there; needs --seed",
    )
    fit.add_argument("--class-weight", choices=["balanced"], help="weigh the classes")
    fit.add_argument("--no-standardize", action="store_true", help="take the features as they are")
    fit.add_argument("--seed", type=int, default=None, help="for the same draws again")
    fit.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    fit.set_defaults(run=_fit)

    predict = commands.add_parser("predict", help="predict the rows of a CSV file")
    predict.add_argument("model", help="a saved model")
    predict.add_argument("data", help="CSV file with a header; columns are found by name")
    predict.add_argument("-o", "--output", help="where to write, if not to stdout")
    predict.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    predict.set_defaults(run=_predict)

    summary = commands.add_parser("summary", help="describe a saved model")
    summary.add_argument("model", help="a saved model")
    summary.set_defaults(run=_summary)

    report = commands.add_parser("report", help="write a report of a saved model as HTML")
    report.add_argument("model", help="a saved model")
    report.add_argument("-o", "--output", required=True, help="where to write the page")
    report.add_argument(
        "--held-out", metavar="DATA", help="CSV file of rows not trained on, to judge the model by"
    )
    report.add_argument("--target", help="the column of its labels")
    report.add_argument("--title", help="heading of the page")
    report.set_defaults(run=_report)
    return parser


_default = "default: %(default)s"


def _lengthscale(text: str) -> float | str:
    """Read a number, or leave a word as it is for the classifier to judge."""
    try:
        return float(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main())
