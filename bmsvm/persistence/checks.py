"""Whether the parts of a model fit together."""

from __future__ import annotations

from typing import Any, cast

import jax
import numpy as np

from bmsvm.features import KINDS, FeatureMap
from bmsvm.inference.calibration import Calibration
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.run import PREDICTIVE, Run, values_of
from bmsvm.inference.select import Selection
from bmsvm.kernels import NAMED, STATIONARY, Factor
from bmsvm.models.computed_basis import ComputedBasis
from bmsvm.models.couplings import COUPLINGS
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.models.kernel_parameters import Design, KernelGrid
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.models.problem import Problem
from bmsvm.models.reference import Reference
from bmsvm.storage.errors import ModelFileError

__all__ = ["check_fitted", "check_problem", "check_samples", "check_selection", "state_like"]


def _require(good: bool, what: str) -> None:
    if not good:
        raise ModelFileError(f"its parts do not fit together: {what}")


def _require_array(array: Any, shape: tuple[int, ...], dtype: str, what: str) -> None:
    """Require a finite array of a shape and a type."""
    good = isinstance(array, np.ndarray | jax.Array) and array.dtype == dtype
    _require(
        good and array.shape == shape and bool(np.isfinite(np.asarray(array)).all()),
        f"{what} should be {dtype} numbers of shape {shape}",
    )


def check_problem(problem: Any, sampler: BMSVMGibbs) -> None:
    """Require a problem whose arrays agree with each other and with the sampler's settings."""
    _require(isinstance(problem, Problem), "the problem")
    settings = sampler._settings
    _require(isinstance(settings["hyperparameters"], Hyperparameters), "hyperparameters")
    _require(problem.coupling in COUPLINGS, "coupling")
    _require(problem.likelihood in LIKELIHOODS, "likelihood")
    for name in ("coupling", "likelihood"):
        _require(getattr(problem, name) == settings[name], name)
    n = problem.labels.shape[0]
    _require_array(problem.labels, (n,), "int32", "the labels")
    classes, known = problem.n_classes, np.unique(problem.labels)
    _require(type(classes) is int and 2 <= classes == len(known) <= n, "the number of classes")
    _require(known[0] == 0 and known[-1] == classes - 1, "the labels")
    parts = problem.row_parts
    _require(type(parts) is int and parts >= 1 and n % parts == 0, "the parts of the rows")
    if problem.row_weights is not None:
        _require_array(problem.row_weights, (n,), "float64", "the weights of the rows")
    for value in jax.tree.leaves(problem.hyper):
        _require_array(value, (), "float64", "the hyperparameters")
    _require(problem.family is None, "parameters of the kernel")
    _check_low_rank(problem, problem, sampler, ())
    _check_factors(problem.factor, problem.masked, problem, ())
    if problem.grid is not None:
        _require(isinstance(problem.grid, KernelGrid), "the grid of lengthscales")
        size = problem.grid.values.shape
        _require_array(problem.grid.values, size, "float64", "the lengthscales")
        _require(len(size) == 1 and size[0] >= 2, "the lengthscales")
        _require(bool(np.all(np.asarray(problem.grid.values) > 0)), "the lengthscales")
        _require_array(problem.grid.log_prior, size, "float64", "the prior of the lengthscales")
        start = np.asarray(problem.grid.start)
        _require(start.shape == () and start.dtype.kind == "i", "the first lengthscale")
        _require(bool(0 <= start < size[0]), "the first lengthscale")
        _check_low_rank(problem.grid, problem, sampler, size)
        _check_factors(problem.grid.factors, problem.grid.masked, problem, size)


def _check_low_rank(
    parts: Problem | KernelGrid, problem: Problem, sampler: BMSVMGibbs, lead: tuple[int, ...]
) -> None:
    """Require features, remainder and reference of shapes that the factor gives."""
    n, r, k = problem.labels.shape[0], problem.factor.eigenvalues.shape[-1], problem.n_columns
    low, left, near = parts.features, parts.remainder, parts.reference
    _require((low is None) == (sampler._settings["features"] is None), "the features")
    _require((near is not None) == (sampler._preset == "large"), "the reference")
    if low is not None:
        _require(isinstance(low, FeatureMap) and low.kind in KINDS, "the features")
        points, rotation = low.points, low.rotation
        _require(points.ndim == 2 + len(lead), "the features")
        many, p = points.shape[-2:]
        raw = many * (2 if low.kind == "fourier" else 1)
        _require_array(points, (*lead, many, p), "float64", "the points of the features")
        _require_array(rotation, (*lead, raw, r), "float64", "the rotation of the features")
        _require_array(low.error, lead, "float64", "the error of the features")
    _require((left is not None) == (low is not None and low.kind == "nystrom"), "the remainder")
    if left is not None:
        _require_array(left, (*lead, n), problem.factor.basis.dtype.name, "the remainder")
        _require(bool(np.all(np.asarray(left) >= 0)), "the remainder")
    if near is not None:
        _require(isinstance(near, Reference), "the reference")
        size, nodes = near.rotation.shape[-1], near.nodes.shape[-2]
        _require(size in (r + 1, k * (r + 1)), "the reference")
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("logs", "scales"), (2,))
        shapes.update(dict.fromkeys(("curvature", "mode", "slope"), (k, r + 1)))
        shapes.update(dict.fromkeys(("growth", "intercept_scale"), ()))
        shapes.update(rotation=(size, size), nodes=(nodes, k))
        for name, shape in shapes.items():
            _require_array(getattr(near, name), (*lead, *shape), "float64", f"reference's {name}")


