"""Run notebooks as Jupyter would: ``python notebooks/execute.py [--build] [NAME ...]``, all by default.

Each runs in an empty folder: it needs the package and nothing beside itself. By default it runs in the
small setting, and the result is in ``notebooks/output``. With ``--build`` it runs in full, and the
result, without times and warnings, is the ``.ipynb`` beside its source. The first error ends the run.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from cells import cells_of
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "output"
LONGEST = 3600
"""Seconds that one cell may take."""

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SETTINGS = {
    "TQDM_DISABLE": "1",  # bars are of use while a notebook runs
    "OPENBLAS_NUM_THREADS": "1",  # matrices are small
    "JAX_COMPILATION_CACHE_DIR": str(OUTPUT / "compiled"),  # shared by the kernels
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
}


def notebook_of(text: str, *, small: bool) -> nbformat.NotebookNode:
    """Make a notebook of a source."""
    new = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    cells = [
        new[cell.kind](cell.content, id=f"cell-{index:02d}", metadata=_metadata(cell.tag))
        for index, cell in enumerate(cells_of(text, small=small))
    ]
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _metadata(tag: str | None) -> dict[str, Any]:
    """Metadata of a cell; Jupyter and the documentation fold the code of "hide-input"."""
    hidden = {"jupyter": {"source_hidden": True}} if tag == "hide-input" else {}
    return {"tags": [tag], **hidden} if tag else {}


def run(notebook: nbformat.NotebookNode) -> None:
    """Run the cells in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=LONGEST,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        ).execute()


def trim(notebook: nbformat.NotebookNode) -> list[str]:
    """Keep the results of the cells; return what was written to standard error."""
    dropped = []
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        warned = [each for each in cell.outputs if each.get("name") == "stderr"]
        dropped += [each.text for each in warned]
        cell.outputs = _joined(each for each in cell.outputs if each not in warned)
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                output.data = {"image/png": smaller(output.data["image/png"])}
                output.metadata = {}
    return dropped


def _joined(outputs: Iterable[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join what was printed in a row."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if found and output.get("name") == found[-1].get("name") == "stdout":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def smaller(png: str) -> str:
    """Reduce a picture to 256 colours."""
    buffer = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def execute(path: Path, *, build: bool) -> Path:
    """Run one notebook, and return where the result is."""
    notebook = notebook_of(path.read_text(encoding="utf-8"), small=not build)
    OUTPUT.mkdir(exist_ok=True)
    target = OUTPUT / f"{path.stem}.ipynb"
    try:
        run(notebook)
    finally:  # an error is best seen among the cells
        nbformat.write(notebook, target)
    if build:
        for text in trim(notebook):
            print(f"{path.name}, left out: {text.rstrip()}", file=sys.stderr)
        target = path.with_suffix(".ipynb")
        nbformat.write(notebook, target)
    return target


def main() -> None:
    """Run the notebooks whose names begin so."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 01 04")
    parser.add_argument("--build", action="store_true", help="in full; write the .ipynb files")
    given = parser.parse_args()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    paths = sorted(HERE.glob("[0-9]*.py"))
    chosen = [p for p in paths if not given.names or p.name.startswith(tuple(given.names))]
    if not chosen:
        sys.exit(f"no notebook begins with {given.names}; there are {[p.name for p in paths]}")
    for path in chosen:
        began = time.perf_counter()
        target = execute(path, build=given.build)
        took = time.perf_counter() - began
        print(f"{path.name}: {took:.0f} s, {os.path.relpath(target)}", flush=True)


if __name__ == "__main__":
    main()
