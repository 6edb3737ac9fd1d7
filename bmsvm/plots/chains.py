"""Chains over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bmsvm.plots.inputs import draws_of
from bmsvm.plots.style import axes_or_new, class_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["trace"]

SYMBOLS = {"precision": "tau", "noise_variance": "sigma2", "lengthscale": "theta"}


def trace(source: Any, name: str = "precision", *, ax: Axes | None = None) -> Axes:
    """Draw each chain of a scalar over its draws; a positive one as its logarithm.

    Parameters
    ----------
    source
        What holds the draws: a fitted classifier, a ``Run``, an ``MCMC``, ArviZ data or a mapping.
    name
        A scalar site: ``"precision"``, ``"noise_variance"`` or ``"lengthscale"``.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        With one line for each chain.
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
