"""Files that commands read and write, with errors in the words of the command line."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from bmsvm._tables import Table, TableError, read_table
from bmsvm.classifier import BMSVMClassifier
from bmsvm.persistence import load


def say(message: str) -> None:
    """Print a message on standard error."""
    print(f"bmsvm: {message}", file=sys.stderr, flush=True)


def is_model_file(path: str) -> bool:
    """Whether a file begins like a safetensors file: the size of a header, and the header."""
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def model_of(path: str) -> BMSVMClassifier:
    """Load the model that ``bmsvm fit`` saved."""
    if os.path.isfile(path) and not is_model_file(path):
        raise ValueError(f"MODEL must be a file that bmsvm fit has written; {path!r} is not")
    model = load(path)
    if not isinstance(model, BMSVMClassifier):
        raise ValueError(
            f"MODEL must be a BMSVMClassifier, as bmsvm fit writes it; {path!r} is a "
            f"{type(model).__name__}"
        )
    return model


def data_of(path: str) -> Table:
    """Read a CSV file."""
    if os.path.isfile(path) and is_model_file(path):
        raise TableError(f"DATA must be a CSV file; {path!r} is a model file")
    return read_table(path)


def check_unswapped(model: str, data: str, right: str) -> None:
    """Raise ``ValueError`` if the model file was given for the CSV file, and the reverse.

    Parameters
    ----------
    model, data
        The files as they were given.
    right
        The command with ``{model}`` and ``{data}`` in their places.
    """
    if not (os.path.isfile(model) and os.path.isfile(data)):
        return
    if is_model_file(data) and not is_model_file(model):
        raise ValueError(
            f"MODEL and DATA are swapped: {data!r} is the model file. "
            f"Try: {right.format(model=data, data=model)}"
        )


def check_output(path: str | None, *inputs: str) -> None:
    """Raise an error if a file cannot be written, before any work is done."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"--output must be a file; {path!r} is a directory")
    if not target.parent.is_dir():
        raise ValueError(
            f"--output must be in a directory that exists; {str(target.parent)!r} does not"
        )
    for each in inputs:
        if target.exists() and os.path.exists(each) and target.samefile(each):
            raise ValueError(f"--output must not be the file that is read, {each!r}")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"--output must be in a directory that can be written to; {str(target.parent)!r} "
            f"cannot ({error.strerror})"
        ) from None


def rows_for(model: BMSVMClassifier, table: Table, columns: list[str]) -> np.ndarray:
    """Return the features by name, or all these columns if the model has no names: (m, p)."""
    names = getattr(model, "feature_names_in_", columns)
    if len(names) != model.n_features_in_:
        raise TableError(
            f"{table.path} must have {model.n_features_in_} columns of features, in the order of "
            f"the training data, because the model has no feature names; it has {len(names)}"
        )
    lacking = [name for name in names if name not in table.columns]
    if len(lacking) > 1:
        listed = ", ".join(map(repr, lacking[:6])) + (", ..." if len(lacking) > 6 else "")
        raise TableError(
            f"{table.path} has no columns for {len(lacking)} of the {len(names)} features of the "
            f"model: {listed}"
        )
    return table.numbers(list(names))


def row_names(table: Table, column: str | None, otherwise: list[str]) -> list[str]:
    """Return the cells of the column ``--id``, or other names: m of them."""
    return otherwise if column is None else table.cells(column, option="--id")
