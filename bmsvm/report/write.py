"""A report: sections put together, and written whole or not at all."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bmsvm.checkpoint import replacing
from bmsvm.estimators import BMSVMClassifier
from bmsvm.estimators.summary import summarise_model
from bmsvm.report import sections
from bmsvm.report.evaluation import evaluate
from bmsvm.report.page import page

__all__ = ["report_html", "write_report"]


def write_report(
    model: BMSVMClassifier,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    rows: Any = None,
    title: str | None = None,
) -> None:
    """Write a report of a fitted model; see :meth:`bmsvm.BMSVMClassifier.report`."""
    text = report_html(model, X, y, rows=rows, title=title)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def report_html(
    model: BMSVMClassifier,
    X: Any = None,
    y: Any = None,
    *,
    rows: Any = None,
    title: str | None = None,
) -> str:
    """Return the report as HTML; the same model and rows give the same text."""
    check_is_fitted(model, "run_")
    if (X is None) != (y is None):
        given, missing = ("X", "y") if y is None else ("y", "X")
        raise ValueError(f"X and y must be given together: {given} is, {missing} is not")
    if rows is not None and X is None:
        raise ValueError("rows are labels of held-out rows: give X and y too")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        training = _training(model)
        found = None
        if X is not None:
            found = evaluate(model, X, y, rows=rows)
        elif training is not None:
            found = evaluate(model, *training, rows=model.kept_rows_, seen=True)
        summary = summarise_model(model)
        return page(
            title or "Report of a Bayesian multicategory SVM",
            [
                sections.head(title or "Bayesian multicategory SVM", summary, model),
                sections.settings(model, summary),
                sections.convergence(model, summary),
                sections.learned(model, training),
                sections.classes(summary, model, found),
                sections.quality(model, found),
                sections.worst(model, found),
            ],
        )


def _training(model: BMSVMClassifier) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the training rows (n, p) and their labels (n,), or None if they are a Gram matrix."""
    if isinstance(model.kernel_, str) and model.kernel_ == "precomputed":
        return None
    rows = model._in_units(model.training_rows_)
    return rows, model.classes_[np.asarray(model.problem_.labels)[: len(rows)]]
