"""Accuracy with a reject option."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_probability
from bmsvm.plots.inputs import check_probabilities, share_interval
from bmsvm.plots.style import Axes, axes_or_new, class_style, legend_above, text_colour

MOST_POINTS = 500
"""Largest number of points of a curve."""


def rejection(
    probabilities: ArrayLike,
    y: Any,
    *,
    classes: Any = None,
    doubt: ArrayLike | None = None,
    level: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the accuracy of the accepted rows against the share of rejected rows.

    Parameters
    ----------
    probabilities
        Predictive probabilities of held-out rows, shape (m, c).
    y
        Their labels, shape (m,).
    classes
        Names of the classes, shape (c,), in the order of the columns: ``model.classes_``. Default:
        the labels of y if there are c different ones, else 0, ..., c - 1.
    doubt
        Rows with the largest values are rejected first, shape (m,): for example the epistemic
        uncertainty. Default: one less the largest probability.
    level
        Probability of the intervals of the accuracy, under Jeffreys' prior.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        The accuracy, its intervals, and the accuracy expected from the probabilities.
    """
    check_probability("level", level)
    chances, codes, _ = check_probabilities(probabilities, y, classes)
    best = chances.max(1)
    doubts = 1 - best if doubt is None else np.asarray(doubt, np.float64)
    if doubts.shape != best.shape or not np.all(np.isfinite(doubts)):
        raise ValueError(
            f"doubt must be a finite number for each of {len(best)} rows; got shape {doubts.shape}"
        )
    order = np.argsort(doubts, kind="stable")
    accepted = np.unique(np.linspace(1, len(order), min(len(order), MOST_POINTS)).astype(int))
    right = np.cumsum((chances.argmax(1) == codes)[order])[accepted - 1]
    expected = np.cumsum(best[order])[accepted - 1] / accepted
    lower, upper = share_interval(right, accepted, level)
    rejected = 1 - accepted / len(order)
    ax = axes_or_new(ax)
    colour, label = class_style(0).colour, f"{level:.0%} interval"
    ax.fill_between(rejected, lower, upper, color=colour, alpha=0.25, linewidth=0, label=label)
    ax.plot(rejected, right / accepted, color=colour, label="observed")
    ax.plot(rejected, expected, "--", color=text_colour(), linewidth=1, label="expected")
    ax.set(xlabel="share of rows rejected", ylabel="accuracy of accepted rows", xlim=(0, 1))
    # The intervals of very few rows would determine the range.
    enough = accepted >= min(len(order), max(10, len(order) // 20))
    ax.set_ylim(min(lower[enough].min(), expected[enough].min()) - 0.02, 1.01)
    legend_above(ax)
    return ax
