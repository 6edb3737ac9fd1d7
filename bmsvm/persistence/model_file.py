"""Models as files: docs/format.md describes what is in them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

import bmsvm
from bmsvm.estimators.classifier import BMSVMClassifier
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.run import Run
from bmsvm.models.problem import Problem
from bmsvm.persistence.atomic import replacing
from bmsvm.persistence.checks import (
    check_fitted,
    check_problem,
    check_samples,
    check_selection,
    state_like,
)
from bmsvm.persistence.encoding import STORAGE, Decoder, Encoder
from bmsvm.persistence.errors import ModelFileError
from bmsvm.persistence.netcdf3 import Header, Variable, read_header, write

__all__ = ["FORMAT_VERSION", "load", "save"]

TITLE = "bmsvm model"
FORMAT_VERSION = 1
"""Rises when files change so that an older bmsvm would not understand them."""

DIGEST_SIZE = 64
CHUNK = 2**20

ESTIMATORS = {estimator.__name__: estimator for estimator in (BMSVMClassifier,)}

FITTED = (
    "_kept",
    "calibration_",
    "classes_",
    "diagnostics_",
    "feature_names_in_",
    "features_",
    "input_mean_",
    "input_scale_",
    "kernel_",
    "lengthscale_",
    "n_features_in_",
    "n_iter_",
    "seed_",
    "training_rows_",
)
"""What ``fit`` learns, apart from the chains."""

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


# Saving --------------------------------------------------------------------------------------


def save(model: BMSVMClassifier, path: str | os.PathLike[str]) -> None:
    """Save a fitted model, chains and all; see :func:`load`.

    The file is replaced whole or not at all.

    Parameters
    ----------
    model
        A fitted classifier. Its kernel has a name: a callable would be a program, which a model
        file does not hold.
    path
        Where to write, ``model.nc`` say.
    """
    check_is_fitted(model, "run_")
    attributes, variables = _contents(model)
    with replacing(path) as file:
        write(file, attributes, variables)
        size = file.tell()
        file.seek(0)
        header = read_header(file, size)
        digest = _digest(file, header)
        file.seek(header.attributes["sha256"].begin)
        file.write(digest.encode())


def _contents(model: BMSVMClassifier) -> tuple[dict[str, str | int], dict[str, Variable]]:
    """Return the attributes and the variables of a model's file, the digest left blank."""
    parameters, run = model.get_params(deep=False), model.run_
    for kernel in (parameters["kernel"], run.sampler._settings["kernel"]):
        if not isinstance(kernel, str):
            raise ValueError(
                "kernel must be one that has a name, such as 'gaussian', for the model to be "
                f"saved; got {kernel!r}, which a file that runs no code cannot hold: pickle the "
                "model instead"
            )
    if not isinstance(model.random_state, int | np.integer | None):
        raise ValueError(
            "random_state must be an integer or None for the model to be saved; got "
            f"{model.random_state!r}: call set_params(random_state=None) first, which changes no "
            "prediction"
        )
    if run.sampler._preset is None:
        raise ValueError("run_.sampler must be one of a preset for the model to be saved")
    encoder = Encoder()
    document = {
        "estimator": type(model).__name__,
        "parameters": {
            name: encoder.encode(value, f"parameter_{name}") for name, value in parameters.items()
        },
        "fitted": {
            name: encoder.encode(getattr(model, name), name)
            for name in FITTED
            if hasattr(model, name)
        },
        "run": {
            "samples": {
                name: encoder.encode(value, f"draws_{name}") for name, value in run.samples.items()
            },
            "problem": encoder.encode(run.state.problem, "problem"),
            "state": {
                name: encoder.encode(leaf, f"state{name}")
                for name, leaf in _named_leaves(run.state).items()
            },
            "sampler": {
                name: encoder.encode(value, f"sampler_{name}")
                for name, value in {**run.sampler._settings, "preset": run.sampler._preset}.items()
            },
            "selection": encoder.encode(run.sampler.lengthscale_selection, "selection"),
            "thinning": encoder.encode(run.thinning, "thinning"),
            "interrupted": bool(run.interrupted),
            "seconds": float(run.seconds),
        },
    }
    attributes: dict[str, str | int] = {
        "title": TITLE,
        "format_version": FORMAT_VERSION,
        "bmsvm_version": bmsvm.__version__,
        "sha256": "0" * DIGEST_SIZE,
        "settings": json.dumps(document, allow_nan=False),
    }
    return attributes, _variables(encoder.arrays)


