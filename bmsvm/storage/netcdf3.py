"""The part of netCDF-3 that a model file needs: 64-bit offsets, fixed dimensions.

Readers for the whole format trust the sizes they find. This one is for files from strangers: it
takes nothing on trust that it can compare with the size of the file, and a header is read in time
and memory that the file's own size bounds. The format is specified in the netCDF User's Guide,
"File Format Specifications".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import BinaryIO, NamedTuple

import numpy as np

from bmsvm.storage.errors import ModelFileError

__all__ = ["HEADER_LIMIT", "Attribute", "Header", "Place", "Variable", "read_header", "write"]

MAGIC = b"CDF\x02"
DIMENSION, VARIABLE, ATTRIBUTE = 10, 11, 12
BYTE, CHAR, SHORT, INT, FLOAT, DOUBLE = range(1, 7)
ITEM_SIZES = {BYTE: 1, CHAR: 1, SHORT: 2, INT: 4, FLOAT: 4, DOUBLE: 8}
TYPES = {"i1": BYTE, "i2": SHORT, "i4": INT, "f4": FLOAT, "f8": DOUBLE}
"""Types of arrays, by kind and size."""

HEADER_LIMIT = 2**24
"""The most bytes a header may have."""

VARIABLE_LIMIT = 2**32 - 4
"""The most bytes a variable may have."""

MOST_DIMENSIONS = 32

CHUNK = 2**22
"""Bytes of an array that are turned into the file's byte order at a time."""


class Variable(NamedTuple):
    """An array with its dimensions named.

    dimensions
        One name for each axis; the same name stands for the same size everywhere.
    values
        int8, int16, int32, float32 or float64, of at least one element.
    """

    dimensions: tuple[str, ...]
    values: np.ndarray


class Attribute(NamedTuple):
    """A value of the header, and where in the file it begins; None for types that are not read."""

    value: str | int | None
    begin: int


class Place(NamedTuple):
    """Where in the file a variable is: first byte and number of bytes."""

    begin: int
    size: int


class Header(NamedTuple):
    """What a file says of itself."""

    attributes: dict[str, Attribute]
    variables: dict[str, Place]


# Writing -------------------------------------------------------------------------------------


def write(
    file: BinaryIO, attributes: Mapping[str, str | int], variables: Mapping[str, Variable]
) -> None:
    """Write global attributes (ASCII text or 32-bit integers) and variables."""
    lengths: dict[str, int] = {}
    for name, (dimensions, values) in variables.items():
        if values.nbytes > VARIABLE_LIMIT:
            raise ValueError(
                f"{name} has {values.nbytes / 2**30:.1f} GiB; the file format allows 4 GiB an array"
            )
        for dimension, length in zip(dimensions, values.shape, strict=True):
            if lengths.setdefault(dimension, length) != length or length < 1:
                raise ValueError(f"{name}: dimension {dimension} cannot have {length} elements")
    order = list(lengths)
    start = [
        MAGIC,
        _int(0),  # no records
        _list(DIMENSION, [_string(name) + _int(length) for name, length in lengths.items()]),
        _list(ATTRIBUTE, [_string(name) + _value(value) for name, value in attributes.items()]),
    ]

    def described(begins: list[int]) -> bytes:
        return _list(
            VARIABLE,
            [
                _string(name)
                + _int(len(dimensions))
                + b"".join(_int(order.index(dimension)) for dimension in dimensions)
                + _list(ATTRIBUTE, [])
                + _int(TYPES[values.dtype.str[1:]])
                + struct.pack(">I", _padded(values.nbytes))
                + struct.pack(">q", begin)
                for (name, (dimensions, values)), begin in zip(
                    variables.items(), begins, strict=True
                )
            ],
        )

    size = sum(map(len, start)) + len(described([0] * len(variables)))
    if size > HEADER_LIMIT:
        raise ValueError(
            f"names and settings take {size / 2**20:.0f} MiB; the most is {HEADER_LIMIT >> 20} MiB"
        )
    begins = []
    for variable in variables.values():
        begins.append(size)
        size += _padded(variable.values.nbytes)
    file.write(b"".join(start) + described(begins))
    for variable in variables.values():
        _write_values(file, variable.values)


