"""Values and objects of bmsvm as JSON beside named arrays, for model files.

Decoding runs no code of the file: it makes objects of the classes in ``STRUCTURES`` only, after it
has checked the names and types of their fields. docs/format.md describes the encoding.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.distributions import LogUniform, Uniform

from bmsvm._arrays import is_key
from bmsvm._predicting import Predictive
from bmsvm.checkpoint import ModelFileError
from bmsvm.convergence import Diagnosis
from bmsvm.inference import HMC, BMSVMGibbs, BMSVMState, Gibbs, Paper, Run, Table
from bmsvm.inference.adaptation import Adaptation, Moments
from bmsvm.inference.blocks.hamiltonian import Coordinates as HamiltonianCoordinates
from bmsvm.inference.blocks.lengthscale import Memory as LengthscaleMemory
from bmsvm.inference.sweep import SweepState
from bmsvm.kernels import functions
from bmsvm.kernels.factor import Factor
from bmsvm.kernels.low_rank import BasisMap, Fourier, Nystrom
from bmsvm.machines import Grid, Tuning
from bmsvm.models import Hyperparameters, Problem, Sampled, theta
from bmsvm.models.hierarchy import Position
from bmsvm.models.whitening import White
from bmsvm.posterior import Posterior
from bmsvm.prediction.calibration import Calibration
from bmsvm.prediction.squares import LeastSquares
from bmsvm.predictive import PredictiveDistribution
from bmsvm.scaling import Scaling
from bmsvm.selection import ModeCV, ModeSelection, Selection, SquaresCV

__all__ = ["NUMBERS", "STRUCTURES", "check_fields", "decode", "encode"]

SETTINGS: tuple[type, ...] = (
    *(Fourier, Gibbs, Grid, HMC, ModeCV),
    *(Nystrom, Paper, Predictive, Sampled, SquaresCV, Table),
    *(functions.Gaussian, functions.Laplacian, functions.Linear),
    *(functions.Matern32, functions.Matern52),
    *(functions.Polynomial, functions.Precomputed),
)
"""Parameters of estimators, which check what they are given. Those that hold callables are not
among them: these are code."""

RESULTS: tuple[type, ...] = (
    *(BMSVMGibbs, Calibration, Diagnosis, ModeSelection),
    *(LeastSquares, Posterior, PredictiveDistribution, Run, Scaling, Selection, Tuning),
    # the data and the model
    *(BasisMap, Factor, Hyperparameters, LogUniform, Problem, Uniform),
    *(theta.Design, theta.KernelFamily, theta.KernelGrid, theta.KernelOfLengthscale),
    # the state of the chains
    *(Adaptation, BMSVMState, Moments, Position, SweepState, White, theta.KernelPoint),
)
"""What ``fit`` makes."""

STRUCTURES: dict[str, type] = {
    **{structure.__name__: structure for structure in (*SETTINGS, *RESULTS)},
    "HamiltonianCoordinates": HamiltonianCoordinates,
    "LengthscaleMemory": LengthscaleMemory,
}
"""Objects that a file may hold, by the names it has for them: they are what their constructor was
given, and keep it under the same names."""

NAMES = {structure: name for name, structure in STRUCTURES.items()}

NOT_SAVED: dict[type, dict[str, Any]] = {
    BMSVMGibbs: {"model": None},  # of a block, which cannot be saved
    LogUniform: {"validate_args": None},
    Posterior: {"samples": {}, "problem": None},  # those of the run
    Run: {"store": None},
    Uniform: {"validate_args": None},
}
"""Arguments that are not in the file, and their values on loading."""

TYPES: dict[tuple[type, str], Any] = {
    (BMSVMGibbs, "given"): types.NoneType,
    (BMSVMGibbs, "kernel"): functions.Kernel | str,
    (Posterior, "kernel"): functions.Kernel | str,
    (theta.KernelFamily, "build"): theta.KernelOfLengthscale,
    (theta.KernelFamily, "prior"): dict[str, Uniform | LogUniform],
}
"""Types of arguments whose annotation allows more than a file does."""

NUMBERS = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""Types of tensors and of NumPy numbers."""

