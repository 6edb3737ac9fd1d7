"""CSV files with a header, read with errors that name file, line and column."""

from __future__ import annotations

import csv
import difflib
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}
"""How files write a missing value, in small letters."""


class TableError(ValueError):
    """A CSV file that is not a table, or lacks something."""


class Table(NamedTuple):
    """Cells of a CSV file, by column name, and the line on which each row ends."""

    path: str
    columns: dict[str, list[str]]
    lines: list[int]

    def cells(self, column: str, *, option: str = "", filled: bool = True) -> list[str]:
        """Return the cells of a column.

        Parameters
        ----------
        column
            Name of the column.
        option
            Option of the command line that named it, for errors.
        filled
            Whether none of the cells may be empty.
        """
        if column not in self.columns:
            raise TableError(self._unknown(column, option))
        cells = self.columns[column]
        if filled and "" in cells:
            raise self.error(
                column, cells.index(""), "the cell is empty; fill it in, or remove this row"
            )
        return cells

    def _unknown(self, column: str, option: str) -> str:
        names = list(self.columns)
        known = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
        near = difflib.get_close_matches(column, names, 1)
        near = near or [name for name in names if name.lower() == column.lower()]
        hint = f". Did you mean {near[0]!r}?" if near else ""
        said = f"{option}: " if option else ""
        return f"{said}{self.path} has no column {column!r}; it has {known}{hint}"

    def numbers(self, columns: Sequence[str], *, droppable: bool = False) -> np.ndarray:
        """Return columns of finite numbers, shape (n, p).

        Parameters
        ----------
        columns
            Names of the columns.
        droppable
            Whether a column that holds no numbers may be left out, by ``--drop``.
        """
        return np.array([self._numbers(column, droppable) for column in columns]).T

    def _numbers(self, column: str, droppable: bool) -> list[float]:
        cells = self.cells(column, filled=False)
        values = [_number(cell) for cell in cells]
        bad = next((row for row, value in enumerate(values) if not math.isfinite(value)), None)
        if bad is None:
            return values
        if cells[bad].lower() not in MISSING:
            hint = ""
            if droppable:
                hint = (
                    "; remove a unit, write categories as columns of 0 and 1, or leave the column "
                    f"out with --drop {column!r}"
                )
            raise self.error(column, bad, f"{cells[bad][:40]!r} is not a finite number{hint}")
        what = "the cell is empty" if not cells[bad] else f"{cells[bad]!r} is a missing value"
        count = sum(cell.lower() in MISSING for cell in cells)
        raise self.error(
            column,
            bad,
            f"{what}, one of {count} in this column; fill in missing values, or remove these rows",
        )

    def error(self, column: str, row: int, what: str) -> TableError:
        """Return an error that names the file, the line and the column."""
        return TableError(f"{self.path}, line {self.lines[row]}, column {column!r}: {what}")


def _number(cell: str) -> float:
    """Read a number; NaN if the cell is none."""
    try:
        return math.nan if "_" in cell else float(cell)
    except ValueError:
        return math.nan


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a CSV file in UTF-8 with a header; blank lines are skipped."""
    name, rows, lines = os.fspath(path), [], []
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for cells in filter(None, reader):
                rows.append([cell.strip() for cell in cells])
                lines.append(reader.line_num)
                if len(rows) == 1:
                    _check_separator(name, rows[0])
                if len(cells) != len(rows[0]):
                    raise csv.Error(f"{len(cells)} cells, but the header has {len(rows[0])}")
        except UnicodeDecodeError as error:
            raise TableError(f"{name} must be text in UTF-8; {error}") from None
        except csv.Error as error:
            raise TableError(f"{name}, line {reader.line_num}: {error}") from None
    if len(rows) < 2:
        raise TableError(f"{name} must have a header and rows; it has {len(rows)} lines")
    header = rows[0]
    if "" in header:
        raise TableError(
            f"{name}: each column must have a name; column {header.index('') + 1} has none. If it "
            "is the index of a pandas table, write the file with to_csv(index=False)"
        )
    if len(set(header)) < len(header):
        raise TableError(f"{name}: columns must have different names; got {header}")
    columns = dict(zip(header, map(list, zip(*rows[1:], strict=True)), strict=True))
    return Table(name, columns, lines[1:])


def _check_separator(name: str, header: list[str]) -> None:
    """Raise ``TableError`` if the columns are not separated by commas."""
    other = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
    if other is not None:
        raise TableError(
            f"{name} must have commas between its columns, and points in its numbers; it has "
            f"{other!r} between its columns"
        )
