"""Reliability diagram: predicted probabilities against observed shares."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_count, check_probability
from bmsvm.plots.inputs import check_probabilities, share_interval
from bmsvm.plots.style import Axes, axes_or_new, class_style, legend_above, text_colour, text_of


class Reliability(NamedTuple):
    """Bins of predicted probabilities that are not empty.

    edges
        Lower and upper ends, shape (b, 2).
    predicted
        Mean probability, shape (b,).
    observed
        Share of events that happened, shape (b,).
    lower, upper
        Interval of that share, shape (b,).
    rows
        Number of rows, shape (b,).
    """

    edges: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    rows: np.ndarray

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: mean of |predicted - observed| over rows."""
        return float(np.average(abs(self.predicted - self.observed), weights=self.rows))


def reliability_table(
    chances: np.ndarray, happened: np.ndarray, *, bins: int = 10, level: float = 0.9
) -> Reliability:
    """Compare probabilities (m,) with events (m,), in bins of equal width."""
    which = np.minimum((chances * bins).astype(int), bins - 1)
    count = np.bincount(which, minlength=bins)
    full = np.flatnonzero(count)
    total = np.bincount(which, weights=chances, minlength=bins)[full]
    successes = np.bincount(which, weights=happened, minlength=bins)[full]
    count = count[full]
    lower, upper = share_interval(successes, count, level)
    edges = np.stack([full, full + 1], axis=1) / bins
    return Reliability(edges, total / count, successes / count, lower, upper, count)


def reliability(
    probabilities: ArrayLike,
    y: Any,
    *,
    classes: Any = None,
    of: Any = None,
    bins: int = 10,
    level: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the observed share of events against their predicted probability.

    Parameters
    ----------
    probabilities
        Predictive probabilities of held-out rows, shape (m, c).
    y
        Their labels, shape (m,).
    classes
        Names of the classes, shape (c,), in the order of the columns: ``model.classes_``. Default:
        the labels of y if there are c different ones, else 0, ..., c - 1.
    of
        The class whose probability is judged. Default: the most probable class of each row.
    bins
        Number of bins of equal width.
    level
        Probability of the intervals of the shares, under Jeffreys' prior.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        The diagonal, and for each bin that is not empty its interval, point and count.
    """
    check_count("bins", bins)
    check_probability("level", level)
    chances, codes, names = check_probabilities(probabilities, y, classes)
    if of is None:
        judged, happened, what = chances.max(1), chances.argmax(1) == codes, "most probable class"
    elif of in names.tolist():
        place = names.tolist().index(of)
        judged, happened, what = chances[:, place], codes == place, f"class {text_of(of)}"
    else:
        raise ValueError(f"of must be one of the classes {names.tolist()}; got {of!r}")
    table = reliability_table(judged, happened, bins=bins, level=level)
    ax = axes_or_new(ax)
    style, colour = class_style(0), text_colour()
    ax.plot([0, 1], [0, 1], "--", color=colour, linewidth=1, label="calibrated")
    ax.bar(
        table.edges[:, 0],
        table.upper - table.lower,
        bottom=table.lower,
        width=1 / bins,
        align="edge",
        color=style.colour,
        alpha=0.25,
        linewidth=0,
        label=f"{level:.0%} interval",
    )
    points: dict[str, Any] = {"color": style.colour, "label": "observed", "clip_on": False}
    ax.plot(table.predicted, table.observed, style.marker, zorder=3, **points)
    tops = np.maximum(table.upper, table.observed)
    for middle, high, count in zip(table.edges.mean(1), tops, table.rows, strict=True):
        label: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": "x-small"}
        lift: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points"}
        ax.annotate(str(count), (middle, high), color=colour, **label, **lift, **_halo(ax))
    ax.set(xlabel=f"predicted probability, {what}", ylabel="observed share")
    ax.set(xlim=(0, 1), ylim=(0, 1.1))
    legend_above(ax)
    return ax


def _halo(ax: Axes) -> dict[str, Any]:
    """Return settings of text that stays readable on a line."""
    from matplotlib.patheffects import withStroke

    return {"path_effects": [withStroke(linewidth=2.5, foreground=ax.get_facecolor())], "zorder": 4}
