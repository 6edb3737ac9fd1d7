"""Draws of single parameters: traces, tau/sigma2, and the lengthscale."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from bmsvm._validation import check_positive
from bmsvm.plots.inputs import check_model, draws_of, is_arviz
from bmsvm.plots.style import PALE, STRONG, Axes, axes_or_new, class_style, text_colour
from bmsvm.posterior import Posterior
from bmsvm.selection import GridSelection
from bmsvm.selection.modes import ModeSelection

__all__ = ["lengthscale", "regularization", "trace"]

SYMBOLS = {"precision": "tau", "noise_variance": "sigma2", "lengthscale": "theta"}

MOST_VALUES = 100
"""Number of different values of theta above which they are drawn in bins."""


def trace(source: Any, name: str = "precision", *, ax: Axes | None = None) -> Axes:
    """Draw each chain of a scalar; of a positive scalar, its logarithm.

    Parameters
    ----------
    source
        A fitted classifier, a ``Posterior``, a ``Run``, an ``MCMC``, ArviZ data or a mapping.
    name
        A scalar site: ``"precision"``, ``"noise_variance"`` or ``"lengthscale"``.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        One line for each chain.
    """
    draws = draws_of(source, name)
    if draws.ndim != 2:
        raise ValueError(f"name must be a scalar site; {name!r} has shape {draws.shape[2:]}")
    ax = axes_or_new(ax)
    positive = bool(np.all(draws > 0))
    for number, chain in enumerate(np.log(draws) if positive else draws):
        style = class_style(number)
        ax.plot(chain, style.line, color=style.colour, linewidth=0.8, label=f"chain {number + 1}")
    symbol = SYMBOLS.get(name, name)
    ax.set(xlabel="draw", ylabel=f"log {symbol}" if positive else symbol)
    return ax


def regularization(
    source: Any, *, gamma: float | None = None, bins: int = 40, ax: Axes | None = None
) -> Axes:
    """Draw the posterior of tau/sigma2, which corresponds to gamma in eq. (2).

    Parameters
    ----------
    source
        A fitted classifier, a ``Posterior``, a ``Run``, an ``MCMC``, ArviZ data or a mapping.
    gamma
        gamma of eq. (2) as cross-validation of the (non-Bayesian) MSVM chose it, for comparison.
    bins
        Number of bins of the histogram.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        A histogram on a logarithmic axis, its median, and gamma if it is given.
    """
    ratio = (draws_of(source, "precision") / draws_of(source, "noise_variance")).ravel()
    if gamma is not None:
        check_positive("gamma", gamma)
    ax = axes_or_new(ax)
    low, high = ratio.min(), ratio.max()
    edges = np.geomspace(low, high, bins + 1) if high > low else np.array([low / 2, low * 2])
    shares = np.full(ratio.size, 1 / ratio.size)
    ax.hist(ratio, edges.tolist(), weights=shares, color=PALE, alpha=0.6, label="posterior")
    ax.axvline(np.median(ratio), color=text_colour(), linewidth=1, label="median")
    if gamma is not None:
        label = "gamma by cross-validation"
        ax.axvline(gamma, color=STRONG, linestyle="--", linewidth=2, label=label)
    ax.set(xscale="log", xlabel="tau / sigma2", ylabel="share of draws")
    ax.legend(fontsize="small")
    return ax


def lengthscale(
    source: Any,
    selection: GridSelection | None = None,
    *,
    criterion: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the posterior of theta, or its fixed value, with the losses of a cross-validation.

    Parameters
    ----------
    source
        A number; or a fitted classifier, a ``Posterior``, a ``Run``, an ``MCMC``, ArviZ data or a
        mapping with draws of the lengthscale. Of a classifier, a ``Posterior`` or ArviZ data of a
        classifier that did not sample it, its value. If a classifier's was chosen by
        :class:`bmsvm.ModeCV`, the default, with the losses by which it was, each at its best tau.
    selection
        Result of :class:`bmsvm.GridCV`. Default: ``selection_`` of a classifier, if it is one.
    criterion
        Which loss to draw; default: the one that was minimised.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        A histogram, or a line at the value. The losses, with their standard errors and their
        minimum marked, are on a second axis, the last of ``ax.figure.axes``.
    """
    modes = None
    if selection is None and isinstance(source, BaseEstimator):
        found = check_model(source).selection_
        selection = found if isinstance(found, GridSelection) else None
        modes = found if isinstance(found, ModeSelection) else None
    known = selection is None or isinstance(selection, GridSelection)
    if not known or (selection is not None and selection.grid.ndim != 1):
        raise ValueError(
            "selection must be the result of GridCV for a grid of single lengthscales; "
            f"got {selection!r}"
        )
    theta = _theta(source)
    ax = axes_or_new(ax)
    if theta.size == 1:
        ax.axvline(theta.item(), color=PALE, linewidth=2, label="theta")
        ax.set_yticks([])
    else:
        _histogram(ax, theta)
    ax.set(xscale="log", xlabel="theta")
    top, (handles, labels) = ax, ax.get_legend_handles_labels()
    if selection is not None:
        top = _losses(ax, selection, selection.criterion if criterion is None else criterion)
    elif modes is not None:
        order = np.argsort(modes.grid)
        top = _curve(ax, modes.grid[order], modes.log_loss.min(axis=1)[order], "log-loss")
    if top is not ax:
        more_handles, more_labels = top.get_legend_handles_labels()
        handles, labels = handles + more_handles, labels + more_labels
    top.legend(handles, labels, fontsize="small")
    return ax


