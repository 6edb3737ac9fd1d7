"""Cells of an experiment: computed in parallel, stored one JSON file each, resumed."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import joblib
from tqdm.auto import tqdm

__all__ = ["run_cells", "write_text"]

Compute = Callable[..., dict[str, Any]]


def run_cells(
    compute: Compute,
    cells: Mapping[str, Mapping[str, Any]],
    out: Path,
    *,
    jobs: int | None = None,
    progress: bool = True,
) -> dict[str, dict[str, Any]]:
    """Compute the cells that are not stored yet; return the numbers of all, by name.

    Parameters
    ----------
    compute
        ``compute(**arguments) -> dict``, a function that pickles.
    cells
        Arguments of each cell, by the name of its file. They are stored with the numbers.
    out
        Directory of the results; cells go to ``cells`` in it.
    jobs
        Processes; None for what ``joblib.parallel_config`` says, else 1.
    progress
        Whether to show a progress bar.

    Raises
    ------
    ValueError
        If a stored cell is damaged, or was computed with other arguments.
    """
    paths = {name: out / "cells" / f"{name}.json" for name in cells}
    found = {name: _read(paths[name], arguments) for name, arguments in cells.items()}
    left = [name for name in cells if found[name] is None]
    parallel = joblib.Parallel(jobs, batch_size=1, return_as="generator_unordered")
    results = parallel(
        joblib.delayed(_compute)(name, compute, cells[name], os.getpid()) for name in left
    )
    bar = tqdm(results, initial=len(cells) - len(left), total=len(cells), disable=not progress)
    for name, numbers in bar:
        found[name] = {"arguments": dict(cells[name]), **numbers}
        write_text(paths[name], json.dumps(found[name], indent=1) + "\n")
    return {name: numbers for name, numbers in found.items() if numbers is not None}


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _read(path: Path, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read a stored cell; None if there is none."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        given = found["arguments"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: remove it to compute it again") from error
    if given != json.loads(json.dumps(arguments)):
        raise ValueError(
            f"{path} was computed with {given}, and this run has {dict(arguments)}: pass another "
            "--out"
        )
    return found


def _compute(
    name: str, compute: Compute, arguments: Mapping[str, Any], main: int
) -> tuple[str, dict[str, Any]]:
    """Compute one cell; ``main`` is the process that waits for it."""
    if os.getpid() != main:
        os.environ["NPROC"] = "1"  # threads of XLA, which reads it at its first use
        _end_with(main)
    return name, compute(**arguments)


@functools.cache
def _end_with(main: int) -> None:
    """End this worker once the process that started it is gone."""

    def watch() -> None:
        while os.getppid() == main:
            time.sleep(0.5)
        os._exit(1)

    if os.getppid() == main:
        threading.Thread(target=watch, daemon=True).start()
