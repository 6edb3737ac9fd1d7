"""Run notebooks as Jupyter would: ``python notebooks/execute.py [NAME ...]``, all by default.

Each is written, with its pictures, to ``notebooks/output``. The first error ends the run.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
OUTPUT = HERE / "output"
LONGEST = 3600
"""Seconds that one cell may take."""


def execute(path: Path) -> Path:
    """Run one notebook in its folder, and return where the result is."""
    notebook = jupytext.read(path)
    OUTPUT.mkdir(exist_ok=True)
    target = OUTPUT / f"{path.stem}.ipynb"
    client = NotebookClient(
        notebook,
        timeout=LONGEST,
        kernel_name="python3",
        resources={"metadata": {"path": str(HERE)}},
    )
    try:
        client.execute()
    finally:  # an error is best seen among the cells
        nbformat.write(notebook, target)
    return target


def main(names: list[str]) -> None:
    """Run the notebooks whose names begin so."""
    # Kernels of their own would each compile the same programs again.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(OUTPUT / "compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    paths = sorted(HERE.glob("[0-9]*.py"))
    chosen = [p for p in paths if not names or any(p.name.startswith(name) for name in names)]
    if not chosen:
        sys.exit(f"no notebook begins with {', '.join(names)}; there are {[p.name for p in paths]}")
    for path in chosen:
        began = time.perf_counter()
        target = execute(path)
        print(
            f"{path.name}: {time.perf_counter() - began:.0f} s, {os.path.relpath(target)}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