def _theta(source: Any) -> np.ndarray:
    """Draws of theta, flat, or its value, shape (1,)."""
    model = check_model(source) if isinstance(source, BaseEstimator) else None
    if model is not None and "lengthscale" not in model.posterior_.samples:
        if model.lengthscale_ is None:
            raise ValueError("source must be a model with a lengthscale; its kernel has none")
        source = np.asarray(model.lengthscale_, np.float64)
    source = _fixed(source)
    if isinstance(source, int | float | np.number | np.ndarray):
        theta = np.asarray(source, np.float64)
        single = theta.size == 1
    else:
        theta = draws_of(source, "lengthscale")
        single = theta.ndim == 2
    if not single:
        raise ValueError(
            f"source must have one lengthscale for all features; got shape {theta.shape}"
        )
    theta = theta.ravel()
    if not np.all(np.isfinite(theta) & (theta > 0)):
        raise ValueError(f"source must have positive lengthscales; got {theta.min()}")
    return theta


def _fixed(source: Any) -> Any:
    """Return the fixed theta of a posterior or of ArviZ data that have no draws of it."""
    if isinstance(source, Posterior):
        sampled = "lengthscale" in source.samples or source.lengthscale is None
        return source if sampled else np.asarray(source.lengthscale, np.float64)
    if is_arviz(source) and "lengthscale" not in source["posterior"]:
        groups = source.children if hasattr(source, "children") else source.groups()
        if "constant_data" in groups and "lengthscale" in source["constant_data"]:
            return np.asarray(source["constant_data"]["lengthscale"], np.float64)
    return source


def _histogram(ax: Axes, theta: np.ndarray) -> None:
    """Draw the share of each value, or of each bin if there are many values."""
    values, counts = np.unique(theta, return_counts=True)
    logs = np.log(values)
    if len(values) > MOST_VALUES:
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
    ax.set_ylabel("share of draws")


def _losses(ax: Axes, selection: GridSelection, criterion: str) -> Axes:
    """Draw the mean loss of each lengthscale on a second axis."""
    mean, error = selection.mean(criterion), selection.standard_error(criterion)
    finished = np.flatnonzero(np.isfinite(mean))
    if not len(finished):
        raise ValueError(f"selection must have finished cells of {criterion!r}; it has none")
    order = finished[np.argsort(selection.grid[finished])]
    name = criterion.replace("_", "-")
    return _curve(ax, selection.grid[order], mean[order], name, np.nan_to_num(error[order]))


def _curve(
    ax: Axes, grid: np.ndarray, mean: np.ndarray, name: str, error: np.ndarray | None = None
) -> Axes:
    """Draw losses of lengthscales (g,), with their errors, on a second axis."""
    right = ax.twinx()
    right.errorbar(
        grid,
        mean,
        error,
        fmt="s--",
        color=STRONG,
        markersize=4,
        capsize=2,
        label=f"cross-validated {name}",
    )
    best = int(np.argmin(mean))
    right.plot(grid[best], mean[best], "*", color=text_colour(), markersize=11, label="minimum")
    right.set_ylabel(name)
    return right
