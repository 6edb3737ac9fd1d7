"""Fitted models as files: one safetensors file, which runs no code when it is loaded.

The arrays of a model are the tensors of the file. All else is one JSON document in the metadata,
beside a SHA-256 digest of the document and the tensors. docs/format.md describes the format.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import re
import stat
import types
import typing
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors
from sklearn.utils.validation import check_is_fitted

from bmsvm._version import __version__
from bmsvm.checkpoint import ModelFileError, replacing
from bmsvm.estimators.classifier import BMSVMClassifier
from bmsvm.estimators.convergence import Diagnosis
from bmsvm.features import FeatureMap, LowRank
from bmsvm.inference.blocks.collapsed import Memory as CollapsedMemory
from bmsvm.inference.blocks.collapsed import Point
from bmsvm.inference.blocks.hamiltonian import Coordinates as HamiltonianCoordinates
from bmsvm.inference.blocks.hamiltonian import Memory as HamiltonianMemory
from bmsvm.inference.blocks.lengthscale import Memory as LengthscaleMemory
from bmsvm.inference.blocks.transport import Memory as TransportMemory
from bmsvm.inference.calibration import Calibration
from bmsvm.inference.cross_validation import CrossValidation
from bmsvm.inference.evidence import EvidenceMaximum
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.modes import ModeCrossValidation
from bmsvm.inference.run import Run
from bmsvm.inference.select import Selection
from bmsvm.kernels import Factor
from bmsvm.machines import AltMSVM, MSVMClassifier, OneVsRestSVC, Tuning
from bmsvm.models.collapsed import Coordinates as CollapsedCoordinates
from bmsvm.models.computed_basis import ComputedBasis
from bmsvm.models.hierarchy import Position
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.models.kernel_parameters import Design, KernelGrid
from bmsvm.models.problem import Problem
from bmsvm.models.reference import Reference
from bmsvm.models.whitening import White
from bmsvm.rows import PiecewiseRows

__all__ = ["FORMAT_VERSION", "ModelFileError", "decode", "encode", "load", "save"]

FORMAT, FORMAT_VERSION = "bmsvm model", 2
"""The version rises when the files of one bmsvm cannot be read by another."""

# What is saved -------------------------------------------------------------------------------

INPUTS: dict[str, Any] = {
    "_kept": np.ndarray | None,
    "classes_": np.ndarray,
    "feature_names_in_": np.ndarray,
    "input_mean_": np.ndarray | None,
    "input_scale_": np.ndarray | None,
    "kernel_": str,
    "lengthscale_": float | np.ndarray | list,
    "n_features_in_": int,
    "n_iter_": int,
}
MACHINE: dict[str, Any] = {
    **INPUTS,
    "_support": np.ndarray,
    "coefficients_": np.ndarray,
    "duality_gap_": float,
    "gamma_": float,
    "intercept_": np.ndarray,
    "objective_": float,
    "support_": np.ndarray,
    "support_vectors_": np.ndarray | None,
    "tuning_": Tuning | None,
}
ESTIMATORS: dict[type, dict[str, Any]] = {
    BMSVMClassifier: {
        **INPUTS,
        "calibration_": Calibration,
        "diagnostics_": dict,
        "features_": str,
        "run_": Run,
        "seed_": int,
        "training_rows_": np.ndarray,
    },
    MSVMClassifier: MACHINE,
    AltMSVM: MACHINE,
    OneVsRestSVC: MACHINE,
}
"""Estimators, and the names and types of the attributes that ``fit`` sets."""

OPTIONAL = {"feature_names_in_", "run_.samples.scores"}
"""Attributes and draws that not every fitted model has."""

STRUCTURES: dict[str, type] = {
    "BMSVMGibbs": BMSVMGibbs,
    "BMSVMState": BMSVMState,
    "Calibration": Calibration,
    "CollapsedCoordinates": CollapsedCoordinates,
    "CollapsedMemory": CollapsedMemory,
    "CollapsedPoint": Point,
    "ComputedBasis": ComputedBasis,
    "CrossValidation": CrossValidation,
    "Design": Design,
    "Diagnosis": Diagnosis,
    "EvidenceMaximum": EvidenceMaximum,
    "Factor": Factor,
    "FeatureMap": FeatureMap,
    "HamiltonianCoordinates": HamiltonianCoordinates,
    "HamiltonianMemory": HamiltonianMemory,
    "Hyperparameters": Hyperparameters,
    "KernelGrid": KernelGrid,
    "LengthscaleMemory": LengthscaleMemory,
    "LowRank": LowRank,
    "ModeCrossValidation": ModeCrossValidation,
    "Position": Position,
    "Problem": Problem,
    "Reference": Reference,
    "Run": Run,
    "TransportMemory": TransportMemory,
    "Tuning": Tuning,
    "White": White,
}
"""Dataclasses and NamedTuples that a file may hold, by the names it has for them."""

NAMES = {structure: name for name, structure in STRUCTURES.items()}

NOT_SAVED = {(Run, "store"), (Run, "mesh")}
"""Fields that stay at their default in a loaded model."""

TYPES: dict[tuple[type, str], Any] = {
    (Factor, "basis"): jax.Array | ComputedBasis,
    (Position, "columns"): jax.Array | None,
}
"""Types of fields whose annotation says less than they may hold."""

AXES = {
    "classes_": "class",
    "input_mean_": "feature",
    "input_scale_": "feature",
    "n_features_in_": "feature",
    "run_.samples.intercept": "chain draw class",
    "run_.samples.noise_variance": "chain draw",
    "run_.samples.precision": "chain draw",
    "run_.samples.scores": "chain draw row class",
    "run_.samples.weights": "chain draw basis column",
    "run_.state.problem.factor.basis": "row basis",
    "run_.state.problem.factor.eigenvalues": "basis",
    "run_.state.problem.labels": "row",
    "run_.state.problem.n_classes": "class",
    "intercept_": "class",
    "coefficients_": "support class",
    "support_vectors_": "support feature",
}
"""Axes of arrays that prediction reads, and lengths. Axes of one name must have one length."""

PACKAGES = ("jax", "numpy", "numpyro", "safetensors", "scikit-learn")
"""Packages whose versions a file records."""

NUMBERS = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""Types of tensors and of NumPy numbers."""

