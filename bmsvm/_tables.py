"""CSV files with a header, read with errors that name file, line and column."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Table", "TableError", "read_table"]


class TableError(ValueError):
    """A CSV file that is not a table, or lacks something."""


class Table(NamedTuple):
    """Cells of a CSV file, by column name, and the line on which each row ends."""

    path: str
    columns: dict[str, list[str]]
    lines: list[int]

    def cells(self, column: str) -> list[str]:
        """Return the cells of a column, none of which may be empty."""
        if column not in self.columns:
            known = ", ".join(map(repr, list(self.columns)[:12]))
            raise TableError(f"{self.path} has no column {column!r}; it has {known}")
        cells = self.columns[column]
        if "" in cells:
            raise self.error(column, cells.index(""), "the cell is empty")
        return cells

    def numbers(self, columns: Sequence[str]) -> np.ndarray:
        """Return columns of finite numbers, shape (n, p)."""
        return np.array([self._numbers(column) for column in columns]).T

    def _numbers(self, column: str) -> list[float]:
        values = []
        for row, cell in enumerate(self.cells(column)):
            try:
                value = math.nan if "_" in cell else float(cell)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise self.error(column, row, f"{cell[:40]!r} is not a finite number")
            values.append(value)
        return values

    def error(self, column: str, row: int, what: str) -> TableError:
        """Return an error that names the file, the line and the column."""
        return TableError(f"{self.path}, line {self.lines[row]}, column {column!r}: {what}")


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a CSV file in UTF-8 with a header; blank lines are skipped."""
    name, rows, lines = os.fspath(path), [], []
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for cells in filter(None, reader):
                rows.append([cell.strip() for cell in cells])
                lines.append(reader.line_num)
                if len(cells) != len(rows[0]):
                    raise csv.Error(f"{len(cells)} cells, but the header has {len(rows[0])}")
        except (csv.Error, UnicodeDecodeError) as error:
            raise TableError(f"{name}, line {reader.line_num}: {error}") from None
    if len(rows) < 2:
        raise TableError(f"{name} must have a header and rows; it has {len(rows)} lines")
    header = rows[0]
    if "" in header or len(set(header)) < len(header):
        raise TableError(f"{name}: columns must have different names; got {header}")
    columns = dict(zip(header, map(list, zip(*rows[1:], strict=True)), strict=True))
    return Table(name, columns, lines[1:])