DATES = re.compile(r"(datetime|timedelta)64(\[\d*\w+\])?", re.ASCII)
KEY_KINDS = ("threefry2x32", "rbg", "unsafe_rbg")


# Values --------------------------------------------------------------------------------------


def encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON, and add the arrays that the JSON refers to by name to ``arrays``.

    None, booleans, finite numbers, strings and lists are themselves. All else is an object whose
    first key says what it is; see docs/format.md. ``name`` begins the names of the arrays.
    """
    match value:
        case None | bool() | str():
            return str(value) if isinstance(value, str) else value
        case jax.Array() if is_key(value):
            data = _stored(np.asarray(jax.random.key_data(value)), name, arrays)
            return {"key": data, "kind": str(jax.random.key_impl(value))}
        case jax.Array() if value.aval.weak_type and value.ndim == 0:  # a Python number, to JAX
            return {"number": encode(value.item(), name, arrays)}
        case jax.Array():
            return {"jax": _stored(np.asarray(value), name, arrays)}
        case np.generic() if value.dtype.name in NUMBERS:
            return {"scalar": encode(value.item(), name, arrays), "dtype": value.dtype.name}
        case np.ndarray():
            return _encode_numpy(value, name, arrays)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        case Mapping():
            return {
                "dict": [
                    [encode(key, name, arrays), encode(part, f"{name}.{key}", arrays)]
                    for key, part in value.items()
                ]
            }
    if type(value) in (list, tuple):
        parts = [encode(part, f"{name}.{i}", arrays) for i, part in enumerate(value)]
        return parts if type(value) is list else {"tuple": parts}
    structure: Any = type(value)
    if structure in NAMES:
        fields = {
            field: encode(getattr(value, field), f"{name}.{field}", arrays)
            for field in _types_of(structure)
        }
        return {"structure": NAMES[structure], "fields": fields}
    raise _cannot_save(name, f"{value!r:.80}, a {type(value).__name__}")


def _cannot_save(name: str, what: str) -> ValueError:
    return ValueError(
        f"{name} cannot be saved: it is {what}. A model file holds numbers, strings, arrays and "
        "objects of bmsvm, and no code: give kernel and sampler by name or as an object of bmsvm, "
        "folds and random_state as integers; or pickle the model"
    )


def _encode_numpy(value: np.ndarray, name: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if value.dtype.kind == "O" and value.ndim == 1:
        if any(not isinstance(part, str | int | float | None) for part in value):
            raise _cannot_save(name, "an array of objects that are not strings or numbers")
        return {"objects": [encode(part, name, arrays) for part in value]}
    if value.dtype.kind == "U":  # code points along a last axis
        native = np.ascontiguousarray(value, value.dtype.newbyteorder("="))
        codes = native.view(np.uint32).reshape(*value.shape, value.dtype.itemsize // 4)
        return {"text": _stored(codes, name, arrays)}
    if value.dtype.kind in "mM":
        return {"array": _stored(value.view(np.int64), name, arrays), "dtype": value.dtype.name}
    return {"array": _stored(value, name, arrays)}


def _stored(value: np.ndarray, name: str, arrays: dict[str, np.ndarray]) -> str:
    """Put an array of numbers or booleans among others, and return its name there."""
    if value.dtype.name not in NUMBERS:
        raise _cannot_save(name, f"an array of {value.dtype}")
    label = re.sub(r"[^\w.]+", "_", name, flags=re.ASCII)[:200]
    while label in arrays:
        label += "_"
    arrays[label] = np.ascontiguousarray(value, value.dtype.newbyteorder("=")).reshape(value.shape)
    return label


def decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the value that :func:`encode` was given. Every array must be used exactly once."""
    unused = dict(arrays)
    with jax.enable_x64(True):
        decoded = _decode(value, unused)
    if unused:
        raise ModelFileError(f"it has the tensor {min(unused)!r:.60}, which belongs to nothing")
    return decoded


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_decode(part, arrays) for part in value]
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"scalar": part, "dtype": str(dtype)} if dtype in NUMBERS:
            return np.dtype(dtype).type(_number(part))
        case {"tuple": list(parts)}:
            return tuple(_decode(part, arrays) for part in parts)
        case {"dict": list(pairs)}:
            return {_decode(key, arrays): _decode(part, arrays) for key, part in pairs}
        case {"objects": list(parts)}:
            objects = np.empty(len(parts), object)
            objects[:] = [_decode(part, arrays) for part in parts]
            return objects
        case {"text": str(name)}:
            return _text(_taken(name, arrays))
        case {"array": str(name), "dtype": str(dtype)} if DATES.fullmatch(dtype):
            return _taken(name, arrays).view(dtype)
        case {"array": str(name)} if len(value) == 1:
            return _taken(name, arrays)
        case {"number": part}:
            return jax.device_put(_number(part))
        case {"jax": str(name)}:
            return jax.device_put(_taken(name, arrays))
        case {"key": str(name), "kind": str(kind)} if kind in KEY_KINDS:
            return jax.random.wrap_key_data(jax.device_put(_taken(name, arrays)), impl=kind)
        case {"structure": str(name), "fields": dict(fields)} if name in STRUCTURES:
            decoded = {field: _decode(part, arrays) for field, part in fields.items()}
            return _structure(STRUCTURES[name], decoded)
    raise ModelFileError(f"it holds {value!r:.60}, which this bmsvm does not know")