DATES = re.compile(r"(datetime|timedelta)64(\[\d*\w+\])?", re.ASCII)
KEY_KINDS = ("threefry2x32", "rbg", "unsafe_rbg")
SELECTION = "lengthscale_selection"


# Models --------------------------------------------------------------------------------------


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted model to a file that :func:`load` reads, the chains and their draws included.

    The file is written under a temporary name and renamed when it is complete.

    Parameters
    ----------
    model
        A fitted :class:`bmsvm.BMSVMClassifier`, :class:`bmsvm.MSVMClassifier`,
        :class:`bmsvm.AltMSVM` or :class:`bmsvm.OneVsRestSVC`. Its kernel must have a name: a
        callable is code, which a model file does not hold.
    path
        Where to write, such as ``"model.bmsvm"``.

    Raises
    ------
    ValueError
        If a parameter or attribute of the model cannot be saved.
    OSError
        If the file cannot be written. An existing file is then unchanged.
    """
    attributes = ESTIMATORS.get(type(model))
    if attributes is None:
        known = ", ".join(estimator.__name__ for estimator in ESTIMATORS)
        raise ValueError(f"model must be one of {known}; got {model!r}")
    check_is_fitted(model, sorted(attributes.keys() - OPTIONAL))
    names = [name for name in attributes if hasattr(model, name)]
    arrays: dict[str, np.ndarray] = {}
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": {
            "bmsvm": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
        "class": type(model).__name__,
        "parameters": {
            name: _encode(value, f"parameters.{name}", arrays)
            for name, value in model.get_params(deep=False).items()
        },
        "fitted": {name: _encode(getattr(model, name), name, arrays) for name in names},
    }
    text = json.dumps(document, allow_nan=False)
    data = to_safetensors(arrays, {"bmsvm": text, "sha256": _digest(text, arrays)})
    with replacing(path) as file:
        file.write(data)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model that :func:`save` wrote: it predicts the same, and ``fit_more`` resumes it.

    Loading runs no code of the file.

    Raises
    ------
    ModelFileError
        If the file is not a model, is truncated or damaged, or has another format version.
    OSError
        If there is no such file, or it cannot be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ModelFileError(f"cannot load {os.fspath(path)!r}: it is not a regular file")
    try:
        return _model(*_read(path))
    except OSError:
        raise
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {os.fspath(path)!r}: {error}") from None
    except Exception as error:  # a forged file can raise anything
        raise ModelFileError(
            f"cannot load {os.fspath(path)!r}: its content is invalid "
            f"({type(error).__name__}: {error!s:.200})"
        ) from error


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the document and the arrays of a file whose digest is right."""
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            document = _parsed(metadata)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ModelFileError(f"it is truncated, or not a safetensors file ({error})") from None
    if _digest(metadata["bmsvm"], arrays) != metadata.get("sha256"):
        raise ModelFileError("it is damaged: its content does not match its digest")
    return document, arrays


