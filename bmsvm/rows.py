"""Rows that are read in pieces: from a memory map, a Zarr array, or a stream of batches.

Nothing here holds all rows. :class:`PiecewiseRows` reads 8192 at a time, checks and scales them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

PIECE = 8192
"""Rows that are read at a time."""


class Rows(Protocol):
    """Rows that can be sliced: a NumPy array, a memory map, a Zarr array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows and of features."""

    def __getitem__(self, index: Any) -> Any: ...


def in_pieces(X: Any) -> bool:
    """Whether X is read in pieces.

    A NumPy memory map, or an array in chunks, such as those of Zarr and HDF5:
    it has ``shape``, ``dtype`` and ``chunks``, and can be sliced.
    """
    if isinstance(X, PiecewiseRows):
        return True
    chunked = all(hasattr(X, name) for name in ("shape", "dtype", "chunks", "__getitem__"))
    return (isinstance(X, np.memmap) or chunked) and len(X.shape) == 2


class Applied(Protocol):
    """A transformation of rows, such as :class:`bmsvm.scaling.Scaling`."""

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Return transformed rows (m, p)."""


class PiecewiseRows:
    """Rows in float64, read when they are indexed.

    Parameters
    ----------
    source
        An array (n, p) of numbers that can be sliced.
    numbers
        Indices of the rows to use, increasing; None for all.
    scaling
        What is applied to the rows when they are read; None for no change.
    """

    dtype = np.dtype(np.float64)
    ndim = 2

    def __init__(
        self,
        source: Any,
        *,
        numbers: np.ndarray | None = None,
        scaling: Applied | None = None,
    ) -> None:
        if np.dtype(source.dtype).kind not in "fiub":
            raise ValueError(f"X must be a matrix of real numbers; got dtype {source.dtype}")
        if source.shape[1] < 1:
            raise ValueError(f"X must have at least one feature; got shape {tuple(source.shape)}")
        self.source, self.numbers, self.scaling = source, numbers, scaling
        self._latest: tuple[int, np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        n = self.source.shape[0] if self.numbers is None else len(self.numbers)
        return n, self.source.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def taking(self, numbers: np.ndarray) -> PiecewiseRows:
        """Return some of the rows, by their indices in the source, increasing."""
        return PiecewiseRows(self.source, numbers=numbers, scaling=self.scaling)

    def scaled(self, scaling: Applied) -> PiecewiseRows:
        """Return the rows with a scaling, which is applied when they are read."""
        return PiecewiseRows(self.source, numbers=self.numbers, scaling=scaling)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Read rows by an index, a slice, or an array of indices."""
        if isinstance(index, int | np.integer):
            return self._some(np.asarray([range(len(self))[index]]))[0]
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self._between(start, stop)
            index = np.arange(start, stop, step)
        return self._some(np.asarray(index))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(np.float64 if dtype is None else dtype, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}

    def _between(self, start: int, stop: int) -> np.ndarray:
        parts = [
            self._piece(number)[max(start - number * PIECE, 0) : stop - number * PIECE]
            for number in range(start // PIECE, -(-stop // PIECE))
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, self.shape[1])), *parts])

    def _some(self, numbers: np.ndarray) -> np.ndarray:
        found = np.empty((len(numbers), self.shape[1]))
        pieces = numbers // PIECE
        for piece in np.unique(pieces):
            mine = pieces == piece
            found[mine] = self._piece(int(piece))[numbers[mine] - piece * PIECE]
        return found

    def _piece(self, number: int) -> np.ndarray:
        """Read a piece, unless it is the one that was read last."""
        if self._latest is None or self._latest[0] != number:
            self._latest = number, self._read(number * PIECE)
        return self._latest[1]

    def _read(self, start: int) -> np.ndarray:
        numbers: Any = range(start, min(start + PIECE, len(self)))
        if self.numbers is not None:
            numbers = self.numbers[start : start + PIECE]
        first, last = int(numbers[0]), int(numbers[-1])
        rows = np.asarray(self.source[first : last + 1])
        if self.numbers is not None:
            rows = rows[numbers - first]
        rows = rows.astype(np.float64)
        bad = np.argwhere(~np.isfinite(rows))
        if len(bad):
            row, column = bad[0]
            raise ValueError(
                f"X must be finite; got X[{numbers[row]}, {column}] = {rows[row, column]}"
            )
        return rows if self.scaling is None else self.scaling.apply(rows)


def pieces_of(rows: Rows, size: int | None = None) -> Iterator[np.ndarray]:
    """Rows in pieces of ``size``, :data:`PIECE` by default, each in float64."""
    size = PIECE if size is None else size
    for start in range(0, rows.shape[0], size):
        yield np.asarray(rows[start : start + size], np.float64)


def from_batches(
    batches: Iterable[tuple[Any, Any]], path: str | os.PathLike[str], dtype: Any = np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Write a stream of rows to a file, and return them as a memory map, with their labels.

    Fitting reads the rows several times, and an iterator can be read once. Only one batch and
    the labels are held in memory.

    Parameters
    ----------
    batches
        Pairs of rows (m, p) and labels (m,), of any sizes m.
    path
        A new file for the rows, in NumPy's format, such as ``"rows.npy"``.
    dtype
        Type of the file.

    Returns
    -------
    tuple
        Rows (n, p) as a :class:`numpy.memmap`, and labels (n,).
    """
    labels: list[np.ndarray] = []
    total, width = 0, None
    with open(path, "xb") as file:
        for number, (rows, names) in enumerate(batches):
            block, found = np.ascontiguousarray(rows, dtype), np.asarray(names)
            if block.ndim != 2 or found.shape != block.shape[:1]:
                raise ValueError(
                    "batches must be pairs of rows (m, p) and labels (m,); batch "
                    f"{number} has shapes {block.shape} and {found.shape}"
                )
            if width is None:
                width = block.shape[1]
                _write_header(file, (0, width), block.dtype)
            if block.shape[1] != width:
                raise ValueError(
                    f"batches must have rows of {width} features, as the first has; batch "
                    f"{number} has {block.shape[1]}"
                )
            file.write(block.data)
            labels.append(found)
            total += len(block)
        if width is None:
            raise ValueError("batches must not be empty")
        file.seek(0)
        _write_header(file, (total, width), np.dtype(dtype))
    return np.load(path, mmap_mode="r"), np.concatenate(labels)


def _write_header(file: Any, shape: tuple[int, int], dtype: np.dtype) -> None:
    """Write NumPy's header, which leaves room for any number of rows."""
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
