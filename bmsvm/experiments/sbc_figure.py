"""Ranks of a calibration as a picture: distribution functions less the uniform one, with bands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bmsvm.experiments.ecdf import counts_below, simultaneous_band
from bmsvm.experiments.figure import check_matplotlib
from bmsvm.plots.style import class_style

if TYPE_CHECKING:
    from bmsvm.experiments.sbc import Configuration

__all__ = ["draw_figure"]

BAND = 0.05
"""Probability that a curve of uniform ranks leaves the band."""


def draw_figure(
    ranks: Mapping[Configuration, Mapping[str, np.ndarray]], n_values: int, path: Path
) -> None:
    """Draw a panel for each configuration and save all; needs Matplotlib.

    Parameters
    ----------
    ranks
        Ranks (N,) among 0, ..., n_values - 1 of each number of each configuration.
    n_values
        Number of values that a rank can have.
    path
        Of the picture.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    columns = min(4, len(ranks))
    rows = -(-len(ranks) // columns)
    figure = Figure(figsize=(2.7 * columns, 0.7 + 1.75 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    share = np.arange(1, n_values) / n_values
    names = list(dict.fromkeys(name for each in ranks.values() for name in each))
    handles: dict[str, Any] = {}
    for axes, (configuration, found) in zip(panels, ranks.items(), strict=False):
        size = len(next(iter(found.values())))
        low, high = (bound / size - share for bound in simultaneous_band(size, n_values, BAND))
        axes.fill_between(share, low, high, color="0.88", linewidth=0)
        for name, values in found.items():
            style = class_style(names.index(name))
            curve = counts_below(values, n_values) / size - share
            (handles[name],) = axes.plot(
                share, curve, color=style.colour, linestyle=style.line, linewidth=0.9
            )
        first, second, third, fourth, preset = configuration
        sampler = "" if preset == "default" else f", {preset}"
        axes.set_title(f"{first}, {second}\ntheta {third}, {fourth}{sampler}", fontsize=7)
        axes.tick_params(labelsize=6)
    for axes in panels[len(ranks) :]:
        axes.set_axis_off()
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=len(names), fontsize=7
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
