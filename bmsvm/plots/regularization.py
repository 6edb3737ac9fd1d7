"""The posterior of the regularisation beside one that was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bmsvm._validation import check_positive
from bmsvm.plots.inputs import draws_of
from bmsvm.plots.style import PALE, STRONG, axes_or_new, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["regularization"]


def regularization(
    source: Any, *, gamma: float | None = None, bins: int = 40, ax: Axes | None = None
) -> Axes:
    """Draw the posterior of tau/sigma2, which plays the part of gamma in eq. (2).

    Parameters
    ----------
    source
        What holds the draws: a fitted classifier, a ``Run``, an ``MCMC``, ArviZ data or a mapping.
    gamma
        The gamma of eq. (2) that cross-validation of the (non-Bayesian) MSVM chose, to be drawn
        beside the posterior.
    bins
        Number of bins of the histogram.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With a histogram on a logarithmic axis, its median, and gamma where it is given.
    """
    ratio = (draws_of(source, "precision") / draws_of(source, "noise_variance")).ravel()
    if gamma is not None:
        check_positive("gamma", gamma)
    ax = axes_or_new(ax)
    low, high = ratio.min(), ratio.max()
    edges = np.geomspace(low, high, bins + 1) if high > low else np.array([low / 2, low * 2])
    ax.hist(
        ratio,
        bins=edges.tolist(),
        weights=np.full(ratio.size, 1 / ratio.size),
        color=PALE,
        alpha=0.6,
        label="posterior",
    )
    ax.axvline(np.median(ratio), color=ink(), linewidth=1, label="its median")
    if gamma is not None:
        ax.axvline(
            gamma,
            color=STRONG,
            linestyle="--",
            linewidth=2,
            label="gamma by cross-validation",
        )
    ax.set(xscale="log", xlabel="tau / sigma2", ylabel="share of the draws")
    ax.legend(fontsize="small")
    return ax
