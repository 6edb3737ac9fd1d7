"""Probabilities of three classes as points of a triangle."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from bmsvm.plots.inputs import check_probabilities
from bmsvm.plots.style import Axes, axes_or_new, mark_class, text_colour, text_of

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


def ternary(
    probabilities: ArrayLike, y: Any = None, *, classes: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw the probabilities of three classes in a triangle with a corner for each class.

    A row is the mean of the corners, weighted by its probabilities. Dotted lines separate the
    regions of the most probable class.

    Parameters
    ----------
    probabilities
        Predictive probabilities, shape (m, 3).
    y
        Labels, shape (m,), which determine the markers.
    classes
        Names of the classes, shape (3,), in the order of the columns: ``model.classes_``. Default:
        the labels of y if there are three different ones, else 0, 1, 2.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        A collection of points for each class, or a single one without labels.
    """
    shape = np.shape(probabilities)
    if len(shape) == 2 and shape[1] != 3:
        raise ValueError(f"ternary is for three classes: probabilities must be (m, 3); got {shape}")
    if y is None and classes is None:
        classes = np.arange(3)
    labels = np.repeat(np.asarray(classes)[:1], shape[0] if shape else 0) if y is None else y
    chances, codes, names = check_probabilities(probabilities, labels, classes)
    ax = axes_or_new(ax)
    colour = text_colour()
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color=colour, linewidth=1)
    for side in ([0, 1], [1, 2], [2, 0]):
        line = np.stack([CORNERS.mean(0), CORNERS[side].mean(0)])
        ax.plot(*line.T, ":", color=colour, linewidth=0.8)
    points = chances @ CORNERS
    if y is None:
        mark_class(ax, points, 0, "rows", edge=colour)
    else:
        for number, name in enumerate(names):
            mark_class(ax, points[codes == number], number, name, edge=colour)
        ax.legend(title="true class", loc="upper left", fontsize="small", frameon=False)
    for name, place, align in zip(
        names,
        ((-0.02, -0.03), (1.02, -0.03), (0.5, 0.9)),
        (("left", "top"), ("right", "top"), ("center", "bottom")),
        strict=True,
    ):
        ax.text(*place, text_of(name), ha=align[0], va=align[1], color=colour)
    ax.set(xlim=(-0.05, 1.05), ylim=(-0.12, 1.0), aspect="equal")
    ax.axis("off")
    return ax
