"""Probabilities of three classes as points of a triangle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from bmsvm.plots.inputs import check_probabilities
from bmsvm.plots.style import axes_or_new, ink, mark_class, text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ternary"]

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


def ternary(
    probabilities: ArrayLike, y: Any = None, *, classes: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw the probabilities of three classes in a triangle, a corner for each class.

    A row lies at the mean of the corners, weighed by its probabilities. Lines from the centre part
    the triangle by the likeliest class.

    Parameters
    ----------
    probabilities
        Predictive probabilities, shape (m, 3).
    y
        Labels, shape (m,), by which rows are marked.
    classes
        Names of the classes, shape (3,).
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With a collection of points for each class, or a single one without labels.
    """
    shape = np.shape(probabilities)
    if len(shape) == 2 and shape[1] != 3:
        raise ValueError(f"ternary is for three classes: probabilities must be (m, 3); got {shape}")
    chances, codes, names = check_probabilities(probabilities, y, classes)
    ax = axes_or_new(ax)
    line = ink()
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color=line, linewidth=1)
    for left, right in ((0, 1), (1, 2), (2, 0)):
        middle = CORNERS[[left, right]].mean(0)
        ax.plot(*np.stack([CORNERS.mean(0), middle]).T, ":", color=line, linewidth=0.8)
    points = chances @ CORNERS
    if codes is None:
        mark_class(ax, points, 0, "rows", edge=line)
    else:
        for number, name in enumerate(names):
            mark_class(ax, points[codes == number], number, name, edge=line)
        ax.legend(title="in truth", loc="upper left", fontsize="small", frameon=False)
    for name, corner, place in zip(
        names, CORNERS, ((-0.02, -0.03), (1.02, -0.03), (0.5, 0.9)), strict=True
    ):
        side = "center" if corner[0] == 0.5 else "left" if corner[0] == 0 else "right"
        ax.text(*place, text_of(name), ha=side, va="bottom" if corner[1] else "top", color=line)
    ax.set(xlim=(-0.05, 1.05), ylim=(-0.12, 1.0), aspect="equal")
    ax.axis("off")
    return ax
