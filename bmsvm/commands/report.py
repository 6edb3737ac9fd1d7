"""``bmsvm report``: write an HTML report of a saved model."""

from __future__ import annotations

import argparse

import numpy as np

from bmsvm._tables import Table
from bmsvm.classifier import BMSVMClassifier
from bmsvm.commands.files import (
    check_output,
    check_unswapped,
    data_of,
    model_of,
    row_names,
    rows_for,
    say,
)
from bmsvm.report import write_report


def run(options: argparse.Namespace) -> None:
    """Write the report, with scores if there are held-out rows."""
    if (options.held_out is None) != (options.target is None):
        raise ValueError("--held-out and --target must be given together")
    if options.id is not None and options.held_out is None:
        raise ValueError("--id is a column of --held-out, which must be given too")
    check_output(options.output, options.model, options.held_out or options.model)
    if options.held_out is None:
        write_report(model_of(options.model), options.output, title=options.title)
        say(f"wrote {options.output}")
        return
    right = "bmsvm report {model} --held-out {data} --target COLUMN -o FILE"
    check_unswapped(options.model, options.held_out, right)
    model, table = model_of(options.model), data_of(options.held_out)
    labels = _labels_for(model, table, options.target)
    columns = [name for name in table.columns if name not in (options.target, options.id)]
    rows = rows_for(model, table, columns)
    names = row_names(table, options.id, [f"line {line}" for line in table.lines])
    write_report(model, options.output, rows, labels, rows=names, title=options.title)
    say(f"wrote {options.output}: {len(rows)} held-out rows")


def _labels_for(model: BMSVMClassifier, table: Table, target: str) -> np.ndarray:
    """Return the classes of the model that the cells of a column stand for, shape (m,)."""
    written = {str(name): name for name in model.classes_.tolist()}
    cells = table.cells(target, option="--target")
    for row, cell in enumerate(cells):
        if cell not in written:
            known = ", ".join(map(repr, list(written)[:12]))
            raise table.error(target, row, f"{cell[:40]!r} is not one of the classes {known}")
    return np.array([written[cell] for cell in cells], dtype=model.classes_.dtype)
