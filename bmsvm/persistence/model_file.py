"""Models as files: docs/format.md describes what is in them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bmsvm.estimators.classifier import BMSVMClassifier
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.run import Run
from bmsvm.models.problem import Problem
from bmsvm.persistence.checks import (
    check_fitted,
    check_problem,
    check_samples,
    check_selection,
    state_like,
)
from bmsvm.persistence.structures import STRUCTURES
from bmsvm.storage.chain_state import decode_state, encode_state
from bmsvm.storage.document import (
    Kind,
    attributes_of,
    read_document,
    variables_of,
    write_document,
)
from bmsvm.storage.encoding import Decoder, Encoder, register
from bmsvm.storage.errors import ModelFileError
from bmsvm.storage.netcdf3 import Variable

__all__ = ["FORMAT_VERSION", "load", "save"]

FORMAT_VERSION = 1
"""Rises when files change so that an older bmsvm would not understand them."""

register(*STRUCTURES)

KIND = Kind("bmsvm model", "a bmsvm model", FORMAT_VERSION)

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
    write_document(path, *_contents(model))


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
            "state": encode_state(run.state, encoder),
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
    return attributes_of(KIND, document), variables_of(encoder.arrays)


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
    return read_document(path, KIND, _model)


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
    # Before anything of the size that the problem claims is made: the file is as large, too.
    moved = ".position.columns" if problem.reference is None else ".position.weights"
    rows = problem.n_rows if problem.reference is None else len(problem.factor.eigenvalues)
    if leaves[moved].shape[1:] != (rows, problem.n_columns):
        raise ModelFileError(f"its chains do not fit its data: {moved[1:]}")
    return decode_state(leaves, state_like(sampler, problem, leaves[".rng_key"]), problem)
