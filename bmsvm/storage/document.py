"""Settings as JSON beside arrays, in one netCDF file that is replaced whole or not at all.

docs/format.md describes what is in it. Reading runs nothing that is in the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bmsvm._version import __version__
from bmsvm.storage.atomic import replacing
from bmsvm.storage.encoding import STORAGE, Decoder
from bmsvm.storage.errors import ModelFileError
from bmsvm.storage.netcdf3 import Header, Variable, read_header, write

__all__ = [
    "Kind",
    "attributes_of",
    "digest_of",
    "read_document",
    "reader",
    "variables_of",
    "write_document",
]

DIGEST_SIZE = 64
CHUNK = 2**20


class Kind(NamedTuple):
    """What a file is.

    title
        What it says of itself.
    noun
        What to call it in an error message.
    version
        The newest version of its format that is understood; what is written.
    """

    title: str
    noun: str
    version: int


DIMENSIONS: dict[str, tuple[str, ...]] = {
    "draws_accept_prob": ("chain", "draw"),
    "draws_intercept": ("chain", "draw", "class"),
    "draws_lengthscale": ("chain", "draw"),
    "draws_lengthscale_accept_prob": ("chain", "draw"),
    "draws_noise_variance": ("chain", "draw"),
    "draws_num_steps": ("chain", "draw"),
    "draws_precision": ("chain", "draw"),
    "draws_scores": ("chain", "draw", "row", "class"),
    "draws_step_size": ("chain", "draw"),
    "draws_weights": ("chain", "draw", "basis", "column"),
    "input_mean": ("feature",),
    "input_scale": ("feature",),
    "problem_factor_basis": ("row", "basis"),
    "problem_factor_eigenvalues": ("basis",),
    "problem_grid_factors_basis": ("lengthscale", "row", "basis"),
    "problem_grid_factors_eigenvalues": ("lengthscale", "basis"),
    "problem_grid_log_prior": ("lengthscale",),
    "problem_grid_values": ("lengthscale",),
    "problem_labels": ("row",),
    "problem_row_weights": ("row",),
    "training_rows": ("training_row", "feature"),
}
"""Names of the axes of some variables, for whoever looks into a file."""


def attributes_of(kind: Kind, document: dict[str, Any]) -> dict[str, str | int]:
    """Return the attributes of a file, the digest left blank."""
    return {
        "title": kind.title,
        "format_version": kind.version,
        "bmsvm_version": __version__,
        "sha256": "0" * DIGEST_SIZE,
        "settings": json.dumps(document, allow_nan=False),
    }


def write_document(
    path: str | os.PathLike[str],
    attributes: dict[str, str | int],
    variables: dict[str, Variable],
) -> None:
    """Write a file, with its digest; it is replaced whole or not at all."""
    with replacing(path) as file:
        write(file, attributes, variables)
        size = file.tell()
        file.seek(0)
        header = read_header(file, size)
        digest = digest_of(file, header)
        file.seek(header.attributes["sha256"].begin)
        file.write(digest.encode())


def variables_of(arrays: dict[str, np.ndarray]) -> dict[str, Variable]:
    """Return arrays as the variables of a file."""
    variables: dict[str, Variable] = {}
    lengths: dict[str, int] = {}
    for name, values in arrays.items():
        stored = _as_stored(values)
        dimensions = DIMENSIONS.get(name, ())
        known = len(dimensions) == stored.ndim and all(
            lengths.get(dimension, length) == length
            for dimension, length in zip(dimensions, stored.shape, strict=True)
        )
        if not known:
            dimensions = tuple(f"axis{i}_{length}" for i, length in enumerate(stored.shape))
        lengths.update(zip(dimensions, stored.shape, strict=True))
        variables[name] = Variable(dimensions, stored)
    return variables


def _as_stored(values: np.ndarray) -> np.ndarray:
    """Show an array as one of a type that the file has, of the same bytes in the file's order.

    An integer of 64 bits becomes two of 32 bits, along a last axis.
    """
    kind = np.dtype(STORAGE[values.dtype.name])
    flat = np.ascontiguousarray(values).reshape(-1)
    if kind.itemsize == flat.itemsize:
        return flat.view(kind).reshape(values.shape)
    halves = flat.astype(flat.dtype.newbyteorder(">")).view(kind.newbyteorder(">"))
    return halves.reshape(*values.shape, -1)


def digest_of(file: BinaryIO, header: Header) -> str:
    """SHA-256 of a file, the digest in it taken to be zeros."""
    begin = header.attributes["sha256"].begin
    digest = hashlib.sha256()
    file.seek(0)
    digest.update(file.read(begin))
    file.seek(begin + DIGEST_SIZE)
    digest.update(b"0" * DIGEST_SIZE)
    while part := file.read(CHUNK):
        digest.update(part)
    return digest.hexdigest()


def read_document(
    path: str | os.PathLike[str], kind: Kind, build: Callable[[dict[str, Any], Decoder], Any]
) -> Any:
    """Return what ``build`` makes of the settings of a file and a decoder of its arrays.

    Whatever is wrong with the file is a :class:`ModelFileError`; errors of the system pass.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ModelFileError(f"cannot load {os.fspath(path)!r}: it is not a file")
    try:
        with open(path, "rb") as file:
            header = read_header(file, os.fstat(file.fileno()).st_size)
            _check_header(header, kind)
            if digest_of(file, header) != header.attributes["sha256"].value:
                raise ModelFileError("it is damaged: its content does not match its checksum")
            document = json.loads(str(header.attributes["settings"].value))
            return build(document, Decoder(reader(file, header)))
    except OSError:
        raise
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {os.fspath(path)!r}: {error}") from None
    except Exception as error:  # what a stranger's file can bring about has no list
        raise ModelFileError(
            f"cannot load {os.fspath(path)!r}: its content makes no sense "
            f"({type(error).__name__}: {error})"
        ) from error


def reader(
    file: BinaryIO, header: Header
) -> Callable[[str, np.dtype, tuple[int, ...]], np.ndarray]:
    """Return a function that reads an array, given its name, type and shape."""

    def read(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        place = header.variables[name]
        if place.size != math.prod(shape) * dtype.itemsize:
            raise ModelFileError(f"the array {name} has another size than it should")
        file.seek(place.begin)
        raw = np.dtype("i1") if dtype.kind == "b" else dtype.newbyteorder(">")
        return np.frombuffer(file.read(place.size), raw).reshape(shape).astype(dtype)

    return read


def _check_header(header: Header, kind: Kind) -> None:
    values = {name: attribute.value for name, attribute in header.attributes.items()}
    version = values.get("format_version")
    if values.get("title") != kind.title or not isinstance(version, int):
        raise ModelFileError(f"it is a netCDF file, but not {kind.noun}")
    if version > kind.version:
        raise ModelFileError(
            f"it has format version {version}, written by bmsvm {values.get('bmsvm_version')!s:.40}"
            f"; bmsvm {__version__} reads up to version {kind.version}: upgrade bmsvm"
        )
    texts = [values.get(name) for name in ("sha256", "settings")]
    if version < 1 or not all(isinstance(text, str) for text in texts):
        raise ModelFileError("its header is damaged")
    if len(str(texts[0])) != DIGEST_SIZE:
        raise ModelFileError("its header is damaged")
