"""Confusion matrix with posterior intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from bmsvm._predicting import as_predictive
from bmsvm._validation import check_probability
from bmsvm.plots.inputs import check_model, codes_of
from bmsvm.plots.style import Axes, axes_or_new, text_of

__all__ = ["confusion", "confusion_draws"]

MOST_CLASSES = 20


def confusion_draws(model: Any, X: Any, y: Any) -> np.ndarray:
    """Confusion matrix of the classifier of each posterior draw, shape (s, c, c).

    A draw classifies a row by its probabilities; with ``decision="exclusion"`` by its
    functions, eq. (20). The true class is on the second axis, the predicted one on the third.
    """
    predictive, rows = check_model(model).predictive_, model.standardized_rows(X)
    codes = codes_of(y, model.classes_, len(rows))
    by_functions = as_predictive(model.predictive).decision == "exclusion"
    s, c = predictive.posterior.n_draws, predictive.posterior.n_classes
    counts = np.zeros(s * c * c, int)
    for part in predictive.draws(rows, functions=by_functions):
        chosen = (part.functions if by_functions else part.probabilities).argmax(axis=1)  # (m, s)
        cell = (np.arange(s) * c + codes[part.rows, None]) * c + chosen
        counts += np.bincount(cell.ravel(), minlength=s * c * c)
    return counts.reshape(s, c, c)


def confusion(model: Any, X: Any, y: Any, *, level: float = 0.9, ax: Axes | None = None) -> Axes:
    """Draw the confusion matrix of ``model.predict``, each count with its posterior interval.

    Each posterior draw is a classifier with counts of its own; the intervals are quantiles of
    these counts.

    Parameters
    ----------
    model
        A fitted classifier.
    X, y
        Rows (m, p), preferably held out, and their labels (m,).
    level
        Probability of the central intervals.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        An image of the shares within each true class, and a text in each cell.
    """
    check_probability("level", level)
    c = len(check_model(model).classes_)
    if c > MOST_CLASSES:
        raise ValueError(f"confusion is for at most {MOST_CLASSES} classes; the model has {c}")
    tail = (1 - level) / 2
    draws = confusion_draws(model, X, y)
    low = np.quantile(draws, tail, axis=0, method="lower")
    high = np.quantile(draws, 1 - tail, axis=0, method="higher")
    truth, predicted = (codes_of(each, model.classes_, len(y)) for each in (y, model.predict(X)))
    counts = np.bincount(truth * c + predicted, minlength=c * c).reshape(c, c)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax = axes_or_new(ax)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    size = "medium" if c <= 4 else "small" if c <= 8 else "xx-small"
    for i, j in np.ndindex(c, c):
        ax.text(
            j,
            i,
            f"{counts[i, j]}\n{low[i, j]}–{high[i, j]}",
            ha="center",
            va="center",
            fontsize=size,
            color="white" if shares[i, j] > 0.6 else "black",
        )
    names = [text_of(name) for name in model.classes_]
    ax.set_xticks(range(c), names)
    ax.set_yticks(range(c), names)
    ax.set(xlabel=f"predicted class, with {level:.0%} intervals", ylabel="true class")
    if c > 4 or max(map(len, names)) > 10:
        for label in ax.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    return ax
