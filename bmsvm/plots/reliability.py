"""Whether probabilities come true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_count, check_probability
from bmsvm.plots.inputs import check_probabilities, codes_of
from bmsvm.plots.intervals import share_interval
from bmsvm.plots.style import axes_or_new, class_style, ink, text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Reliability", "reliability", "reliability_table"]


class Reliability(NamedTuple):
    """Bins of what was predicted, those that are empty left out.

    edges
        Lower and upper ends, shape (b, 2).
    predicted
        Mean probability, shape (b,).
    observed
        Share that came true, shape (b,).
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
        """Expected calibration error: the mean gap between predicted and observed over rows."""
        return float(np.average(abs(self.predicted - self.observed), weights=self.rows))


def reliability_table(
    chances: np.ndarray, happened: np.ndarray, *, bins: int = 10, level: float = 0.9
) -> Reliability:
    """Compare chances (m,) with what happened (m,), in bins of equal width."""
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
    """Draw how often predictions of each confidence come true: the reliability diagram.

    Parameters
    ----------
    probabilities
        Predictive probabilities of rows not trained on, shape (m, c).
    y
        Their labels, shape (m,).
    classes
        Names of the classes, shape (c,), in the order of the columns.
    of
        The class whose probability is judged. Default: of each row the likeliest.
    bins
        Number of bins of equal width.
    level
        Probability of the bands, intervals of each bin's share under Jeffreys' prior.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With the diagonal, a band for each bin that is not empty, its point and its count.
    """
    check_count("bins", bins)
    check_probability("level", level)
    chances, found, names = check_probabilities(probabilities, y, classes)
    codes = cast(np.ndarray, found)
    if of is None:
        judged, happened, what = chances.max(1), chances.argmax(1) == codes, "the likeliest class"
    else:
        try:
            (place,) = codes_of([of], names)
        except ValueError:
            raise ValueError(
                f"of must be one of the classes {names.tolist()}; got {of!r}"
            ) from None
        judged, happened, what = chances[:, place], codes == place, text_of(of)
    table = reliability_table(judged, happened, bins=bins, level=level)
    ax = axes_or_new(ax)
    style = class_style(0)
    ax.plot([0, 1], [0, 1], "--", color=ink(), linewidth=1, label="as predicted")
    ax.bar(
        table.edges[:, 0],
        table.upper - table.lower,
        bottom=table.lower,
        width=table.edges[:, 1] - table.edges[:, 0],
        align="edge",
        color=style.colour,
        alpha=0.25,
        linewidth=0,
        label=f"{level:.0%} interval",
    )
    ax.plot(table.predicted, table.observed, style.marker, color=style.colour, label="observed")
    for (start, end), high, count in zip(table.edges, table.upper, table.rows, strict=True):
        ax.annotate(
            str(count),
            ((start + end) / 2, min(high, 1.0)),
            ha="center",
            va="bottom",
            fontsize="x-small",
            color=ink(),
        )
    ax.set(
        xlabel=f"predicted probability of {what}",
        ylabel="share that it came true",
        xlim=(0, 1),
        ylim=(0, 1.08),
    )
    ax.legend(loc="lower right", fontsize="small")
    return ax
