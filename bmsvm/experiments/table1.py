"""Table 1 of the paper, run again: ``bmsvm table1`` or ``python -m bmsvm.experiments.table1``.

Stopped and started again it goes on: finished cells are on disk and never run twice.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

import bmsvm
from bmsvm._validation import check_count
from bmsvm.experiments import render
from bmsvm.experiments.cells import ROWS, THETAS, Cell, cells_of, schedule_of
from bmsvm.experiments.defaults import run_default
from bmsvm.experiments.posteriors import run_posterior
from bmsvm.experiments.protocol import DATA, Part, load, parts_of
from bmsvm.experiments.rivals import run_machine
from bmsvm.experiments.store import read_cell, write_cell, write_text
from bmsvm.experiments.workers import run_pieces

__all__ = ["Options", "add_arguments", "main", "run_cell", "run_table"]

QUICK_DATA = ("wine",)
QUICK_LEFT_OUT, QUICK_SPLITS, QUICK_TESTED = 12, 2, 100
"""Rows that are left out in turn, splits, and rows that a split tests, in the quick version."""

SECONDS = {"default": 100, "normalized": 90, "msvm": 60, "altmsvm": 30, "ovr": 10}
"""What a cell takes, roughly, by its row; others 50."""

LONGER = {"glass": 2.0, "vehicle": 2.5, "vehicle3": 2.5}
"""How much longer cells of some data take."""


def _expected_seconds(cell: Cell) -> float:
    """Return what cells are ordered by: the longest go first, for none to be left alone."""
    return SECONDS.get(cell.row, 50) * LONGER.get(cell.data, 1.0)


@dataclass(frozen=True)
class Options:
    """What to run.

    output
        Directory of the results.
    data, rows
        Names of the data and of the rows of the table; None for all.
    theta
        Which lengthscales of posteriors, one of ``THETAS``.
    quick
        Whether to run the cut-down version, whose numbers mean nothing.
    paper_sweeps
        Whether the package's own sampler, too, makes the paper's number of sweeps.
    seed
        Of chains and folds.
    jobs
        Cells that are run at a time, each in a process of one thread.
    progress
        Whether to show a progress bar.
    """

    output: Path
    data: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None
    theta: str = "all"
    quick: bool = False
    paper_sweeps: bool = False
    seed: int = 0
    jobs: int = 1
    progress: bool = True

    @property
    def cells(self) -> list[Cell]:
        """Cells to run."""
        data = QUICK_DATA if self.quick and self.data is None else self.data
        theta = "paper" if self.quick and self.theta == "all" else self.theta
        return cells_of(self.rows, data, theta)

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """Return what the numbers of a cell depend on."""
        settings: dict[str, Any] = {"seed": self.seed, "quick": self.quick}
        if ROWS[cell.row].kind != "machine":
            schedule = schedule_of(cell, quick=self.quick, paper_sweeps=self.paper_sweeps)
            settings |= schedule._asdict()
        return settings


def _fewer(cell: Cell, parts: list[Part]) -> list[Part]:
    """Parts of the quick version."""
    if cell.leaves_one_out:
        return parts[:: -(-len(parts) // QUICK_LEFT_OUT)]
    return [Part(part.train, part.test[:QUICK_TESTED]) for part in parts[:QUICK_SPLITS]]


def run_cell(cell: Cell, options: Options, report=lambda share: None) -> dict[str, Any]:
    """Run one cell: its numbers."""
    began, cpu = time.perf_counter(), time.process_time()
    data = load(cell.data)
    parts = parts_of(cell.data, data)
    if options.quick:
        parts = _fewer(cell, parts)
    if ROWS[cell.row].kind == "machine":
        found = run_machine(cell, data, parts, options.seed, report)
    else:
        schedule = schedule_of(cell, quick=options.quick, paper_sweeps=options.paper_sweeps)
        run = run_default if ROWS[cell.row].kind == "classifier" else run_posterior
        found = run(cell, data, parts, schedule, options.seed, report)
    return {
        **found,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "settings": options.settings_of(cell),
        "version": bmsvm.__version__,
    }


@dataclass(frozen=True)
class _Work:
    """What a process does with a cell."""

    options: Options

    def __call__(self, cell: Cell, report: Callable[[float], None]) -> dict[str, Any]:
        return run_cell(cell, self.options, report)


def run_table(options: Options) -> list[dict[str, Any]]:
    """Run the cells that are not finished; the numbers of all of them."""
    check_count("jobs", options.jobs)
    check_count("seed", options.seed, smallest=0)
    cells = options.cells
    finished = {cell: read_cell(options.output, cell, options.settings_of(cell)) for cell in cells}
    left = [cell for cell in cells if finished[cell] is None]
    left.sort(key=_expected_seconds, reverse=True)
    layout = "{percentage:3.0f}%|{bar}| {n:.2f} of {total} cells [{elapsed}<{remaining}] {postfix}"
    with tqdm(total=len(cells), bar_format=layout, disable=not options.progress) as bar:
        before = len(cells) - len(left)

        def report(done: float, running: str) -> None:
            bar.set_postfix_str(running, refresh=False)
            bar.update(before + done - bar.n)
            bar.refresh()

        for cell, found in run_pieces(_Work(options), left, options.jobs, report):
            write_cell(options.output, cell, found)
            finished[cell] = read_cell(options.output, cell, options.settings_of(cell))
    return [numbers for numbers in finished.values() if numbers is not None]


def write_results(cells: list[dict[str, Any]], output: Path, command: str, *, figure: bool) -> None:
    """Write the table as JSON, Markdown and, if asked for, as a picture."""
    text = json.dumps({"command": command, "cells": cells}, indent=1)
    write_text(output / "table1.json", text + "\n")
    write_text(output / "table1.md", render.markdown(cells, command))
    if figure:
        from bmsvm.experiments.figure import draw_figure

        draw_figure(cells, output / "table1.png")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    parser.add_argument(
        "--output", type=Path, default=Path("table1-output"), help="default: %(default)s"
    )
    parser.add_argument(
        "--data", type=_names, metavar="NAMES", help=f"some of {','.join(DATA)}; default: all"
    )
    parser.add_argument(
        "--rows", type=_names, metavar="NAMES", help=f"some of {','.join(ROWS)}; default: all"
    )
    parser.add_argument(
        "--theta",
        default="all",
        metavar="WHICH",
        help=f"lengthscales of posteriors, one of {', '.join(THETAS)}: 'paper' samples them where "
        "the paper did, 'sampled' everywhere; default: %(default)s",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="cut down to a minute or two, to see it run; the numbers mean nothing",
    )
    parser.add_argument(
        "--paper-sweeps",
        action="store_true",
        help="the paper's 10,000 sweeps for the package's own sampler too",
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time; default: %(default)s")
    parser.add_argument("--no-figure", action="store_true", help="do without Matplotlib")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> int:
    """Run the command of parsed arguments."""
    figure = not arguments.no_figure
    if figure:
        from bmsvm.experiments.figure import check_matplotlib

        check_matplotlib()
    options = Options(
        output=arguments.output,
        data=arguments.data,
        rows=arguments.rows,
        theta=arguments.theta,
        quick=arguments.quick,
        paper_sweeps=arguments.paper_sweeps,
        seed=arguments.seed,
        jobs=arguments.jobs,
        progress=not arguments.quiet,
    )
    cells = run_table(options)
    write_results(cells, options.output, _command(options), figure=figure)
    print(render.terminal(cells), end="")
    print(f"\nWritten to {options.output}: table1.md, table1.json", end="")
    print(", table1.png" if figure else "")
    return 0


def _command(options: Options) -> str:
    """Return the command that makes the numbers of a run."""
    words = ["bmsvm", "table1"]
    for name in ("data", "rows"):
        given = getattr(options, name)
        words += [f"--{name}", ",".join(given)] if given else []
    words += ["--theta", options.theta] if options.theta != "all" else []
    words += ["--quick"] if options.quick else []
    words += ["--paper-sweeps"] if options.paper_sweeps else []
    words += ["--seed", str(options.seed)] if options.seed else []
    words += ["--jobs", str(options.jobs)] if options.jobs > 1 else []
    return shlex.join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module."""
    from bmsvm.cli import main as command

    return command(["table1", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
