"""Command line: ``bmsvm fit``, ``predict``, ``summary``, ``report`` and ``demo``.

What the options are is here; what a command does is in its module of :mod:`bmsvm.commands`. That
module is imported when the command runs: help and wrong arguments are answered at once.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from bmsvm._version import __version__

FAILED, INTERRUPTED = 1, 130

CHOICES = {
    "likelihood": ("auto", "normalized", "hinge", "squared"),
    "coupling": ("sum_to_zero", "independent"),
    "kernel": ("auto", "gaussian", "rbf", "laplacian", "matern32", "matern52", "linear", "poly"),
    "approximation": ("auto", "exact", "nystrom", "fourier"),
    "sampler": ("auto", "hmc", "gibbs", "paper", "table"),
    "standardize": ("auto", "robust", "standard", "none"),
}
"""Values of options, the default first. Those of the package, as tests/test_cli.py checks."""

MEANING = {
    "likelihood": "auto: normalized, or squared (no chains) for many rows or classes",
    "coupling": "of the scores of the classes",
    "kernel": "covariance function",
    "approximation": "of the Gram matrix; auto: nystrom beyond 2000 rows, else exact",
    "sampler": "auto: table, without chains, for squared; else hmc",
    "standardize": "scaling of the features; auto: robust, and by relevance if theta is chosen",
}
"""What these options are."""

METHODS = ("auto", "mode-cv", "squares-cv", "sample")
"""Ways to set the lengthscale, the default first."""

OPTIONS = {
    **{name: f"--{name}" for name in (*CHOICES, "lengthscale", "checkpoint", "rank")},
    "y": "--target",
}
"""Names that errors of the package start with, and the options of this program."""

RENAMED = {
    "num_chains": "--chains",
    "num_warmup": "--warmup",
    "num_samples": "--draws",
    "max_time": "--max-time",
    "random_state": "--seed",
    "class_weight": "--class-weight",
}
"""Names of the package that are no words, and the options of this program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    An error is one line on stderr with exit code 1; 2 if the arguments are wrong.
    """
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        for category in (DeprecationWarning, FutureWarning):  # of libraries, for their developers
            warnings.filterwarnings("ignore", category=category)
        try:
            import_module(f"bmsvm.commands.{options.command}").run(options)
        except KeyboardInterrupt as stopped:
            return _fail(": ".join(["interrupted", *map(str, stopped.args)]), INTERRUPTED)
        except BrokenPipeError:  # the reader of the output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except OSError as error:
            where = "" if error.filename is None else f"{os.fspath(error.filename)}: "
            return _fail(f"{where}{error.strerror or error}")
        except (ValueError, RuntimeError, MemoryError, ImportError) as error:
            return _fail(_in_options(str(error)) or type(error).__name__)
    return 0


def _in_options(message: str) -> str:
    """Name the options of this program instead of the parameters of the package."""
    message = re.sub(r"^\w+\b", lambda found: OPTIONS.get(found[0], found[0]), message)
    return re.sub(rf"\b({'|'.join(RENAMED)})\b", lambda found: RENAMED[found[0]], message)


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
    print(f"bmsvm: warning: {_in_options(_one_line(message))}", file=sys.stderr)


# Options -------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line, and whose help keeps the lines of its examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_one_line(message)}; see {self.prog} --help\n")


EXAMPLES = """\
examples:
  bmsvm demo                                    see what it does, on the wine data
  bmsvm fit train.csv --target grower -o model.bmsvm
  bmsvm summary model.bmsvm
  bmsvm predict model.bmsvm new.csv -o predictions.csv
  bmsvm report model.bmsvm --held-out test.csv --target grower -o report.html

bmsvm COMMAND --help lists the options of a command.
"""

FIT_EXAMPLES = """\
examples:
  bmsvm fit train.csv --target grower -o model.bmsvm
  bmsvm fit train.csv --target grower --drop id --drop date -o model.bmsvm --seed 1
  bmsvm fit train.csv --target grower -o model.bmsvm --lengthscale 2.5 --draws 500
  bmsvm fit train.csv --target grower -o model.bmsvm --seed 1 --checkpoint chains

The CSV file is in UTF-8 and has a header. Every column but --target and --drop is a feature and
holds numbers, none of them missing. Features are standardised (--standardize).
"""

PREDICT_EXAMPLES = """\
examples:
  bmsvm predict model.bmsvm new.csv
  bmsvm predict model.bmsvm new.csv -o predictions.csv --id sample --level 0.95

Columns that are written: the row, counted from 1, or its --id; label, the predicted class; for each
class its probability and the lower and upper end of the credible interval of that; and epistemic,
the part of the uncertainty, in nats, that more data would reduce.
"""

SUMMARY_EXAMPLES = """\
examples:
  bmsvm summary model.bmsvm
  bmsvm summary model.bmsvm > model.txt

