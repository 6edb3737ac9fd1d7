"""Tables as CSV files: a header and numbers, with errors that say where."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Table", "TableError", "numbers", "place_of", "read_table", "texts"]


class TableError(ValueError):
    """A CSV file that is not the table it should be."""


class Table(NamedTuple):
    """Cells of a CSV file, as text.

    path
        The file, for errors.
    columns
        Names of the columns.
    rows
        Cells of each row.
    lines
        Line of the file on which each row ends.
    """

    path: str
    columns: list[str]
    rows: list[list[str]]
    lines: list[int]


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a CSV file with a header; blank lines are skipped."""
    name = os.fspath(path)
    columns: list[str] | None = None
    rows, lines = [], []
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for cells in reader:
                if not cells:
                    continue
                cells = [cell.strip() for cell in cells]
                if columns is None:
                    columns = _checked_header(cells, name, reader.line_num)
                    continue
                if len(cells) != len(columns):
                    raise TableError(
                        f"{name}, line {reader.line_num}: {len(cells)} cells, where the header has "
                        f"{len(columns)}"
                    )
                rows.append(cells)
                lines.append(reader.line_num)
        except csv.Error as error:
            raise TableError(f"{name}, line {reader.line_num}: not CSV, {error}") from None
        except UnicodeDecodeError:
            raise TableError(f"{name}, after line {reader.line_num}: not text in UTF-8") from None
    if columns is None:
        raise TableError(f"{name} is empty: the first line should name the columns")
    if not rows:
        raise TableError(f"{name} has a header and no rows")
    return Table(name, columns, rows, lines)


def _checked_header(columns: list[str], name: str, line: int) -> list[str]:
    for number, column in enumerate(columns, 1):
        if not column:
            raise TableError(f"{name}, line {line}: column {number} has no name")
        if columns.index(column) != number - 1:
            raise TableError(f"{name}, line {line}: two columns are called {column!r}")
    return columns


def place_of(table: Table, column: str) -> int:
    """Return the place of a column, which has to be there."""
    if column not in table.columns:
        raise TableError(f"{table.path} has no column {column!r}; it has {_listed(table.columns)}")
    return table.columns.index(column)


def _listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def texts(table: Table, column: str) -> np.ndarray:
    """Cells of a column as text, shape (n,), none of them empty."""
    place = place_of(table, column)
    for cells, line in zip(table.rows, table.lines, strict=True):
        if not cells[place]:
            raise TableError(f"{table.path}, line {line}, column {column!r}: the cell is empty")
    return np.array([cells[place] for cells in table.rows])


def numbers(table: Table, columns: Sequence[str]) -> np.ndarray:
    """Cells of some columns as finite numbers, shape (n, p)."""
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise TableError(f"{table.path} lacks {_listed(missing)}; it has {_listed(table.columns)}")
    places = [table.columns.index(column) for column in columns]
    values = np.empty((len(table.rows), len(columns)))
    for i, cells in enumerate(table.rows):
        for j, place in enumerate(places):
            cell = cells[place]
            try:
                values[i, j] = math.nan if "_" in cell else float(cell)
            except ValueError:
                values[i, j] = math.nan
            if not math.isfinite(values[i, j]):
                found = f"{cell[:40]!r} is not a finite number" if cell else "the cell is empty"
                raise TableError(
                    f"{table.path}, line {table.lines[i]}, column {columns[j]!r}: {found}"
                )
    return values
