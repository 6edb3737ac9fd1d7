"""Confusion matrix with posterior intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from bmsvm._predicting import as_predictive
from bmsvm._validation import check_probability
from bmsvm.plots.inputs import check_model, codes_of
from bmsvm.plots.style import Axes, axes_or_new, text_of

MOST_CLASSES = 40
"""Largest number of classes."""

MOST_INTERVALS = 12
"""Number of classes above which cells have no room for intervals."""


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
    these counts. With more than five classes, cells of which count and interval are zero are empty;
    with more than twelve there are no intervals.

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
    chosen = model.predict(X)
    truth, predicted = (codes_of(each, model.classes_, len(chosen)) for each in (y, chosen))
    counts = np.bincount(truth * c + predicted, minlength=c * c).reshape(c, c)
    with_intervals = c <= MOST_INTERVALS
    low, high = _interval(confusion_draws(model, X, y), level) if with_intervals else (counts,) * 2
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax = axes_or_new(ax)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    size = "medium" if c <= 4 else "small" if c <= 8 else "x-small"
    for i, j in np.ndindex(c, c):
        if c > 5 and not counts[i, j] and not high[i, j]:
            continue
        interval = f"\n{low[i, j]}–{high[i, j]}" if with_intervals else ""
        ax.text(
            j,
            i,
            f"{counts[i, j]}{interval}",
            ha="center",
            va="center",
            fontsize=size,
            color="white" if shares[i, j] > 0.6 else "black",
        )
    names = [text_of(name) for name in model.classes_]
    small = "small" if c > MOST_INTERVALS else None
    ax.set_xticks(range(c), names, fontsize=small)
    ax.set_yticks(range(c), names, fontsize=small)
    said = f", with {level:.0%} intervals" if with_intervals else ""
    ax.set(xlabel=f"predicted class{said}", ylabel="true class")
    longest = max(map(len, names))
    if longest > 10 or (longest > 2 and c > 4):
        for label in ax.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    return ax


def _interval(draws: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Central interval of counts (s, c, c) over the draws, whose ends are counts: shapes (c, c)."""
    tail = (1 - level) / 2
    low = np.quantile(draws, tail, axis=0, method="lower")
    return low, np.quantile(draws, 1 - tail, axis=0, method="higher")