def _parsed(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the document, of a format version that this bmsvm reads."""
    document = json.loads(metadata.get("bmsvm", "null"))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError("it is a safetensors file, but not a bmsvm model")
    found = document.get("format_version")
    if found != FORMAT_VERSION:
        raise ModelFileError(
            f"it has format version {found!r:.20} and was written by bmsvm "
            f"{document.get('versions', {}).get('bmsvm')!s:.20}; bmsvm {__version__} reads version "
            f"{FORMAT_VERSION}: load it with the bmsvm that wrote it, or fit the model again"
        )
    return document


def _digest(document: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a document and of the names, types, shapes and bytes of arrays."""
    digest = hashlib.sha256(f"{len(document)} {document}".encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _model(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    known = {estimator.__name__: estimator for estimator in ESTIMATORS}
    if document["class"] not in known:
        raise ModelFileError(f"it is a {document['class']!r:.60}, which this bmsvm does not know")
    estimator = known[document["class"]]
    parameters, fitted = decode(
        [{"dict": list(document[part].items())} for part in ("parameters", "fitted")], arrays
    )
    _check_fields("parameters", parameters, dict.fromkeys(estimator().get_params(deep=False), Any))
    _check_fields("attributes", fitted, ESTIMATORS[estimator])
    model = estimator(**parameters)
    for name, value in fitted.items():
        setattr(model, name, value)
    _check_axes(model)
    return model


def _check_axes(model: Any) -> None:
    """Require that the axes of one name have one length, by ``AXES``."""
    lengths: dict[str, int] = {}
    for path, axes in AXES.items():
        value = model
        for part in path.split("."):
            if isinstance(value, Mapping):
                value = value.get(part) if path in OPTIONAL else value[part]
            else:
                value = getattr(value, part, None)
        shape = (value,) if isinstance(value, int) else getattr(value, "shape", None)
        if shape is None:
            continue
        names = axes.split()
        fits = len(shape) == len(names)
        if not fits or any(
            lengths.setdefault(*pair) != pair[1] for pair in zip(names, shape, strict=True)
        ):
            raise ModelFileError(f"its {path} has shape {shape}, which does not fit other arrays")


def _check_fields(what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Require fields of the expected names and types; those in ``OPTIONAL`` may be missing."""
    wrong = (found.keys() - expected.keys()) | (expected.keys() - found.keys() - OPTIONAL)
    if wrong:
        raise ModelFileError(f"its {what} and those of this bmsvm differ in {min(wrong)!r:.60}")
    for name, value in found.items():
        if not _is_instance(value, expected[name]):
            kind = type(value).__name__
            raise ModelFileError(f"{name} of its {what} is a {kind}, not a {expected[name]}")


def _is_instance(value: Any, expected: Any) -> bool:
    """Whether a value is of an annotated type; numbers may be arrays without axes."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if expected is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_is_instance(value, each) for each in arguments)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(
            _is_instance(part, arguments[1]) for part in value.values()
        )
    if expected in (jax.Array, np.ndarray):
        return isinstance(value, jax.Array | np.ndarray)
    if expected in (int, float):
        kinds = "iu" if expected is int else "iuf"
        return np.ndim(value) == 0 and np.asarray(value).dtype.kind in kinds
    return isinstance(value, origin or expected)


# Values --------------------------------------------------------------------------------------


def encode(value: Any, name: str = "value") -> tuple[Any, dict[str, np.ndarray]]:
    """Return a value as JSON and the arrays that the JSON refers to by name.

    None, booleans, finite numbers, strings and lists are themselves. All else is an object whose
    first key says what it is; see docs/format.md. ``name`` begins the names of the arrays.
    """
    arrays: dict[str, np.ndarray] = {}
    return _encode(value, name, arrays), arrays


def decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the value that :func:`encode` was given. Every array must be used exactly once."""
    unused = dict(arrays)
    with jax.enable_x64(True):
        decoded = _decode(value, unused)
    if unused:
        raise ModelFileError(f"it has the tensor {min(unused)!r:.60}, which belongs to nothing")
    return decoded


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    match value:
        case None | bool() | str():
            return str(value) if isinstance(value, str) else value
        case jax.Array() if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            data = _stored(np.asarray(jax.random.key_data(value)), name, arrays)
            return {"key": data, "kind": str(jax.random.key_impl(value))}
        case jax.Array() if value.aval.weak_type and value.ndim == 0:  # a Python number, to JAX
            return {"number": _encode(value.item(), name, arrays)}
        case jax.Array():
            return {"jax": _stored(np.asarray(value), name, arrays)}
        case np.generic() if value.dtype.name in NUMBERS:
            return {"scalar": _encode(value.item(), name, arrays), "dtype": value.dtype.name}
        case np.ndarray() | PiecewiseRows():
            return _encode_numpy(np.asarray(value), name, arrays)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        case Mapping():
            return {
                "dict": [
                    [_encode(key, name, arrays), _encode(part, f"{name}.{key}", arrays)]
                    for key, part in value.items()
                ]
            }
    if type(value) in (list, tuple):
        parts = [_encode(part, f"{name}.{i}", arrays) for i, part in enumerate(value)]
        return parts if type(value) is list else {"tuple": parts}
    if type(value) in NAMES:
        fields = {
            field: _encode(part, f"{name}.{field}", arrays)
            for field, part in _fields(value, name).items()
        }
        return {"structure": NAMES[type(value)], "fields": fields}
    raise _cannot_save(name, f"{value!r:.80}, a {type(value).__name__}")


def _cannot_save(name: str, what: str) -> ValueError:
    return ValueError(
        f"{name} cannot be saved: it is {what}. A model file holds numbers, strings, arrays and "
        "settings of bmsvm, and no code: give a kernel by its name and random_state as an integer, "
        "or pickle the model"
    )


def _encode_numpy(value: np.ndarray, name: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if value.dtype.kind == "O" and value.ndim == 1:
        if any(not isinstance(part, str | int | float | None) for part in value):
            raise _cannot_save(name, "an array of objects that are not strings or numbers")
        return {"objects": [_encode(part, name, arrays) for part in value]}
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
            return jnp.asarray(_number(part))
        case {"jax": str(name)}:
            return jnp.asarray(_taken(name, arrays))
        case {"key": str(name), "kind": str(kind)} if kind in KEY_KINDS:
            return jax.random.wrap_key_data(jnp.asarray(_taken(name, arrays)), impl=kind)
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


def _types_of(structure: type) -> dict[str, Any]:
    """Names and types of the saved fields of a dataclass or NamedTuple."""
    hints = typing.get_type_hints(structure)
    if dataclasses.is_dataclass(structure):
        names = [field.name for field in dataclasses.fields(structure)]
    else:
        names = structure._fields  # type: ignore[attr-defined]
    return {
        name: TYPES.get((structure, name), hints[name])
        for name in names
        if (structure, name) not in NOT_SAVED
    }


def _fields(value: Any, name: str) -> dict[str, Any]:
    """Return the saved fields of a structure."""
    if isinstance(value, BMSVMGibbs):
        if value.settings["preset"] is None:
            raise _cannot_save(name, "a sampler of blocks that are not those of a preset")
        return {**value.settings, SELECTION: value.lengthscale_selection}
    return {field: getattr(value, field) for field in _types_of(type(value))}


def _structure(structure: type, fields: dict[str, Any]) -> Any:
    """Make a structure of its saved fields, whose names and types must be right."""
    if structure is BMSVMGibbs:
        settings = dict.fromkeys(BMSVMGibbs().settings, Any)
        _check_fields("sampler", fields, {**settings, SELECTION: Selection | None})
        sampler = BMSVMGibbs(**{name: fields[name] for name in settings})
        sampler.lengthscale_selection = fields[SELECTION]
        return sampler
    _check_fields(structure.__name__, fields, _types_of(structure))
    return structure(**fields)
