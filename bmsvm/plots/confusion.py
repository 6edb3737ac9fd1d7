"""Confusion of classes, and how sure the posterior is of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bmsvm._validation import check_probability
from bmsvm.plots.inputs import check_model, codes_of
from bmsvm.plots.style import axes_or_new, text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["confusion", "confusion_draws"]

MOST_CLASSES = 20


def confusion_draws(model: Any, X: Any, y: Any) -> np.ndarray:
    """Confusion matrix of each posterior draw's own classifier, shape (s, c, c).

    A draw classifies a row by its probabilities p(y | f), the truth on the second axis and the
    prediction on the third; with ``decision="paper"`` by its functions, eq. (20).
    """
    model = check_model(model)
    rows, codes = model._rows(X), codes_of(y, model.classes_)
    if len(rows) != len(codes):
        raise ValueError(
            f"X and y must have the same number of rows; got {len(rows)}, {len(codes)}"
        )
    posterior = model._posterior()
    s, c = posterior.n_draws, posterior.n_classes
    counts = np.zeros(s * c * c, int)
    for part in posterior.evaluate(rows):
        paper = model.decision == "paper"
        chosen = (part.functions if paper else part.probabilities).argmax(axis=1)  # (m, s)
        cell = (np.arange(s) * c + codes[part.rows, None]) * c + chosen
        counts += np.bincount(cell.ravel(), minlength=s * c * c)
    return counts.reshape(s, c, c)


def confusion(model: Any, X: Any, y: Any, *, level: float = 0.9, ax: Axes | None = None) -> Axes:
    """Draw the confusion matrix, each cell with its interval over the posterior.

    A cell counts the rows of a class that ``model.predict`` gives another. Each posterior draw is
    a classifier of its own, and has a count of its own: the interval is theirs.

    Parameters
    ----------
    model
        A fitted classifier.
    X, y
        Rows (m, p), best not trained on, and their labels (m,).
    level
        Probability of the central intervals.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With an image of the shares within each true class, and a text in each cell.
    """
    model = check_model(model)
    check_probability("level", level)
    c = len(model.classes_)
    if c > MOST_CLASSES:
        raise ValueError(f"confusion is for at most {MOST_CLASSES} classes; the model has {c}")
    tail = (1 - level) / 2
    draws = confusion_draws(model, X, y)
    # Counts that draws have, not numbers between them.
    low = np.quantile(draws, tail, axis=0, method="lower")
    high = np.quantile(draws, 1 - tail, axis=0, method="higher")
    truth, predicted = codes_of(y, model.classes_), codes_of(model.predict(X), model.classes_)
    counts = np.bincount(truth * c + predicted, minlength=c * c).reshape(c, c)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax = axes_or_new(ax)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    size = "medium" if c <= 4 else "small" if c <= 8 else "xx-small"
    for i in range(c):
        for j in range(c):
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
    ax.set(
        xticks=range(c),
        yticks=range(c),
        xticklabels=names,
        yticklabels=names,
        xlabel=f"predicted, with {level:.0%} of the posterior",
        ylabel="in truth",
    )
    if c > 4 or max(map(len, names)) > 10:
        for label in ax.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    return ax