def _named_leaves(state: BMSVMState) -> dict[str, Any]:
    """Leaves of the state by their path, the problem left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(_without_problem(state))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _without_problem(state: BMSVMState) -> BMSVMState:
    return state._replace(problem=None)  # type: ignore[arg-type]


def _variables(arrays: dict[str, np.ndarray]) -> dict[str, Variable]:
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


def _digest(file: BinaryIO, header: Header) -> str:
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


# Loading -------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> BMSVMClassifier:
    """Load a model that was saved: it predicts the same, and ``fit_more`` continues its chains.

    Loading runs nothing that is in the file.

    Parameters
    ----------
    path
        A file that ``save`` has written.

    Raises
    ------
    ModelFileError
        If the file is not a model, is truncated or damaged, or was written by a later version.
    OSError
        If there is no such file, or it cannot be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ModelFileError(f"cannot load {os.fspath(path)!r}: it is not a file")
    try:
        with open(path, "rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except OSError:
        raise
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {os.fspath(path)!r}: {error}") from None
    except Exception as error:  # what a stranger's file can bring about has no list
        raise ModelFileError(
            f"cannot load {os.fspath(path)!r}: its content makes no sense "
            f"({type(error).__name__}: {error})"
        ) from error


def _read(file: BinaryIO, size: int) -> BMSVMClassifier:
    header = read_header(file, size)
    _check_header(header)
    if _digest(file, header) != header.attributes["sha256"].value:
        raise ModelFileError("it is damaged: its content does not match its checksum")

    document = json.loads(str(header.attributes["settings"].value))
    return _model(document, Decoder(_reader(file, header)))


def _reader(
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


def _check_header(header: Header) -> None:
    values = {name: attribute.value for name, attribute in header.attributes.items()}
    version = values.get("format_version")
    if values.get("title") != TITLE or not isinstance(version, int):
        raise ModelFileError("it is a netCDF file, but not a bmsvm model")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"it has format version {version}, written by bmsvm {values.get('bmsvm_version')!s:.40}"
            f"; bmsvm {bmsvm.__version__} reads up to version {FORMAT_VERSION}: upgrade bmsvm"
        )
    texts = [values.get(name) for name in ("sha256", "settings")]
    if version < 1 or not all(isinstance(text, str) for text in texts):
        raise ModelFileError("its header is damaged")
    if len(str(texts[0])) != DIGEST_SIZE:
        raise ModelFileError("its header is damaged")


def _model(document: dict[str, Any], decoder: Decoder) -> BMSVMClassifier:
    estimator = ESTIMATORS.get(document["estimator"])
    if estimator is None:
        raise ModelFileError("it is a model of a kind that this version of bmsvm does not know")
    parameters = _decoded(document["parameters"], decoder)
    unknown = set(parameters) - set(estimator().get_params(deep=False))
    if unknown:
        raise ModelFileError(
            f"it has the parameter {min(unknown)!r:.60}, which this version of bmsvm does not know"
        )
    model = estimator(**parameters)
    for name, value in _decoded(document["fitted"], decoder).items():
        if name not in FITTED:
            raise ModelFileError(f"it has {name!r:.60}, which this version of bmsvm does not know")
        setattr(model, name, value)
    model.run_ = _run(document["run"], decoder)
    check_fitted(model)
    return model


def _decoded(entries: dict[str, Any], decoder: Decoder) -> dict[str, Any]:
    return {name: decoder.decode(value) for name, value in entries.items()}


def _run(document: dict[str, Any], decoder: Decoder) -> Run:
    settings = _decoded(document["sampler"], decoder)
    if not settings.keys() <= {*BMSVMGibbs()._settings, "preset"}:
        raise ModelFileError("its sampler has settings that this version of bmsvm does not know")
    sampler = BMSVMGibbs(**settings)
    sampler.lengthscale_selection = decoder.decode(document["selection"])
    check_selection(sampler.lengthscale_selection)
    problem = decoder.decode(document["problem"])
    check_problem(problem, sampler)
    run = Run(
        samples=_decoded(document["samples"], decoder),
        state=_state(_decoded(document["state"], decoder), sampler, problem),
        sampler=sampler,
        thinning=decoder.decode(document["thinning"]),
        interrupted=bool(document["interrupted"]),
        seconds=float(document["seconds"]),
    )
    if not isinstance(run.thinning, int | np.integer) or run.thinning < 1:
        raise ModelFileError("thinning is not a number of sweeps")
    check_samples(run)
    return run


def _state(leaves: dict[str, Any], sampler: BMSVMGibbs, problem: Problem) -> BMSVMState:
    """Put the leaves of a state where the sampler would have them."""
    # Before anything of the size that the problem claims is made: the file is as large, too.
    moved = ".position.columns" if problem.reference is None else ".position.weights"
    rows = problem.n_rows if problem.reference is None else len(problem.factor.eigenvalues)
    if leaves[moved].shape[1:] != (rows, problem.n_columns):
        raise ModelFileError(f"its chains do not fit its data: {moved[1:]}")
    template = _without_problem(state_like(sampler, problem, leaves[".rng_key"]))
    like = _named_leaves(template)
    if leaves.keys() != like.keys():
        raise ModelFileError("its chains are of another sampler than this version of bmsvm has")
    for name, leaf in leaves.items():
        if (leaf.shape, leaf.dtype) != (like[name].shape, like[name].dtype):
            raise ModelFileError(f"its chains do not fit its data: {name[1:]}")
    state = jax.tree.unflatten(jax.tree.structure(template), [leaves[name] for name in like])
    return state._replace(problem=problem)
