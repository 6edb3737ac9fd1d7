"""Fitted models as files: one safetensors file, which runs no code when it is loaded.

The arrays of a model are the tensors of the file. All else is one JSON document in the metadata,
beside a SHA-256 digest of the document and the tensors. docs/format.md describes the format.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors
from sklearn.utils.validation import check_is_fitted

from bmsvm._encoding import check_fields, decode, encode
from bmsvm._version import __version__
from bmsvm.checkpoint import ModelFileError, replacing
from bmsvm.classifier import BMSVMClassifier
from bmsvm.convergence import Diagnosis
from bmsvm.inference import Run
from bmsvm.kernels import Kernel
from bmsvm.machines import AltMSVM, LeastSquaresSVM, MSVMClassifier, OneVsRestSVC, Tuning
from bmsvm.posterior import Posterior
from bmsvm.predictive import PredictiveDistribution
from bmsvm.scaling import Scaling
from bmsvm.selection import Selection

__all__ = ["FORMAT_VERSION", "ModelFileError", "load", "save"]

FORMAT, FORMAT_VERSION = "bmsvm model", 7
"""The version rises when the files of one bmsvm cannot be read by another."""

INPUTS: dict[str, Any] = {
    "classes_": np.ndarray,
    "feature_names_in_": np.ndarray,
    "kept_rows_": np.ndarray | None,
    "lengthscale_": float | np.ndarray | None,
    "n_features_in_": int,
    "n_iter_": int,
    "scaling_": Scaling | None,
}
MACHINE: dict[str, Any] = {
    **INPUTS,
    "coefficients_": np.ndarray,
    "duality_gap_": float,
    "gamma_": float,
    "intercept_": np.ndarray,
    "kernel_": Kernel | str,
    "objective_": float,
    "support_": np.ndarray,
    "support_vectors_": np.ndarray | None,
    "tuning_": Tuning | None,
}
ESTIMATORS: dict[type, dict[str, Any]] = {
    BMSVMClassifier: {
        **INPUTS,
        "diagnostics_": dict[str, Diagnosis],
        "predictive_": PredictiveDistribution,
        "run_": Run,
        "seed_": int,
        "selection_": Selection | None,
    },
    MSVMClassifier: MACHINE,
    AltMSVM: MACHINE,
    LeastSquaresSVM: MACHINE,
    OneVsRestSVC: MACHINE,
}
"""Estimators, and the names and types of the attributes that ``fit`` sets."""

OPTIONAL = {"feature_names_in_", "run_.samples.scores", "run_.samples.weights"}
"""Attributes and draws that not every fitted model has."""

AXES = {
    "classes_": "class",
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
    "predictive_.squares.coefficients": "theta point class",
    "predictive_.squares.intercept": "class",
    **{f"scaling_.{field.name}": "feature" for field in fields(Scaling)},
    "intercept_": "class",
    "coefficients_": "support class",
    "support_vectors_": "support feature",
}
"""Axes of arrays that prediction reads, and lengths. Axes of one name must have one length."""

PACKAGES = ("jax", "numpy", "numpyro", "safetensors", "scikit-learn")
"""Packages whose versions a file records."""


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted model to a file that :func:`load` reads, the chains and their draws included.

    The file is written under a temporary name and renamed when it is complete.

    Parameters
    ----------
    model
        A fitted :class:`bmsvm.BMSVMClassifier`, :class:`bmsvm.MSVMClassifier`,
        :class:`bmsvm.AltMSVM`, :class:`bmsvm.LeastSquaresSVM` or :class:`bmsvm.OneVsRestSVC`. Its
        kernel and its sampler must be those of bmsvm: a callable is code, which a model file does
        not hold.
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
    if isinstance(model, BMSVMClassifier):
        _check_shared(model.run_, model.posterior_)
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
            name: encode(value, f"parameters.{name}", arrays)
            for name, value in model.get_params(deep=False).items()
        },
        "fitted": {name: encode(getattr(model, name), name, arrays) for name in names},
    }
    text = json.dumps(document, allow_nan=False)
    data = to_safetensors(arrays, {"bmsvm": text, "sha256": _digest(text, arrays)})
    with replacing(path) as file:
        file.write(data)


def _check_shared(run: Run, posterior: Posterior) -> None:
    """Require that a posterior is that of the run, whose draws and problem are saved once."""
    same = posterior.problem is run.problem and posterior.samples.keys() == run.samples.keys()
    if not same or any(
        not np.array_equal(draws, posterior.samples[name]) for name, draws in run.samples.items()
    ):
        raise ValueError("posterior_ must have the problem and the draws of run_ to be saved")


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
    check_fields("parameters", parameters, dict.fromkeys(estimator().get_params(deep=False), Any))
    check_fields("attributes", fitted, ESTIMATORS[estimator], OPTIONAL)
    if estimator is BMSVMClassifier:
        run, predictive = fitted["run_"], fitted["predictive_"]
        posterior = replace(predictive.posterior, samples=run.samples, problem=run.problem)
        fitted["predictive_"] = replace(predictive, posterior=posterior)
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
