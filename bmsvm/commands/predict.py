"""``bmsvm predict``: predict the rows of a CSV file."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator

import numpy as np

from bmsvm.checkpoint import replacing
from bmsvm.commands.files import (
    check_output,
    check_unswapped,
    data_of,
    model_of,
    row_names,
    rows_for,
    say,
)
from bmsvm.prediction.uncertainty import Uncertainty


def run(options: argparse.Namespace) -> None:
    """Write the label, the probabilities, their intervals and the doubt of each row."""
    check_unswapped(options.model, options.data, "bmsvm predict {model} {data}")
    check_output(options.output, options.model, options.data)
    model, table = model_of(options.model), data_of(options.data)
    rows = rows_for(model, table, [name for name in table.columns if name != options.id])
    names = row_names(table, options.id, [str(row + 1) for row in range(len(rows))])
    labels, found = model.predict(rows), model.predict_uncertainty(rows, level=options.level)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([options.id or "row", *_head(model.classes_)])
    for name, label, numbers in zip(names, labels, _numbers(found), strict=True):
        writer.writerow([name, label, *(f"{number:.6f}" for number in numbers)])
    if options.output is None:
        sys.stdout.write(text.getvalue())
        sys.stdout.flush()
        return
    with replacing(options.output) as file:
        file.write(text.getvalue().encode("utf-8"))
    say(f"wrote {options.output}: {len(rows)} rows")


def _head(classes: np.ndarray) -> list[str]:
    parts = [f"{part}_{name}" for part in ("probability", "lower", "upper") for name in classes]
    return ["label", *parts, "epistemic"]


def _numbers(found: Uncertainty) -> Iterator[np.ndarray]:
    """Numbers of each row, in the order of the heading: shape (3 c + 1,)."""
    parts = (found.probabilities, found.lower, found.upper, found.epistemic[:, None])
    yield from np.hstack(parts)
