"""Functions, scores and class probabilities at new rows, from posterior draws.

The functions are a Gaussian process, so that a new row has
``f* = b + Phi* v + e*``, ``Phi* = K* U diag(lambda)^(-1/2)``, and ``e*`` of variance
``sigma2/tau (k** - |Phi*|^2)``: what the training rows do not determine. The representer form (1)
is the same without ``e*``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bmsvm.kernels import STATIONARY, Factor, KernelFn, gram, projection
from bmsvm.models import likelihoods
from bmsvm.models.conditionals import intercept_collapsed, project, weights_full
from bmsvm.models.couplings import class_vector, to_columns
from bmsvm.models.kernel_parameters import (
    KernelFamily,
    KernelGrid,
    KernelPoint,
    constrained,
    nearest_on_grid,
    unconstrained,
)
from bmsvm.models.problem import Problem

__all__ = ["Features", "class_probabilities", "features_at", "features_on_grid", "functions_at"]


PART = 256
"""New rows whose own variances are read off one Gram matrix."""


class Features(NamedTuple):
    """New rows as the factor sees them.

    inside
        Phi*, shape (m, r).
    remainder
        ``k** - |Phi*|^2``, shape (m,), not negative.
    """

    inside: jax.Array
    remainder: jax.Array


def features_at(
    kernel: KernelFn, rows: ArrayLike, training_rows: ArrayLike, factor: Factor
) -> Features:
    """Features of new rows (m, p) under a kernel callable, given the training rows (n, p)."""
    rows, training_rows = np.asarray(rows), np.asarray(training_rows)
    in_float64 = Factor(*(np.asarray(part, np.float64) for part in factor))  # type: ignore[arg-type]
    inside = gram(kernel, rows, training_rows) @ projection(in_float64)
    parts = np.array_split(rows, -(-len(rows) // PART)) if len(rows) else []
    own = np.concatenate([np.zeros(0), *(np.diag(gram(kernel, part)) for part in parts)])
    remainder = np.maximum(own - np.sum(inside**2, axis=1), 0.0)
    return Features(jnp.asarray(inside), jnp.asarray(remainder))


def features_on_grid(
    kernel: str, rows: ArrayLike, training_rows: ArrayLike, grid: KernelGrid
) -> Features:
    """Features of new rows under a named kernel at each value of theta, a leading axis of G."""
    each = [
        features_at(STATIONARY[kernel](float(theta)), rows, training_rows, Factor(*factor))
        for theta, *factor in zip(np.asarray(grid.values), *grid.factors, strict=True)
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def _features_off_grid(rows: jax.Array, point: KernelPoint, family: KernelFamily) -> Features:
    """Features of new rows (m, p) at a point off the grid, inside a compiled program."""
    kernel = family.build(constrained(point.parameters, family))
    inside = kernel(rows, family.rows) @ projection(point.factor)[: len(family.rows)]
    own = jax.vmap(lambda row: kernel(row[None], row[None])[0, 0])(rows)
    return Features(inside, jnp.maximum(own - jnp.sum(inside**2, axis=1), 0.0))


def functions_at(
    key: jax.Array, draws: dict[str, jax.Array], features: Features | jax.Array, problem: Problem
) -> jax.Array:
    """Draw the column functions at new rows, one draw for each posterior draw.

    Parameters
    ----------
    key
        Random key.
    draws
        Samples of BMSVMGibbs or of NUTS on the same model, flat over chains: ``scores``
        (s, n, c), ``noise_variance`` (s,), ``precision`` (s,), and ``lengthscale`` (s,) or the
        kernel's other parameters where they were sampled.
    features
        The new rows: from :func:`features_at`, or :func:`features_on_grid` where theta was sampled
        on a grid; or the rows themselves, (m, p), where it was sampled off it, which costs a
        factorisation for each draw.
    problem
        The prepared training data.

    Returns
    -------
    jax.Array
        Column functions, shape (s, m, k); :func:`bmsvm.models.couplings.class_vector` turns
        them into class functions.
    """
    grid, family = problem.grid, problem.family

    def at(theta):
        if family is not None:
            point = problem.kernel_point(theta)
            return problem.at(point), _features_off_grid(jnp.asarray(features), point, family)
        if grid is not None:
            return problem.at(theta), jax.tree.map(lambda leaf: leaf[theta], features)
        return problem, features

    def one(inputs):
        key, scores, noise_variance, precision, theta = inputs
        here, there = at(theta)
        key_intercept, key_weights, key_remainder = jax.random.split(key, 3)
        columns = to_columns(scores, problem.labels, problem.coupling)
        seen = project(columns, here)
        intercept = intercept_collapsed(seen, precision, noise_variance, here).sample(key_intercept)
        weights = weights_full(seen, intercept, precision, noise_variance, here).sample(key_weights)
        spread = jnp.sqrt(noise_variance / precision * there.remainder)[:, None]
        shape = (there.remainder.size, problem.n_columns)
        noise = jax.random.normal(key_remainder, shape, spread.dtype)
        return intercept + there.inside @ weights + spread * noise

    keys = jax.random.split(key, draws["precision"].shape[0])
    theta = None
    if family is not None:
        theta = unconstrained({name: jnp.asarray(value) for name, value in draws.items()}, family)
    elif grid is not None:
        theta = nearest_on_grid(jnp.asarray(draws["lengthscale"]), grid.values)
    inputs = (keys, draws["scores"], draws["noise_variance"], draws["precision"], theta)
    return jax.lax.map(one, inputs)


def class_probabilities(
    key: jax.Array, draws: dict[str, jax.Array], features: Features | jax.Array, problem: Problem
) -> jax.Array:
    """Class probabilities at new rows, for each posterior draw.

    The noise of the scores is drawn, not plugged in: ``z* ~ N(f*, sigma2)``. Arguments as in
    :func:`functions_at`.

    Returns
    -------
    jax.Array
        Probabilities, shape (s, m, c); their mean over draws is the predictive distribution.
    """
    key_functions, key_noise = jax.random.split(key)
    functions = functions_at(key_functions, draws, features, problem)
    scale = jnp.sqrt(draws["noise_variance"])[:, None, None]
    noise = jax.random.normal(key_noise, functions.shape, functions.dtype)
    scores = class_vector(functions + scale * noise, problem.coupling)
    return likelihoods.class_probabilities(scores, problem.likelihood)
