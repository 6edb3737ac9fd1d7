"""Settings and arrays as JSON beside a table of arrays, and back.

What JSON has is itself; the rest is an object with one of the keys below. Decoding builds numbers,
strings, containers and arrays, and of classes only those that were registered.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.rows import PiecewiseRows
from bmsvm.storage.errors import ModelFileError

__all__ = ["STORAGE", "Decoder", "Encoder", "register"]

STRUCTURES: dict[str, type] = {}
"""Classes that may be saved: frozen data, made of their fields. See :func:`register`."""

STORAGE: dict[str, str] = {
    "bool": "i1",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i4",
    "uint8": "i1",
    "uint16": "i2",
    "uint32": "i4",
    "uint64": "i4",
    "float16": "i2",
    "float32": "f4",
    "float64": "f8",
}
"""Types of arrays, and the file's type that their bytes are shown as."""

TEXT_LIMIT = 2**26
"""The most bytes of an array of strings."""

KEY_KINDS = ("threefry2x32", "rbg", "unsafe_rbg")


def register(*structures: type) -> None:
    """Let classes be saved, by their names."""
    STRUCTURES.update({structure.__name__: structure for structure in structures})


class Encoder:
    """Turns values into JSON, and gathers their arrays by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def encode(self, value: Any, name: str) -> Any:
        """Return what JSON can hold of a value; ``name`` says what it is."""
        if value is None or isinstance(value, bool | str):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, jax.Array):
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                data = self._array(np.asarray(jax.random.key_data(value)), name)
                return {"key": data, "kind": str(jax.random.key_impl(value))}
            if value.aval.weak_type and value.ndim == 0:  # a Python number, to JAX
                return {"number": self.encode(value.item(), name)}
            return {"jax": self._array(np.asarray(value), name)}
        if isinstance(value, np.generic):
            _check_type(value.dtype, name)
            return {"scalar": self.encode(value.item(), name), "dtype": value.dtype.name}
        if isinstance(value, np.ndarray | PiecewiseRows):
            return self._numpy(np.asarray(value), name)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if type(value) is list:
            return [self.encode(part, f"{name}.{i}") for i, part in enumerate(value)]
        if type(value) is tuple:
            return {"tuple": [self.encode(part, f"{name}.{i}") for i, part in enumerate(value)]}
        if isinstance(value, dict):
            pairs = [
                [self.encode(key, name), self.encode(part, f"{name}.{key}")]
                for key, part in value.items()
            ]
            return {"dict": pairs}
        kind = type(value).__name__
        if STRUCTURES.get(kind) is type(value):
            fields = {
                field: self.encode(getattr(value, field), f"{name}.{field}")
                for field in _fields(type(value))
            }
            return {"structure": kind, "fields": fields}
        raise ValueError(
            f"{name} cannot be saved: it is {value!r}, a {kind}, and a model file holds numbers, "
            "strings and arrays of them; pickle the model instead"
        )

    def _numpy(self, value: np.ndarray, name: str) -> Any:
        if value.dtype.kind in "UO" and value.ndim == 1:
            texts = [self.encode(part, name) for part in value.tolist()]
            if value.dtype.kind == "O":
                return {"objects": texts}
            if value.nbytes > TEXT_LIMIT:
                raise ValueError(
                    f"{name} cannot be saved: its strings take {value.nbytes >> 20} MiB; "
                    f"the most is {TEXT_LIMIT >> 20} MiB"
                )
            return {"strings": texts, "width": value.dtype.itemsize // 4}
        return {"array": self._array(value, name)}

    def _array(self, value: np.ndarray, name: str) -> dict[str, Any]:
        dtype = _check_type(value.dtype, name)
        native = np.asarray(value, dtype)
        label = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:200]
        while label in self.arrays:
            label += "_"
        if native.size:
            self.arrays[label] = native
        return {"name": label, "dtype": dtype.name, "shape": list(native.shape)}


def _check_type(dtype: np.dtype, name: str) -> np.dtype:
    if dtype.name not in STORAGE:
        raise ValueError(
            f"{name} cannot be saved: it has the type {dtype}, and a model file holds numbers, "
            "booleans and strings; pickle the model instead"
        )
    return np.dtype(dtype.name)


def _fields(structure: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(structure):
        return tuple(field.name for field in dataclasses.fields(structure))
    return structure._fields  # type: ignore[attr-defined]


class Decoder:
    """Makes values of JSON again.

    Parameters
    ----------
    read
        Returns the array of a name, given its type and shape.
    """

    def __init__(self, read: Callable[[str, np.dtype, tuple[int, ...]], np.ndarray]) -> None:
        self._read = read
        self._used: set[str] = set()
        self._text_left = TEXT_LIMIT

    def decode(self, value: Any) -> Any:
        """Return the value that :meth:`Encoder.encode` was given."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list):
            return [self.decode(part) for part in value]
        match value:
            case {"float": str(text)}:
                return float(text)
            case {"scalar": part, "dtype": str(dtype)}:
                return _dtype(dtype).type(self.decode(part))
            case {"tuple": list(parts)}:
                return tuple(self.decode(part) for part in parts)
            case {"dict": list(pairs)}:
                return {self.decode(key): self.decode(part) for key, part in pairs}
            case {"objects": list(parts)}:
                objects = np.empty(len(parts), object)
                objects[:] = [self.decode(part) for part in parts]
                return objects
            case {"strings": list(texts), "width": int(width)}:
                return self._strings(texts, width)
            case {"array": dict(entry)}:
                return self._array(**entry)
            case {"number": part}:
                with jax.enable_x64(True):
                    return jnp.asarray(self.decode(part))
            case {"jax": dict(entry)}:
                with jax.enable_x64(True):
                    return jnp.asarray(self._array(**entry))
            case {"key": dict(entry), "kind": str(kind)} if kind in KEY_KINDS:
                with jax.enable_x64(True):
                    return jax.random.wrap_key_data(jnp.asarray(self._array(**entry)), impl=kind)
            case {"structure": str(kind), "fields": dict(fields)} if kind in STRUCTURES:
                return STRUCTURES[kind](
                    **{field: self.decode(part) for field, part in fields.items()}
                )
        raise ModelFileError("its settings hold something that this version of bmsvm does not know")

    def _array(self, *, name: str, dtype: str, shape: list[int]) -> np.ndarray:
        if not all(type(length) is int and 0 <= length < 2**40 for length in shape):
            raise ModelFileError("an array has an impossible shape")
        if 0 in shape:
            return np.empty(shape, _dtype(dtype))
        if name in self._used:  # or a short file could ask for any number of copies
            raise ModelFileError("an array is used twice")
        self._used.add(name)
        return self._read(name, _dtype(dtype), tuple(shape))

    def _strings(self, texts: list[Any], width: int) -> np.ndarray:
        good = width >= 1 and all(isinstance(text, str) and len(text) <= width for text in texts)
        self._text_left -= 4 * width * len(texts)
        if not good or self._text_left < 0:
            raise ModelFileError("an array of strings does not fit its own description")
        return np.array(texts, f"U{width}")


def _dtype(name: str) -> np.dtype:
    if name not in STORAGE:
        raise ModelFileError(f"it holds values of the type {name!r}")
    return np.dtype(name)
