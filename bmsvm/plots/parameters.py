"""Draws of single parameters: traces, tau/sigma2, and the lengthscale."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from bmsvm._validation import check_positive
from bmsvm.plots.inputs import check_model, draws_of, held_precision_of, is_arviz
from bmsvm.plots.style import (
    PALE,
    STRONG,
    Axes,
    axes_or_new,
    class_style,
    legend_above,
    log_ticks,
    text_colour,
)
from bmsvm.posterior import Posterior
from bmsvm.selection.modes import ModeSelection

SYMBOLS = {"precision": "tau", "noise_variance": "sigma2", "lengthscale": "theta"}

MOST_CHAINS = 8
"""Number of chains above which a legend does not name them."""

MOST_VALUES = 100
"""Number of different values of theta above which they are drawn in bins."""


def trace(source: Any, name: str = "precision", *, ax: Axes | None = None) -> Axes:
    """Draw each chain of a scalar; of a positive scalar, its logarithm.

    The axis says so if the prior holds tau near a value, as after ``lengthscale="mode-cv"``.

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
        how = {"linestyle": style.line, "color": style.colour, "linewidth": 0.8}
        ax.plot(chain, label=f"chain {number + 1}", **how)
    if len(draws) <= MOST_CHAINS:
        legend_above(ax)
    symbol = SYMBOLS.get(name, name)
    held = held_precision_of(source) if name == "precision" else None
    told = "" if held is None else f"\n(held near {held:.3g})"
    ax.set(xlabel="draw", ylabel=(f"log {symbol}" if positive else symbol) + told)
    return ax


def regularization(
    source: Any, *, gamma: float | None = None, bins: int = 40, ax: Axes | None = None
) -> Axes:
    """Draw the posterior of tau/sigma2, which corresponds to gamma in eq. (2).

    The legend says so if the prior holds tau near a value, as after ``lengthscale="mode-cv"``: the
    histogram then shows little but sigma2.

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
    shares, held = np.full(ratio.size, 1 / ratio.size), held_precision_of(source)
    label = "posterior" if held is None else f"posterior\n(tau held near {held:.3g})"
    ax.hist(ratio, edges.tolist(), weights=shares, color=PALE, alpha=0.6, label=label)
    median = np.median(ratio)
    ax.axvline(median, color=text_colour(), linewidth=1, label=f"median, {median:.3g}")
    if gamma is not None:
        label = "gamma by cross-validation"
        ax.axvline(gamma, color=STRONG, linestyle="--", linewidth=2, label=label)
    ax.set(xscale="log", xlabel="tau / sigma2", ylabel="share of draws")
    log_ticks(ax)
    legend_above(ax)
    return ax


def lengthscale(source: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the posterior of theta, or its fixed value.

    Parameters
    ----------
    source
        A number; or a fitted classifier, a ``Posterior``, a ``Run``, an ``MCMC``, ArviZ data or a
        mapping with draws of the lengthscale. Of a classifier, a ``Posterior`` or ArviZ data of a
        classifier that did not sample it, its value. If a classifier's was chosen by
        :class:`bmsvm.ModeCV`, the default, with the losses by which it was, each at its best tau.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        A histogram, or a line at the value. The losses, with their minimum marked, are on a second
        axis, the last of ``ax.figure.axes``.
    """
    chosen = check_model(source).selection_ if isinstance(source, BaseEstimator) else None
    modes = chosen if isinstance(chosen, ModeSelection) else None
    theta = _theta(source)
    ax = axes_or_new(ax)
    if theta.size == 1:
        ax.axvline(theta.item(), color=PALE, linewidth=2, label="theta")
        ax.set_yticks([])
    else:
        _histogram(ax, theta)
    ax.set(xscale="log", xlabel="theta")
    log_ticks(ax)
    top, (handles, labels) = ax, ax.get_legend_handles_labels()
    if modes is not None:
        order = np.argsort(modes.grid)
        top = _losses(ax, modes.grid[order], modes.log_loss.min(axis=1)[order])
        log_ticks(ax)
        more_handles, more_labels = top.get_legend_handles_labels()
        handles, labels = handles + more_handles, labels + more_labels
    legend_above(top, handles, labels)
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


def _losses(ax: Axes, grid: np.ndarray, mean: np.ndarray) -> Axes:
    """Draw the log-loss of each lengthscale (g,) on a second axis."""
    right = ax.twinx()
    right.plot(grid, mean, "s--", color=STRONG, markersize=4, label="cross-validated log-loss")
    best = int(np.argmin(mean))
    right.plot(grid[best], mean[best], "*", color=text_colour(), markersize=11, label="minimum")
    right.set_ylabel("log-loss")
    return right
