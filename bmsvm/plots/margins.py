"""Scores of rows, and where the hinge begins to count them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bmsvm.estimators import BMSVMClassifier
from bmsvm.models.likelihoods import margin_offset
from bmsvm.plots.inputs import check_model, draws_of
from bmsvm.plots.style import MOST_VECTORS, axes_or_new, class_style, ink, text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["margins"]

MOST_CLASSES = 30


def margins(source: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the posterior mean scores of each class, and the hinge at -1/(c - 1).

    A row's score for another class than its own costs something beyond the hinge, eq. (6): hollow
    points should lie left of the line. Scores of a row for its own class are filled.

    Parameters
    ----------
    source
        ArviZ data with the scores z (row, class) and the labels, from
        :func:`bmsvm.arviz.to_arviz` of chains. Or a fitted classifier.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With two collections of points for each class, of its own rows and of the others.
    """
    scores, codes, names = _scores(source)
    c = len(names)
    if c > MOST_CLASSES:
        raise ValueError(f"margins is for at most {MOST_CLASSES} classes; source has {c}")
    ax = axes_or_new(ax)
    offset = margin_offset(c)
    spread = 0.3 * (((np.arange(len(codes)) * 0.6180339887) % 1) - 0.5)  # so that few overlap
    for number in range(c):
        style, own = class_style(number), codes == number
        for rows, lift, filled in ((own, 0.2, True), (~own, -0.2, False)):
            ax.scatter(
                scores[rows, number],
                number + lift + spread[rows],
                s=14,
                marker=style.marker,
                facecolors=style.colour if filled else "none",
                edgecolors=style.colour,
                linewidths=0.7,
                alpha=0.8,
                rasterized=len(codes) > MOST_VECTORS,
            )
    line = ax.axvline(-offset, color=ink(), linestyle="--", linewidth=1)
    handles = [
        ax.scatter([], [], marker="o", color=ink(), s=14),
        ax.scatter([], [], marker="o", facecolors="none", edgecolors=ink(), s=14),
        line,
    ]
    words = ["rows of the class", "rows of others", f"hinge, {-offset:.3g}"]
    ax.legend(
        handles,
        words,
        fontsize="small",
        frameon=False,
        ncols=3,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
    )
    ax.set(
        xlabel="posterior mean of z",
        ylim=(-0.6, c - 0.4),
        yticks=range(c),
        yticklabels=[text_of(name) for name in names],
    )
    return ax


def _scores(source: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean scores (n, c), class indices (n,) and names (c,)."""
    if isinstance(source, BMSVMClassifier):
        model = check_model(source)
        n = len(model.training_rows_)  # spare rows may follow
        draws = model.run_.samples.get("scores")
        if draws is None:  # integrated out: the functions are what is left of them
            means = model.class_functions(model._in_units(model.training_rows_))
        else:
            means = draws.mean(axis=(0, 1))[:n]
        return means, np.asarray(model.problem_.labels)[:n], model.classes_
    scores = draws_of(source, "scores")
    if not hasattr(source, "groups") and not hasattr(source, "children"):
        raise TypeError(
            "source must be a fitted classifier or ArviZ data of chains (bmsvm.arviz."
            f"to_arviz), which has the labels; got {type(source).__name__}"
        )
    codes = np.asarray(source["observed_data"]["y"])
    names = np.asarray(source["posterior"]["class"])
    return scores.mean(axis=(0, 1)), codes, names