What is printed: the model and its data; the draws; the lengthscale theta and the precision tau, and
where they come from; R-hat and the effective sample size, if there were chains; the features, if
they have names; and the number of training rows of each class.
"""

DEMO_EXAMPLES = """\
examples:
  bmsvm demo
  bmsvm demo -o wine

It takes up to half a minute, writes demo.png and report.html, and needs bmsvm[report].
"""

REPORT_EXAMPLES = """\
examples:
  bmsvm report model.bmsvm --held-out test.csv --target grower -o report.html
  bmsvm report model.bmsvm -o report.html

Without --held-out the report has no scores: predictions of training rows are too optimistic.
"""


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bmsvm",
        description="Bayesian multicategory support vector machines.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"bmsvm {__version__}")
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", dest="command", title="commands"
    )
    _add_fit(_command(commands, "fit", "fit a model to a CSV file and save it", FIT_EXAMPLES))
    _add_predict(_command(commands, "predict", "predict the rows of a CSV file", PREDICT_EXAMPLES))
    _add_model(_command(commands, "summary", "describe a saved model", SUMMARY_EXAMPLES))
    _add_report(
        _command(commands, "report", "write an HTML report of a saved model", REPORT_EXAMPLES)
    )
    what = "fit, diagnose, predict and plot the wine data"
    demo = _command(commands, "demo", what, DEMO_EXAMPLES)
    demo.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("demo-output"),
        help=f"directory for a picture and a report; {DEFAULT}",
    )
    return parser


def _command(commands: Any, name: str, what: str, examples: str) -> argparse.ArgumentParser:
    described = f"{what[0].upper()}{what[1:]}."
    return commands.add_parser(name, help=what, description=described, epilog=examples)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="model file that bmsvm fit has written")


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="CSV file: numbers, and a column of labels")
    add = parser.add_argument
    add("--target", metavar="COLUMN", required=True, help="column of the labels")
    add("-o", "--output", metavar="MODEL", required=True, help="model file to write")
    add(
        "--drop",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column to ignore; can be given several times",
    )
    add("-q", "--quiet", action="store_true", help="print only warnings and errors")

    add = parser.add_argument_group("chains").add_argument
    add("--seed", metavar="N", type=_natural, help="seed of the random numbers; default: random")
    add("--chains", metavar="N", type=_count, default=4, help=DEFAULT)
    add("--draws", metavar="N", type=_count, default=200, help=f"at most, of each chain; {DEFAULT}")
    add("--warmup", metavar="N", type=_count, help="sweeps; default: 150, or 75 with mode-cv")
    add("--max-time", metavar="SECONDS", type=_count, help="end the chains after this time")
    add("--checkpoint", metavar="DIR", help="keep the chains there and resume; needs --seed")

    add = parser.add_argument_group("model").add_argument
    add(
        "--lengthscale",
        type=_lengthscale,
        default=METHODS[0],
        metavar="THETA",
        help=f"a number in units of the standardised features, or one of {', '.join(METHODS)}; "
        f"{DEFAULT}",
    )
    for name, choices in CHOICES.items():
        add(f"--{name}", choices=choices, default=choices[0], help=f"{MEANING[name]}; {DEFAULT}")
    add("--rank", metavar="N", type=_count, help="basis functions of nystrom or fourier")
    add("--class-weight", choices=["balanced"], help="give every class the same total weight")


def _add_predict(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    add = parser.add_argument
    add("data", metavar="DATA", help="CSV file with a header; features are found by name")
    add("-o", "--output", metavar="FILE", help="CSV file to write; default: stdout")
    add("--id", metavar="COLUMN", help="column that identifies the rows; default: their number")
    add(
        "--level",
        metavar="P",
        type=_probability,
        default=0.9,
        help=f"probability of the credible intervals; {DEFAULT}",
    )


def _add_report(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    add = parser.add_argument
    add("-o", "--output", metavar="FILE", required=True, help="HTML file to write")
    add("--held-out", metavar="DATA", help="CSV file of rows that the model was not fitted to")
    add("--target", metavar="COLUMN", help="column of their labels")
    add("--id", metavar="COLUMN", help="column that identifies them; default: their lines")
    add("--title", help="heading of the page")


DEFAULT = "default: %(default)s"


def _count(text: str) -> int:
    """Read a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer; got {text!r}")
    return int(text)


def _natural(text: str) -> int:
    """Read a seed, as NumPy takes it."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to 2**32 - 1; got {text!r}")
    return int(text)


def _number(text: str) -> float:
    """Read a finite number; NaN if the text is none."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _probability(text: str) -> float:
    """Read a number between 0 and 1."""
    if not 0 < _number(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1; got {text!r}")
    return _number(text)


def _lengthscale(text: str) -> float | str:
    """Read a positive number, or the name of a method."""
    if text in METHODS:
        return text
    if not _number(text) > 0:
        raise argparse.ArgumentTypeError(
            f"must be a positive number or one of {', '.join(METHODS)}; got {text!r}"
        )
    return _number(text)


if __name__ == "__main__":
    sys.exit(main())