def _write_values(file: BinaryIO, values: np.ndarray) -> None:
    flat = np.ascontiguousarray(values).reshape(-1)
    step = CHUNK // values.itemsize
    for start in range(0, flat.size, step):
        part = flat[start : start + step]
        file.write(part.astype(part.dtype.newbyteorder(">")).tobytes())
    file.write(bytes(_padded(values.nbytes) - values.nbytes))


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _string(text: str) -> bytes:
    data = text.encode("ascii")
    return _int(len(data)) + data.ljust(_padded(len(data)), b"\0")


def _value(value: str | int) -> bytes:
    if isinstance(value, str):
        return _int(CHAR) + _string(value)
    return _int(INT) + _int(1) + _int(value)


def _list(tag: int, items: list[bytes]) -> bytes:
    return _int(tag if items else 0) + _int(len(items)) + b"".join(items)


# Reading -------------------------------------------------------------------------------------


class _Cursor:
    """A file read from the beginning, no further than it or a header can reach."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.at, self.end = file, 0, min(size, HEADER_LIMIT)

    def take(self, count: int) -> bytes:
        if count > self.end - self.at:
            raise ModelFileError("it is truncated, or its header is damaged")
        data = self.file.read(count)
        if len(data) != count:
            raise ModelFileError("it is truncated")
        self.at += count
        return data

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def padded(self, count: int) -> bytes:
        return self.take(_padded(count))[:count]

    def text(self) -> str:
        return self.padded(self.number()).decode("latin-1")

    def count(self, tag: int) -> int:
        found, count = self.number(), self.number()
        if found != tag and (found or count):
            raise ModelFileError("its header is damaged")
        return count


def read_header(file: BinaryIO, size: int) -> Header:
    """Read the header of a file of ``size`` bytes, or raise :class:`ModelFileError`.

    Every place that is returned is in the file, after the header, and apart from the others.
    """
    cursor = _Cursor(file, size)
    if size < len(MAGIC) or cursor.take(len(MAGIC)) != MAGIC:
        raise ModelFileError("it is not a netCDF file with 64-bit offsets")
    if cursor.number() != 0:
        raise ModelFileError("it has records, which models have not")
    lengths = []
    for _ in range(cursor.count(DIMENSION)):
        cursor.text()
        lengths.append(cursor.number())
    attributes = _attributes(cursor)
    variables: dict[str, Place] = {}
    for _ in range(cursor.count(VARIABLE)):
        name = cursor.text()
        rank = cursor.number()
        if rank > MOST_DIMENSIONS:
            raise ModelFileError(f"a variable has {rank} dimensions")
        numbers = [cursor.number() for _ in range(rank)]
        if any(number >= len(lengths) for number in numbers):
            raise ModelFileError("a variable has a dimension that there is not")
        _attributes(cursor)
        nbytes = math.prod(lengths[number] for number in numbers) * _item_size(cursor.number())
        cursor.number()  # the size rounded up, which follows from the dimensions
        begin = int.from_bytes(cursor.take(8), "big")
        if name in variables:
            raise ModelFileError("two variables have one name")
        variables[name] = Place(begin, nbytes)
    end = cursor.at
    for place in variables.values():
        if place.begin < end:
            raise ModelFileError("its variables overlap")
        end = place.begin + place.size
        if end > size:
            raise ModelFileError("it is truncated")
    return Header(attributes, variables)


def _item_size(kind: int) -> int:
    if kind not in ITEM_SIZES:
        raise ModelFileError(f"it has values of a type that there is not, {kind}")
    return ITEM_SIZES[kind]


def _attributes(cursor: _Cursor) -> dict[str, Attribute]:
    found = {}
    for _ in range(cursor.count(ATTRIBUTE)):
        name, kind, count = cursor.text(), cursor.number(), cursor.number()
        nbytes, begin = count * _item_size(kind), cursor.at
        data = cursor.padded(nbytes)
        value: str | int | None = None
        if kind == CHAR:
            value = data.decode("latin-1")
        elif kind == INT and count == 1:
            value = int.from_bytes(data, "big", signed=True)
        found[name] = Attribute(value, begin)
    return found