def _taken(name: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Return an array, once: or a short file could ask for any number of copies."""
    array = arrays.pop(name, None)
    if array is None or array.dtype.name not in NUMBERS:
        raise ModelFileError(f"its tensor {name!r:.60} is missing, used twice or not of numbers")
    return array


def _text(codes: np.ndarray) -> np.ndarray:
    """Return the strings of code points, shape (..., width)."""
    if codes.dtype != np.uint32 or codes.shape[-1] == 0 or np.any(codes > 0x10FFFF):
        raise ModelFileError("it has strings that are not code points")
    return np.ascontiguousarray(codes).view(f"U{codes.shape[-1]}")[..., 0]


def _number(value: Any) -> bool | int | float:
    number = _decode(value, {})
    if not isinstance(number, bool | int | float):
        raise ModelFileError(f"it holds {number!r:.60} in place of a number")
    return number


# Structures ----------------------------------------------------------------------------------


@functools.cache
def _types_of(structure: Any) -> dict[str, Any]:
    """Names and types of the saved arguments of a constructor; settings check types themselves."""
    hints = {**typing.get_type_hints(structure.__init__), **typing.get_type_hints(structure)}
    if structure in SETTINGS:
        hints = {}
    return {
        name: TYPES.get((structure, name), hints.get(name, Any))
        for name in inspect.signature(structure).parameters
        if name not in NOT_SAVED.get(structure, {})
    }


def _structure(structure: type, fields: dict[str, Any]) -> Any:
    """Make a structure of its saved arguments, whose names and types must be right."""
    check_fields(structure.__name__, fields, _types_of(structure))
    return structure(**fields, **NOT_SAVED.get(structure, {}))


def check_fields(
    what: str,
    found: Mapping[str, Any],
    expected: Mapping[str, Any],
    optional: Collection[str] = (),
) -> None:
    """Require fields of the expected names and types; those of ``optional`` may be missing."""
    wrong = (found.keys() - expected.keys()) | (expected.keys() - found.keys() - set(optional))
    if wrong:
        raise ModelFileError(f"its {what} and those of this bmsvm differ in {min(wrong)!r:.60}")
    for name, value in found.items():
        if not _is_instance(value, expected[name]):
            kind = type(value).__name__
            raise ModelFileError(f"{name} of its {what} is a {kind}, not {expected[name]}")


def _is_instance(value: Any, expected: Any) -> bool:
    """Whether a value is of an annotated type; numbers may be arrays without axes."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if expected is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_is_instance(value, each) for each in arguments)
    if origin is typing.Literal:
        return isinstance(value, str) and value in arguments
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(
            _is_instance(part, arguments[1]) for part in value.values()
        )
    if expected in (jax.Array, np.ndarray):
        return isinstance(value, jax.Array | np.ndarray)
    if expected is bool:
        return isinstance(value, bool | np.bool_)
    if expected in (int, float):
        kinds = "iu" if expected is int else "iuf"
        return np.ndim(value) == 0 and np.asarray(value).dtype.kind in kinds
    return isinstance(value, origin or expected)
