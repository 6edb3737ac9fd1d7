"""Data and functions of finished runs, of NumPyro or of this package."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.run import Run
from bmsvm.inference.state import INFO
from bmsvm.kernels.functions import Kernel, KernelFn, Precomputed, as_kernel, gram_of
from bmsvm.models.conditionals import weights_given_rest
from bmsvm.models.couplings import contrast, to_columns
from bmsvm.models.hierarchy import Position
from bmsvm.models.prepare import as_lengthscale
from bmsvm.models.problem import Problem, chosen_rows
from bmsvm.models.theta import Sampled

CHECKED_ROWS = 64
"""Rows whose kernel values are compared with those of the problem."""

TOLERANCE = 1e-3
"""Largest difference of these, relative to the largest value; rounding to float32 is below it."""


class PreparedRun(NamedTuple):
    """Data for predictions from draws; fields as in :class:`bmsvm.Posterior`."""

    problem: Problem
    training_rows: np.ndarray
    kernel: Kernel | KernelFn | str
    lengthscale: Any


def data_of_run(mcmc: Any) -> tuple[Problem, Any, Any]:
    """Return the prepared data of a run, and its rows and labels if the run has them."""
    if isinstance(mcmc, Run):
        return mcmc.problem, None, None
    # MCMC keeps the arguments of the run under these names only; ArviZ reads them too.
    args, keywords = getattr(mcmc, "_args", None), getattr(mcmc, "_kwargs", None)
    if args is None or keywords is None:
        raise ValueError(
            "mcmc must be a numpyro.infer.MCMC that has run, or a run of bmsvm.run_chains; got "
            f"{type(mcmc).__name__}" + (" that has not run" if hasattr(mcmc, "sampler") else "")
        )
    first = args[0] if args else keywords.get("X", keywords.get("problem"))
    if isinstance(first, Problem):
        return first, None, None
    if not isinstance(mcmc.sampler, BMSVMGibbs):
        raise ValueError(
            "mcmc must be a run of BMSVMGibbs, or of a model whose first argument is a problem; "
            f"got one of {type(mcmc.sampler).__name__} on {type(first).__name__}"
        )
    y = args[1] if len(args) > 1 else keywords.get("y")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"X(:| and lengthscale:) ")  # it came with the chains
        return mcmc.sampler.prepare(*args, **keywords), first, y


def draws_of_run(run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return draws (chain, draw, ...) of the sites, and statistics of the sweeps."""
    if not isinstance(run, Run):
        return run.get_samples(group_by_chain=True), run.get_extra_fields(group_by_chain=True)
    sites = {name: value for name, value in run.samples.items() if name not in INFO}
    return sites, {name: run.samples[name] for name in INFO if name in run.samples}


def prepared_run(mcmc: Any, X: Any, kernel: Any, lengthscale: Any) -> PreparedRun:
    """Return the data of a run; arguments as in :meth:`bmsvm.Posterior.from_numpyro`."""
    problem, rows, _ = data_of_run(mcmc)
    sampler = mcmc.kernel if isinstance(mcmc, Run) else mcmc.sampler
    if rows is None:
        if X is None:
            raise ValueError(
                "X must be given: the run holds a problem, which does not hold the training "
                "rows. Pass X, kernel and lengthscale as to bmsvm.prepare"
            )
        if kernel is None:
            kernel = getattr(sampler, "kernel", "gaussian")
        if lengthscale is None:
            lengthscale = getattr(sampler, "lengthscale", None)
    elif X is not None or kernel is not None or lengthscale is not None:
        raise ValueError(
            "X, kernel and lengthscale must not be given: the run was given X, and its sampler has "
            "the others"
        )
    else:
        X, kernel, lengthscale = rows, sampler.kernel, sampler.lengthscale
    covariance, rows = as_kernel(kernel), np.asarray(X, np.float64)
    theta = None
    if not problem.samples_kernel:
        theta = as_lengthscale(lengthscale, covariance)
        if isinstance(theta, Sampled):
            raise ValueError(f"lengthscale must be the fixed one of the problem; got {theta!r}")
    if problem.basis_map is None and problem.family is None:
        _check_rows(rows, covariance, theta, problem)
    return PreparedRun(problem, rows, kernel, theta)


def _check_rows(rows: np.ndarray, kernel: Kernel, theta: Any, problem: Problem) -> None:
    """Raise ``ValueError`` unless the Gram matrix of the problem is that of the rows."""
    n = problem.n_rows
    spare = 0 if problem.row_weights is None else int(np.sum(np.asarray(problem.row_weights) == 0))
    if not n - spare <= len(rows) <= n:
        raise ValueError(f"X must have the {n} rows of the problem; got {len(rows)}")
    if problem.grid is not None:
        theta = np.asarray(problem.grid.values)[problem.grid.start]
    chosen = chosen_rows(len(rows), CHECKED_ROWS)
    basis, eigenvalues = (np.asarray(part, np.float64) for part in problem.factor)
    expected = (basis[chosen] * eigenvalues) @ basis[chosen].T
    if isinstance(kernel, Precomputed):
        found = rows[np.ix_(chosen, chosen)]
    else:
        found = gram_of(kernel, rows[chosen], theta)
    error = np.abs(found - expected).max()
    if not error <= TOLERANCE * np.abs(expected).max():
        raise ValueError(
            "X, kernel and lengthscale must be those that the problem was prepared from; kernel "
            f"values differ by up to {error:.3g}"
        )


def with_functions(
    samples: Mapping[str, Any], problem: Problem, seed: int
) -> dict[str, np.ndarray]:
    """Draws (chain, draw, ...) as NumPy arrays, with weights drawn given the scores if needed."""
    draws = {name: np.asarray(value) for name, value in samples.items()}
    if {"weights", "coefficients"} & set(draws):
        return draws
    if "scores" not in draws or problem.samples_kernel:
        raise ValueError(
            "mcmc must have draws of the weights, or, at a fixed lengthscale, of the scores, from "
            f"which weights are drawn; it has {', '.join(map(repr, sorted(draws)))}"
        )
    if problem.coupling != "sum_to_zero":
        raise ValueError(
            'mcmc must have draws of the weights with coupling="independent": sample with '
            "integrate_weights=False"
        )
    shape = draws["precision"].shape
    flat = [
        jnp.asarray(draws[name].reshape(-1, *draws[name].shape[2:]))
        for name in ("scores", "intercept", "noise_variance", "precision")
    ]
    keys = jax.random.split(jax.random.key(seed), int(np.prod(shape)))
    weights = _draw_weights(keys, *flat, problem)
    draws["weights"] = np.asarray(weights).reshape(*shape, *weights.shape[1:])
    return draws


@jax.jit
def _draw_weights(
    keys: jax.Array,
    scores: jax.Array,
    intercept: jax.Array,
    noise_variance: jax.Array,
    precision: jax.Array,
    problem: Problem,
) -> jax.Array:
    """Weights (s, r, k) given everything else."""
    to_classes = jnp.asarray(contrast(problem.n_classes), scores.dtype)

    def one(given):
        key, z, b, sigma2, tau = given
        columns = to_columns(z, problem.labels, problem.coupling)
        empty = jnp.zeros((problem.factor.eigenvalues.shape[0], problem.n_columns), z.dtype)
        position = Position(columns, b @ to_classes, empty, sigma2, tau)
        return weights_given_rest(position, problem).sample(key)

    return jax.lax.map(one, (keys, scores, intercept, noise_variance, precision))
