"""Table 1 of the paper, computed again: ``python -m reproduction.table1``.

A run that was stopped is resumed by the same command: finished cells are stored.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bmsvm import __version__
from bmsvm.plots.style import COLOURS, MARKERS
from reproduction.cells import run_cells, write_text
from reproduction.fits import (
    MACHINES,
    Fit,
    fit_all_rows,
    fit_machine,
    fit_posterior,
    tune_machine,
)
from reproduction.protocol import DATA, LEAVE_ONE_OUT, PAPER_THETA, Data, Part, load, parts_of

__all__ = ["cells_of", "compute", "main"]

ROWS = {
    "bmsvm": "BMSVM, (13)-(19) as printed",
    "all_rows": "BMSVM, all rows (not stationary)",
    "sum_to_zero": "sum to zero, hinge",
    "normalized": "sum to zero, normalized",
    "default": "BMSVMClassifier()",
    "squares_cv": "BMSVMClassifier, theta by least squares",
    "msvm": "MSVM",
    "ovr": "OVR",
    "altmsvm": "AltMSVM",
}
"""Titles of the rows."""

PAPER_ROWS = ("bmsvm", "msvm", "ovr", "altmsvm")
THETA_OF = dict.fromkeys(("default", "squares_cv", *MACHINES), "cv")
"""How theta is chosen in the rows where it is neither the paper's nor sampled."""

THETAS = ("fixed", "sampled", "cv")
LABELS = ("theta of the paper", "theta sampled", "theta by folds")

PRINTED = {
    "bmsvm": {"wine": 0.0169, "glass": 0.2383, "waveform": 0.1655, "vehicle": 0.0816},
    "msvm": {"wine": 0.0169, "glass": 0.3645, "waveform": 0.1564, "vehicle": 0.0694},
    "ovr": {"wine": 0.0169, "glass": 0.3458, "waveform": 0.1753, "vehicle": 0.0809},
    "altmsvm": {"wine": 0.0169, "glass": 0.3170, "waveform": 0.1696, "vehicle": 0.0925},
}
"""Test errors as printed. The one vehicle column stands beside both versions of the data."""

QUICK_DATA = ("wine", "waveform")
QUICK_LEFT_OUT, QUICK_SPLITS, QUICK_TESTED = 6, 2, 100
"""Rows that are left out in turn, splits, and test rows of a split, in the quick version."""

LONGEST_FIRST = ("glass", "wine", "vehicle", "vehicle3", "waveform")
SMALLEST_PROBABILITY = 1e-12
"""Floor of a probability whose logarithm is taken."""

HEADER = ("row", "data", "theta", "error", "printed", "log-loss", "R-hat", "fits", "CPU time")
NOTES = """\
Errors and log-losses with one standard error: over the rows where one is left out at a time, over
the splits otherwise. R-hat: the median over the fits, and the largest, of each fit's worst
quantity. CPU time: of one core, compiling included. The row "all rows" has no stationary
distribution; its numbers depend on when it is stopped. The printed number beside rows of this
package is BMSVM's, and the one vehicle column stands beside both versions of the data."""


def cells_of(
    rows: Sequence[str], data: Sequence[str], theta: str, quick: bool
) -> dict[str, dict[str, Any]]:
    """Arguments of :func:`compute` for each cell, by name, those that take longest first."""
    cells = {}
    for row in sorted(rows, key=list(ROWS).index):
        for name in sorted(data, key=LONGEST_FIRST.index):
            fixed = theta == "paper" and name in PAPER_THETA
            how = THETA_OF.get(row, "fixed" if fixed else "sampled")
            cells[f"{row}-{name}-{how}"] = {"row": row, "data": name, "theta": how, "quick": quick}
    return cells


def compute(row: str, data: str, theta: str, quick: bool) -> dict[str, Any]:
    """Fit all parts of a cell; return its numbers."""
    began, cpu = time.perf_counter(), time.process_time()
    whole = load(data)
    parts = parts_of(data, whole)
    if quick:
        parts = _fewer(data, parts)
    fits = _fits(row, data, theta, quick, whole, parts)
    return {
        **scored(fits, [whole.labels[part.test] for part in parts]),
        "fits": [fit.numbers for fit in fits],
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "version": __version__,
    }


