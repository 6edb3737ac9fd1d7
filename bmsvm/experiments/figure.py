"""The table as a picture: errors with their standard errors beside the printed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bmsvm.experiments.cells import ROWS
from bmsvm.experiments.printed import printed_error
from bmsvm.experiments.protocol import DATA
from bmsvm.plots.style import COLOURS, MARKERS

__all__ = ["check_matplotlib", "draw_figure"]


THETAS = ("fixed", "sampled", "cv", "evidence")
LABELS = ("theta of the paper", "theta sampled", "theta by folds", "theta by evidence")


def check_matplotlib() -> None:
    """Raise ``ImportError`` with what to do, before hours of work, if Matplotlib is not there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the figure needs Matplotlib: pip install 'bmsvm[plots]', or pass --no-figure"
        ) from error


def draw_figure(cells: list[dict[str, Any]], path: Path) -> None:
    """Draw one panel for each data set and save it; needs Matplotlib."""
    check_matplotlib()
    from matplotlib.figure import Figure

    shown = [name for name in DATA if any(found["data"] == name for found in cells)]
    rows = [name for name in ROWS if any(found["row"] == name for found in cells)]
    height = 1.2 + 0.42 * len(rows)
    figure = Figure(figsize=(2.4 + 2.6 * len(shown), height), layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, shown, strict=True):
        for place, row in enumerate(rows):
            axes.plot(
                [printed_error(row, name)], [place], "|", color="0.35", markersize=16, zorder=1
            )
            here = [c for c in cells if c["data"] == name and c["row"] == row]
            for found in sorted(here, key=lambda c: c["theta"]):
                kind = THETAS.index(found["theta"])
                axes.errorbar(
                    [found["error"]],
                    [place + (0.18 if kind == 1 and len(here) > 1 else 0.0)],
                    xerr=[found["error_standard_error"] or 0.0],
                    fmt=MARKERS[kind],
                    color=COLOURS[kind],
                    markersize=5,
                )
        axes.set(title=name, xlabel="test error")
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(rows)), [ROWS[row].title for row in rows])
    panels[0].invert_yaxis()
    used = {found["theta"] for found in cells}
    for kind, theta in enumerate(THETAS):
        if theta in used:
            panels[-1].plot([], [], MARKERS[kind], color=COLOURS[kind], label=LABELS[kind])
    panels[-1].plot([], [], "|", color="0.35", markersize=12, label="printed")
    figure.legend(loc="outside lower center", ncols=5, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
