"""Render a report and write it to a file."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from bmsvm._inputs import is_precomputed
from bmsvm._version import __version__
from bmsvm.checkpoint import replacing
from bmsvm.plots.inputs import check_model
from bmsvm.report.evaluation import Evaluation, evaluate
from bmsvm.report.sections import build_sections, today
from bmsvm.summary import Summary, shown, summarise_model

LONGEST_TEXT = 1000


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    rows: Any = None,
    title: str | None = None,
) -> None:
    """Write a report of a fitted classifier as one HTML page.

    The page has the scores and the calibration of held-out rows, the classes, the rows that are
    predicted worst, plots of the posterior, and the convergence of the chains. It contains no
    scripts, loads nothing, and names from the data are escaped. The file is replaced as a whole or,
    after an error, left as it was.

    Parameters
    ----------
    model
        A fitted :class:`bmsvm.BMSVMClassifier`.
    path
        The file.
    X, y
        Held-out rows (m, p) and their labels (m,). Default: predictions of the training rows are
        shown, without scores.
    rows
        Names of the held-out rows, shape (m,). Default: the index of X, or 0, 1, ....
    title
        Heading of the page.
    """
    text = report_html(model, X, y, rows=rows, title=title)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def report_html(
    model: Any, X: Any = None, y: Any = None, *, rows: Any = None, title: str | None = None
) -> str:
    """Return the HTML of :func:`write_report`; the same arguments give the same text on one day."""
    check_model(model)
    if (X is None) != (y is None) or (rows is not None and X is None):
        raise ValueError("X and y must be given together, and rows only with them")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        data = _training_data(model)
        found = None
        if X is not None:
            found = evaluate(model, X, y, rows=rows)
        elif data is not None:
            found = evaluate(model, *data, rows=model.kept_rows_, seen=True)
        summary = summarise_model(model)
        sections = build_sections(model, summary, data, found)
    return _template().render(
        title=title or "Bayesian multicategory SVM",
        about=_about(summary, found),
        summary=summary,
        verdict=summary.verdict[0].upper() + summary.verdict[1:],
        advice=" ".join(f"{each}." for each in summary.advice),
        sections=sections,
    )


def _about(summary: Summary, found: Evaluation | None) -> str:
    """Return what the page is of, in one line."""
    held_out = "" if found is None or found.seen else f"; {len(found.codes)} held-out rows"
    return (
        f"Fitted to {summary.facts['Data']}{held_out}. Written on {today()} by bmsvm {__version__}."
    )


def _training_data(model: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Training rows (n, p) in the units of the data, and labels (n,); None of a Gram matrix."""
    if is_precomputed(model.kernel):
        return None
    rows = model.in_original_units(model.posterior_.training_rows)
    return rows, model.classes_[np.asarray(model.posterior_.problem.labels)[: len(rows)]]


def _template() -> Any:
    """Return the template of the page, in which every value is made plain text and escaped."""
    try:
        import jinja2
        import markupsafe
    except ImportError as error:
        raise ImportError("a report needs Jinja2: pip install 'bmsvm[report]'") from error

    def plain(value: Any) -> Any:
        return value if isinstance(value, markupsafe.Markup) else shown(value, LONGEST_TEXT)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bmsvm.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=plain,
    )
    return environment.get_template("page.html")
