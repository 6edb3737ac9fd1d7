"""What abstaining buys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_probability
from bmsvm.plots.inputs import check_probabilities
from bmsvm.plots.intervals import share_interval
from bmsvm.plots.style import axes_or_new, class_style, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["rejection"]

MOST_POINTS = 500
"""Points of the curves; with more rows not every one has its own."""


def rejection(
    probabilities: ArrayLike,
    y: Any,
    *,
    classes: Any = None,
    doubt: ArrayLike | None = None,
    level: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the accuracy of the rows that are left when the most doubtful are rejected.

    Parameters
    ----------
    probabilities
        Predictive probabilities of rows not trained on, shape (m, c).
    y
        Their labels, shape (m,).
    classes
        Names of the classes, shape (c,).
    doubt
        What rows are rejected by, the largest first, shape (m,): the epistemic uncertainty, say.
        Default: one less the largest probability.
    level
        Probability of the band, intervals of the accuracy under Jeffreys' prior.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With the accuracy, its band, and the accuracy that the probabilities promise.
    """
    check_probability("level", level)
    chances, found, _ = check_probabilities(probabilities, y, classes)
    codes = cast(np.ndarray, found)
    best = chances.max(1)
    doubts = 1 - best if doubt is None else np.asarray(doubt, np.float64)
    if doubts.shape != best.shape or not np.all(np.isfinite(doubts)):
        raise ValueError(
            f"doubt must be a finite number for each of {len(best)} rows; got shape {doubts.shape}"
        )
    order = np.argsort(doubts, kind="stable")
    left = np.unique(np.linspace(1, len(order), min(len(order), MOST_POINTS)).astype(int))
    right = np.cumsum((chances.argmax(1) == codes)[order])[left - 1]
    lower, upper = share_interval(right, left, level)
    rejected = 1 - left / len(order)
    ax = axes_or_new(ax)
    style = class_style(0)
    ax.fill_between(
        rejected,
        lower,
        upper,
        color=style.colour,
        alpha=0.25,
        linewidth=0,
        label=f"{level:.0%} interval",
    )
    ax.plot(rejected, right / left, color=style.colour, label="accuracy")
    promised = np.cumsum(best[order])[left - 1] / left
    ax.plot(rejected, promised, "--", color=ink(), linewidth=1, label="as predicted")
    ax.set(xlabel="share of rows rejected", ylabel="accuracy of the rest", xlim=(0, 1))
    enough = left >= min(len(order), max(10, len(order) // 20))  # the last few rows say nothing
    ax.set_ylim(min(lower[enough].min(), promised[enough].min()) - 0.02, 1.01)
    ax.legend(loc="lower right", fontsize="small")
    return ax
