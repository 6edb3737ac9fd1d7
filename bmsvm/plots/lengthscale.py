"""theta: its posterior over the curve of a cross-validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bmsvm.estimators import BMSVMClassifier
from bmsvm.inference.cross_validation import CrossValidation
from bmsvm.plots.inputs import check_model, draws_of
from bmsvm.plots.style import PALE, STRONG, axes_or_new, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["lengthscale"]


def lengthscale(
    source: Any,
    cross_validation: CrossValidation | None = None,
    *,
    criterion: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw theta's posterior, or the value it was set to, over the curve of a cross-validation.

    Parameters
    ----------
    source
        A number; or what holds draws of the lengthscale: a fitted classifier, a ``Run``, an
        ``MCMC``, ArviZ data or a mapping. Of a classifier that did not sample it, its value.
    cross_validation
        What :func:`bmsvm.cross_validate` returned. Default: what a classifier chose theta by.
    criterion
        Which loss to draw; default: the one that was minimised.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With a histogram, or a line at the value. The curve, with its standard errors and its
        minimum marked, is on a second axis, the last of ``ax.figure.axes``.
    """
    curve = cross_validation
    if curve is None and isinstance(source, BMSVMClassifier):
        found = check_model(source).run_.sampler.lengthscale_selection
        curve = found if isinstance(found, CrossValidation) else None
    if curve is not None and (not isinstance(curve, CrossValidation) or curve.grid.ndim != 1):
        raise ValueError(
            "cross_validation must be what cross_validate returned for a grid of single "
            f"lengthscales; got {curve if not isinstance(curve, CrossValidation) else curve.grid!r}"
        )
    theta = _theta(source)
    ax = axes_or_new(ax)
    if theta.size == 1:
        ax.axvline(theta.item(), color=PALE, linewidth=2, label="theta")
        ax.set_yticks([])
    else:
        _histogram(ax, theta)
    ax.set(xscale="log", xlabel="theta")
    top = ax
    handles, labels = ax.get_legend_handles_labels()
    if curve is not None:
        top = _curve(ax, curve, curve.criterion if criterion is None else criterion)
        more, words = top.get_legend_handles_labels()
        handles, labels = handles + more, labels + words
    top.legend(handles, labels, fontsize="small")
    return ax


def _theta(source: Any) -> np.ndarray:
    """Draws of theta, flat, or its value, shape (1,)."""
    if isinstance(source, int | float | np.number):
        theta = np.array([source], float)
    elif (
        isinstance(source, BMSVMClassifier)
        and "lengthscale" not in check_model(source).run_.samples
    ):
        theta = np.atleast_1d(np.asarray(source.lengthscale_, float))
        if theta.size > 1:
            raise ValueError(
                f"source must have one lengthscale for all features; it has {theta.size}"
            )
    else:
        draws = draws_of(source, "lengthscale")
        if draws.ndim != 2:
            raise ValueError(
                f"source must have one lengthscale for all features; its draws are {draws.shape}"
            )
        theta = draws.ravel()
    if not np.all(np.isfinite(theta) & (theta > 0)):
        raise ValueError(f"source must have positive lengthscales; got {theta.min()}")
    return theta


def _histogram(ax: Axes, theta: np.ndarray) -> None:
    """Draw the share of each value, or of each bin where there are many values."""
    values, counts = np.unique(theta, return_counts=True)
    logs = np.log(values)
    if len(values) > 100:
        counts, edges = np.histogram(np.log(theta), bins=40)
    elif len(values) > 1:
        middle = (logs[1:] + logs[:-1]) / 2
        edges = np.concatenate([[2 * logs[0] - middle[0]], middle, [2 * logs[-1] - middle[-1]]])
    else:
        edges = logs[0] + np.array([-0.05, 0.05])
    starts = np.exp(edges)
    ax.bar(
        starts[:-1],
        counts / theta.size,
        width=np.diff(starts),
        align="edge",
        color=PALE,
        alpha=0.6,
        label="posterior of theta",
    )
    ax.set_ylabel("share of the draws")


def _curve(ax: Axes, curve: CrossValidation, criterion: str) -> Axes:
    mean, error = curve.mean(criterion), curve.standard_error(criterion)
    finished = np.flatnonzero(np.isfinite(mean))
    if not len(finished):
        raise ValueError(f"cross_validation must have finished cells of {criterion!r}; it has none")
    right = ax.twinx()
    order = finished[np.argsort(curve.grid[finished])]
    grid, mean = curve.grid[order], mean[order]
    right.errorbar(
        grid,
        mean,
        np.nan_to_num(error[order]),
        marker="s",
        linestyle="--",
        color=STRONG,
        markersize=4,
        capsize=2,
        label=f"{criterion.replace('_', '-')}, cross-validated",
    )
    best = int(np.argmin(mean))
    right.plot(grid[best], mean[best], "*", color=ink(), markersize=11, label="its minimum")
    right.set_ylabel(criterion.replace("_", "-"))
    return right
