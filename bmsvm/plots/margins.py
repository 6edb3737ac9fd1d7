"""Scores of the training rows, and the hinge."""

from __future__ import annotations

from typing import Any

import numpy as np

from bmsvm._predicting import Predicting
from bmsvm.models.likelihoods import margin_offset
from bmsvm.plots.inputs import check_model, draws_of, is_arviz
from bmsvm.plots.style import (
    MOST_VECTORS,
    Axes,
    axes_or_new,
    class_style,
    legend_above,
    text_colour,
    text_of,
)

MOST_CLASSES = 30


def margins(source: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the posterior mean scores of the training rows, and the hinge at -1/(c - 1).

    A score counts right of the hinge only: under ``hinge`` a score for another class than the row's
    own is penalised there, eq. (6); under ``normalized`` it makes that class more probable, eq.
    (21). Under ``squared``, whose loss is the squared distance from the code of the class, the
    codes 1 and -1/(c - 1) are drawn instead. Scores for the own class are filled points, those for
    other classes hollow.

    Parameters
    ----------
    source
        A fitted classifier; or ArviZ data with the labels, and the scores z or the functions f
        (row, class), whose posterior means are then drawn. Data without an attribute
        ``likelihood`` of their posterior have a hinge.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        Two collections of points for each class: its own rows, and the others.
    """
    scores, codes, names, what = _scores(source)
    c = len(names)
    if c > MOST_CLASSES:
        raise ValueError(f"margins is for at most {MOST_CLASSES} classes; source has {c}")
    ax = axes_or_new(ax)
    hinge, colour = -margin_offset(c), text_colour()
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
    line = ax.axvline(hinge, color=colour, linestyle="--", linewidth=1)
    label = f"hinge, {hinge:.3g}"
    if _likelihood(source) == "squared":
        ax.axvline(1, color=colour, linestyle="--", linewidth=1)
        label = f"codes, {hinge:.3g} and 1"
    handles = {
        "own class": ax.scatter([], [], color=colour, s=14),
        "other classes": ax.scatter([], [], facecolors="none", edgecolors=colour, s=14),
        label: line,
    }
    legend_above(ax, list(handles.values()), list(handles))
    ax.set_yticks(range(c), [text_of(name) for name in names])
    ax.tick_params("y", labelsize="small" if c > 10 else None)
    ax.set(xlabel=f"posterior mean of {what}", ylim=(-0.6, c - 0.4))
    return ax


def _likelihood(source: Any) -> str | None:
    """Name of the likelihood, as far as the source says."""
    if isinstance(source, Predicting):
        return source.posterior_.problem.likelihood
    return source["posterior"].attrs.get("likelihood")


def _scores(source: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Mean scores (n, c), class indices (n,), names (c,), and what was averaged."""
    if isinstance(source, Predicting):
        posterior = check_model(source).posterior_
        n = len(posterior.training_rows)  # the problem may have spare rows beyond these
        if "scores" in posterior.samples:
            means = posterior.flat("scores").mean(axis=0)[:n]
        else:  # of the table with low rank: their mean is that of the functions
            means = posterior.functions(posterior.training_rows)
        return means, np.asarray(posterior.problem.labels)[:n], source.classes_, "z"
    if not is_arviz(source):
        raise TypeError(
            "source must be a fitted classifier or ArviZ data, which has the labels; got "
            f"{type(source).__name__}"
        )
    known = [name for name in ("scores", "functions") if name in source["posterior"]]
    if not known:
        raise ValueError(
            "source must have the scores or the functions: pass the classifier itself, or "
            "to_arviz(model, functions=True)"
        )
    means = draws_of(source, known[0]).mean(axis=(0, 1))
    codes, names = source["observed_data"]["y"], source["posterior"]["class"]
    return means, np.asarray(codes), np.asarray(names), "z" if known[0] == "scores" else "f"