def _check_factors(factor: Any, masked: Any, problem: Problem, lead: tuple[int, ...]) -> None:
    n, c = problem.labels.shape[0], problem.n_classes
    _require(isinstance(factor, Factor), "the factors")
    r = factor.eigenvalues.shape[-1]
    _require_array(factor.eigenvalues, (*lead, r), "float64", "the eigenvalues")
    if isinstance(factor.basis, ComputedBasis):
        _check_computed(factor.basis, problem)
    else:
        light = problem.features is not None and factor.basis.dtype == "float32"
        _require_array(factor.basis, (*lead, n, r), "float32" if light else "float64", "the basis")
    _require((masked is not None) == (problem.coupling == "independent"), "the designs")
    if masked is not None:
        _require(isinstance(masked, Design), "the designs")
        shapes = {"basis": (n, r), "eigenvalues": (r,), "rotation": (r, r), "mask": (n,)}
        for name, shape in shapes.items():
            _require_array(getattr(masked, name), (*lead, c, *shape), "float64", f"the {name}")


def _check_computed(basis: ComputedBasis, problem: Problem) -> None:
    n, low = problem.labels.shape[0], problem.features
    _require(low is not None and basis.kind == low.kind, "the basis")
    _require(basis.kernel in STATIONARY and basis.precision in ("float32", "float64"), "the basis")
    points, rotation = cast(FeatureMap, low).points, cast(FeatureMap, low).rotation
    shapes = {"rows": (n, points.shape[1]), "present": (n,)}
    shapes.update(points=points.shape, rotation=rotation.shape)
    for name, shape in shapes.items():
        _require_array(getattr(basis, name), shape, "float64", f"the basis' {name}")


def state_like(sampler: BMSVMGibbs, problem: Problem, keys: Any) -> BMSVMState:
    """Return the shapes and types of the state of chains that start with some keys."""
    with jax.enable_x64(True):
        return jax.eval_shape(lambda keys: sampler.init(keys, 0, None, (problem,), {}), keys)


def check_selection(selection: Any) -> None:
    """Require a way in which theta was found, or None."""
    if selection is not None:
        _require(isinstance(selection, Selection), "the lengthscale")
        scale = np.asarray(selection.lengthscale, np.float64)
        _require(bool(np.all(np.isfinite(scale) & (scale > 0))), "the lengthscale")


def check_samples(run: Run) -> None:
    """Require draws of the shapes that the chains give."""
    _require(isinstance(run.samples, dict), "the draws")
    wanted = set(PREDICTIVE)
    problem = run.state.problem
    if problem.reference is not None or problem.features is not None:  # they may be integrated out
        wanted.discard("scores")
    if problem.grid is not None:
        wanted.add("lengthscale")
    _require(wanted <= set(run.samples), "the draws")
    with jax.enable_x64(True):
        shapes = jax.eval_shape(lambda state: values_of(state, tuple(run.samples)), run.state)
    draws = run.samples["precision"].shape[1]
    _require(draws >= 1, "the draws")
    for name, like in shapes.items():
        shape = (like.shape[0], draws, *like.shape[1:])
        _require_array(run.samples[name], shape, like.dtype.name, f"the draws of {name}")
    for name in wanted - {"intercept", "weights", "scores"}:
        _require(bool(np.all(run.samples[name] > 0)), f"the draws of {name} should be positive")


def check_fitted(model: Any) -> None:
    """Require what was learned to fit the chains."""
    problem = model.run_.state.problem
    _require(isinstance(model.training_rows_, np.ndarray), "training_rows_")
    n, c = len(model.training_rows_), problem.n_classes
    _require(2 <= n <= problem.n_rows, "training_rows_")  # the problem may have spare rows
    for name in ("n_features_in_", "n_iter_", "seed_"):
        value = getattr(model, name)
        _require(isinstance(value, int) and 0 <= value < 2**63, name)
    by = model.calibration_
    _require(isinstance(by, Calibration), "calibration_")
    _require(all(isinstance(each, float) for each in by), "calibration_")
    _require(0 < by.power < np.inf and 0 <= by.chance <= 1, "calibration_")
    p = model.n_features_in_
    _require(isinstance(model.classes_, np.ndarray) and model.classes_.shape == (c,), "classes_")
    _require(isinstance(model.kernel_, str), "kernel_")
    _require(model.kernel_ == model.run_.sampler._settings["kernel"], "kernel_")
    if model.kernel_ == "precomputed":
        _require_array(model.training_rows_, (n, n), "float64", "training_rows_")
    else:
        _require(model.kernel_ in NAMED, "kernel_")
        _require_array(model.training_rows_, (n, p), "float64", "training_rows_")
    if model._kept is not None:
        _require_array(model._kept, (n,), "int64", "_kept")
        kept = model._kept
        _require(kept.min() >= 0 and bool(np.all(np.diff(kept) > 0)), "_kept")
        _require(model.kernel_ != "precomputed" or kept.max() < p, "_kept")
    elif model.kernel_ == "precomputed":
        _require(n == p, "n_features_in_")
    if model.input_mean_ is not None:
        for name in ("input_mean_", "input_scale_"):
            _require_array(getattr(model, name), (p,), "float64", name)
        _require(bool(np.all(model.input_scale_ > 0)), "input_scale_")
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        _require(isinstance(names, np.ndarray) and names.shape == (p,), "feature_names_in_")
        _require(all(isinstance(name, str) for name in names), "feature_names_in_")
    scale = np.asarray(model.lengthscale_)
    good = scale.dtype.kind in "fiu" and scale.shape in ((), (1,), (p,))
    _require(good and bool(np.all(np.isfinite(scale) & (scale > 0))), "lengthscale_")