def _fewer(name: str, parts: list[Part]) -> list[Part]:
    """Parts of the quick version."""
    if name in LEAVE_ONE_OUT:
        return parts[:: -(-len(parts) // QUICK_LEFT_OUT)]
    return [Part(part.train, part.test[:QUICK_TESTED]) for part in parts[:QUICK_SPLITS]]


def _fits(row: str, name: str, theta: str, quick: bool, data: Data, parts: list[Part]) -> list[Fit]:
    """Fit each part: one after the other, since parts of one size share a compiled program."""
    samples = [(data.rows[p.train], data.labels[p.train], data.rows[p.test]) for p in parts]
    if row in MACHINES:
        # Leave-one-out machines are tuned once: the tuning has seen the left-out row, the fit not.
        once = tune_machine(row, data.rows, data.labels) if name in LEAVE_ONE_OUT else None
        return [
            fit_machine(row, *sample, once or tune_machine(row, *sample[:2])) for sample in samples
        ]
    value: Any = {"fixed": PAPER_THETA.get(name), "sampled": "sample"}.get(theta)
    if row == "all_rows":
        return [fit_all_rows(*sample, theta=value, quick=quick) for sample in samples]
    return [fit_posterior(row, *sample, theta=value, quick=quick) for sample in samples]


def scored(fits: Sequence[Fit], truth: Sequence[np.ndarray]) -> dict[str, Any]:
    """Error and log-loss of the fits with their standard errors, and R-hat.

    Standard errors are over rows where each fit tests one, and over fits otherwise.
    """
    errors = [float(np.mean(fit.classes != true)) for fit, true in zip(fits, truth, strict=True)]
    found: dict[str, Any] = {"n_fits": len(fits), "errors": errors, **_mean("error", errors)}
    chances = [fit.probabilities for fit in fits if fit.probabilities is not None]
    if chances:
        floor = [np.maximum(p, SMALLEST_PROBABILITY) for p in chances]
        pairs = zip(floor, truth, strict=True)
        losses = [float(-np.log(p[np.arange(len(true)), true]).mean()) for p, true in pairs]
        r_hats = [fit.numbers["r_hat"] for fit in fits]
        found |= _mean("log_loss", losses)
        found |= {"r_hat_median": float(np.median(r_hats)), "r_hat_largest": max(r_hats)}
    return found


def _mean(name: str, values: Sequence[float]) -> dict[str, float | None]:
    spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {name: float(np.mean(values)), f"{name}_standard_error": spread}


def printed_error(row: str, data: str) -> float:
    """Return the printed error; rows of this package stand beside BMSVM's."""
    return PRINTED[row if row in PRINTED else "bmsvm"][data.replace("vehicle3", "vehicle")]


def _number(found: dict[str, Any], name: str) -> str:
    if name not in found:
        return ""
    spread = found[f"{name}_standard_error"]
    return f"{found[name]:.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def _line(found: dict[str, Any]) -> tuple[str, ...]:
    row, data, theta = (found["arguments"][name] for name in ("row", "data", "theta"))
    r_hat = ""
    if "r_hat_median" in found:
        r_hat = f"{found['r_hat_median']:.2f}, {found['r_hat_largest']:.2f}"
    printed = f"{printed_error(row, data):.4f}" + ("" if row in PRINTED else " (BMSVM)")
    seconds = found["cpu_seconds"]
    return (
        ROWS[row],
        data,
        theta,
        _number(found, "error"),
        printed,
        _number(found, "log_loss"),
        r_hat,
        str(found["n_fits"]),
        f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min",
    )


def markdown(cells: Sequence[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    order = sorted(cells, key=lambda cell: DATA.index(cell["arguments"]["data"]))
    lines = [HEADER, ("---",) * len(HEADER), *map(_line, order)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{NOTES}\n"


def draw_figure(cells: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw errors with their standard errors beside the printed ones, one panel per data set."""
    by = {
        (cell["arguments"]["row"], cell["arguments"]["data"], cell["arguments"]["theta"]): cell
        for cell in cells
    }
    rows = [row for row in ROWS if any(row == key[0] for key in by)]
    shown = [name for name in DATA if any(name == key[1] for key in by)]
    size = (2.4 + 2.6 * len(shown), 1.2 + 0.42 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, shown, strict=True):
        for place, row in enumerate(rows):
            printed = printed_error(row, name)
            axes.plot([printed], [place], "|", color="0.35", markersize=16, zorder=1)
        for (row, data, theta), cell in by.items():
            if data == name:
                kind = THETAS.index(theta)
                axes.errorbar(
                    [cell["error"]],
                    [rows.index(row)],
                    xerr=[cell["error_standard_error"] or 0.0],
                    fmt=MARKERS[kind],
                    color=COLOURS[kind],
                    markersize=5,
                )
        axes.set(title=name, xlabel="test error")
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(rows)), [ROWS[row] for row in rows])
    panels[0].invert_yaxis()
    for kind in sorted({THETAS.index(key[2]) for key in by}):
        panels[-1].plot([], [], MARKERS[kind], color=COLOURS[kind], label=LABELS[kind])
    panels[-1].plot([], [], "|", color="0.35", markersize=12, label="printed")
    figure.legend(loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.table1", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short version; its numbers mean nothing"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes; default: %(default)s")
    parser.add_argument("--out", type=Path, help="default: table1-output, or table1-output-quick")
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW", default=PAPER_ROWS)
    parser.add_argument("--data", nargs="+", choices=DATA, metavar="DATA")
    parser.add_argument(
        "--theta",
        choices=("paper", "sampled"),
        default="paper",
        help="'paper' samples theta only where the paper did; default: %(default)s",
    )
    given = parser.parse_args(arguments)
    out = given.out or Path("table1-output-quick" if given.quick else "table1-output")
    data = given.data or (QUICK_DATA if given.quick else DATA)
    wanted = cells_of(given.rows, data, given.theta, given.quick)
    cells = list(run_cells(compute, wanted, out, jobs=given.jobs).values())
    write_text(out / "table1.json", json.dumps(cells, indent=1) + "\n")
    write_text(out / "table1.md", markdown(cells))
    draw_figure(cells, out / "table1.png")
    print(markdown(cells), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
