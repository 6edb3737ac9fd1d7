"""The model with the noise of the scores integrated out: labels given functions.

``p(y | f, sigma) = E L(y | f + sigma e)``, e standard normal, has no closed form with more than two
classes. Here the mean is over J points of e (:func:`noise_nodes`), the same for every row: a model
whose noise takes J values. Predictions integrate the noise so too. What that changes is small, and
is measured in docs/scale.md; what it buys is that sigma, which the noise of n rows pins to one part
in sqrt(n), is free to move, and that a sweep has r and not n coordinates for each column.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from bmsvm.models.couplings import class_map
from bmsvm.models.hierarchy import Position, log_likelihood, noise_prior, precision_prior
from bmsvm.models.likelihoods import margin_offset, rectify, weigh
from bmsvm.models.problem import Problem
from bmsvm.models.reference import Reference, from_coordinates, log_volume, to_coordinates

__all__ = [
    "Coordinates",
    "coordinates_of",
    "draw_columns",
    "fisher_information",
    "functions_of",
    "log_density",
    "log_likelihood_of_functions",
    "log_posterior",
    "log_scales",
    "position_of",
    "variances_of",
]


class Coordinates(NamedTuple):
    """A point: ``xi`` of the reference, shape (k, r + 1), and ``logs`` (log sigma, log d)."""

    xi: jax.Array
    logs: jax.Array


def _by_class(scores: Sequence[jax.Array], own: Sequence[jax.Array], likelihood: str) -> jax.Array:
    """Log likelihood of rows from c arrays (n,), one a class; ``own`` is 1 at the label's."""
    excess = [rectify(score + margin_offset(len(scores))) for score in scores]
    mine = sum(is_own * each for is_own, each in zip(own, excess, strict=True))
    if likelihood == "hinge":  # eq. (11)
        return cast(jax.Array, mine - sum(excess))
    largest = functools.reduce(jnp.maximum, excess)
    total = functools.reduce(jnp.add, [jnp.exp(each - largest) for each in excess])
    return mine - largest - jnp.log(total)  # eq. (21)


class _Slopes(NamedTuple):
    """Log likelihood (n,), and its derivatives by functions (k, n) and by log scale (n,)."""

    value: jax.Array
    functions: jax.Array
    log_scale: jax.Array


def _with_slopes(
    functions: jax.Array, log_scale: jax.Array, nodes: jax.Array, problem: Problem
) -> _Slopes:
    """``log E L(y | f + sigma e)`` of each row with its derivatives, in one loop over the nodes.

    All of it runs class by class along the rows: nothing of size n J is kept.
    """
    dtype = functions.dtype
    to_classes = jnp.asarray(class_map(problem.coupling, problem.n_classes), dtype)  # (k, c)
    heights = jnp.unstack(to_classes.T @ functions)
    own = [(problem.labels == j).astype(dtype) for j in range(problem.n_classes)]
    scale = jnp.exp(log_scale)
    weights = problem.row_weights
    weights = None if weights is None else weights.astype(dtype)

    def log_likelihood(*scores):
        return weigh(_by_class(scores, own, problem.likelihood), weights)

    # Relative to the noiseless value, from which a few sigma of noise cannot lead far.
    level = log_likelihood(*heights)

    def add(carry, node):
        total, slopes, by_scale = carry
        scores = [height + scale * e for height, e in zip(heights, node, strict=True)]
        value, pull = jax.vjp(log_likelihood, *scores)
        share = jnp.exp(value - level)
        pulled = pull(share)
        slopes = [slope + more for slope, more in zip(slopes, pulled, strict=True)]
        for more, e in zip(pulled, node, strict=True):
            by_scale = by_scale + more * e
        return (total + share, slopes, by_scale), None

    zero = jnp.zeros_like(level)
    (total, slopes, by_scale), _ = jax.lax.scan(
        add, (zero, [zero] * problem.n_classes, zero), nodes.astype(dtype) @ to_classes
    )
    value = level + jnp.log(total / len(nodes))
    return _Slopes(value, to_classes @ (jnp.stack(slopes) / total), scale * by_scale / total)


@jax.custom_vjp
def log_likelihood_of_functions(
    functions: jax.Array, log_scale: jax.Array, nodes: jax.Array, problem: Problem
) -> jax.Array:
    """``sum_i log p(y_i | f_i, s_i)``: a scalar, in JAX's default type.

    Parameters
    ----------
    functions
        Column functions f, shape (k, n).
    log_scale
        Log of the scale of each row's noise, shape (n,): see :func:`log_scales`.
    nodes
        Points of the noise, shape (J, k).
    problem
        The prepared data.
    """
    value = _with_slopes(functions, log_scale, nodes, problem).value
    return jnp.sum(value, dtype=jnp.result_type(float))


def _forward(functions, log_scale, nodes, problem):
    slopes = _with_slopes(functions, log_scale, nodes, problem)
    total = jnp.sum(slopes.value, dtype=jnp.result_type(float))
    return total, (slopes.functions, slopes.log_scale)


def _backward(slopes, cotangent):
    functions, by_scale = slopes
    factor = cotangent.astype(functions.dtype)
    return functions * factor, by_scale * factor, None, None


log_likelihood_of_functions.defvjp(_forward, _backward)


def functions_of(
    x: jax.Array, problem: Problem, intercept_scale: jax.typing.ArrayLike
) -> jax.Array:
    """Column functions ``1 b' + Phi v`` at the rows, shape (k, n), in the type of the basis."""
    basis, eigenvalues = problem.factor
    weights = (x[:, :-1] * jnp.sqrt(eigenvalues)).astype(basis.dtype)
    intercept = (intercept_scale * x[:, -1:]).astype(basis.dtype)
    return weights @ basis.T + intercept


def log_scales(logs: jax.Array, problem: Problem) -> jax.Array:
    """Log of the scale of each row's noise at (log sigma, log d), shape (n,), basis' type.

    What a basis of low rank leaves of the functions, of variance ``sigma2/tau`` times the row's
    remainder, is each row's own, and so is part of its noise.
    """
    dtype = problem.factor.basis.dtype
    if problem.remainder is None:
        return jnp.full(problem.n_rows, logs[0].astype(dtype))
    left = jnp.exp(-logs[1] - 2 * logs[0]).astype(dtype) * problem.remainder.astype(dtype)
    return logs[0].astype(dtype) + 0.5 * jnp.log1p(left)


def variances_of(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return sigma2 and tau of (log sigma, log d)."""
    return jnp.exp(2 * logs[0]), jnp.exp(logs[1] + 2 * logs[0])


def log_prior(
    x: jax.Array, logs: jax.Array, problem: Problem, intercept_scale: jax.Array
) -> jax.Array:
    """Log prior density of x and (log sigma, log d), up to a constant: eqs. (15)-(17)."""
    noise_variance, precision = variances_of(logs)
    ratio = jnp.exp(logs[1])
    k, size = x.shape[0], x[:, :-1].size
    intercept = intercept_scale * x[:, -1]
    eta = problem.hyper.intercept_precision
    return (
        0.5 * (size * logs[1] - ratio * jnp.sum(x[:, :-1] ** 2))
        - k * logs[0]
        - 0.5 * eta / noise_variance * jnp.sum(intercept**2)
        + noise_prior(problem).log_prob(noise_variance)
        + precision_prior(problem).log_prob(precision)
        + 2 * logs[0]  # d sigma2
        + logs[1]
        + 2 * logs[0]  # d tau
    )


def log_posterior(x: jax.Array, logs: jax.Array, problem: Problem, reference: Reference):
    """Log posterior density of x (k, r + 1) and (log sigma, log d), up to a constant."""
    functions = functions_of(x, problem, reference.intercept_scale)
    scales = log_scales(logs, problem)
    likelihood = log_likelihood_of_functions(functions, scales, reference.nodes, problem)
    return likelihood + log_prior(x, logs, problem, reference.intercept_scale)


def log_density(at: Coordinates, problem: Problem) -> jax.Array:
    """Log posterior density of coordinates, up to a constant."""
    reference = cast(Reference, problem.reference)
    x = from_coordinates(at.xi, at.logs, reference)
    return log_posterior(x, at.logs, problem, reference) + log_volume(at.logs, reference)


def coordinates_of(position: Position, problem: Problem) -> Coordinates:
    """Coordinates of a position, whose columns are not used, under the problem's reference."""
    reference = cast(Reference, problem.reference)
    log_scale = 0.5 * jnp.log(position.noise_variance)
    logs = jnp.stack([log_scale, jnp.log(position.precision) - 2 * log_scale])
    intercept = position.intercept / reference.intercept_scale
    x = jnp.append(position.weights.T, intercept[:, None], axis=1)
    return Coordinates(to_coordinates(x, logs, reference), logs)


def position_of(at: Coordinates, position: Position, problem: Problem) -> Position:
    """Undo :func:`coordinates_of`; theta is that of ``position``, and there are no columns."""
    reference = cast(Reference, problem.reference)
    x = from_coordinates(at.xi, at.logs, reference)
    noise_variance, precision = variances_of(at.logs)
    return position._replace(
        columns=cast(jax.Array, None),
        weights=x[:, :-1].T,
        intercept=reference.intercept_scale * x[:, -1],
        noise_variance=noise_variance,
        precision=precision,
    )


def fisher_information(
    functions: jax.Array, logs: jax.Array, nodes: jax.Array, problem: Problem
) -> jax.Array:
    """Return what labels would tell of the column functions of their rows, shape (k, k, n).

    ``sum_y p(y) g_y g_y'`` with g_y the slope of ``log p(y | f)`` at (log sigma, log d).
    """
    log_scale = log_scales(logs, problem)
    information, chances = jnp.zeros(()), jnp.zeros(())
    for label in range(problem.n_classes):
        relabelled = replace(problem, labels=jnp.full_like(problem.labels, label), row_weights=None)
        slopes = _with_slopes(functions, log_scale, nodes, relabelled)
        chance = jnp.exp(slopes.value)
        chances = chances + chance
        information = information + chance * slopes.functions[:, None] * slopes.functions[None]
    information = information / chances  # the hinge's do not sum to one
    if problem.row_weights is None:
        return information
    return information * problem.row_weights.astype(information.dtype)


def draw_columns(key: jax.Array, position: Position, problem: Problem) -> jax.Array:
    """Draw columns T (n, k) given weights, intercept and sigma2, the noise being one of the nodes.

    The weights of a position within the rank; its columns are not used.
    """
    reference = cast(Reference, problem.reference)
    intercept = position.intercept / reference.intercept_scale
    x = jnp.append(position.weights.T, intercept[:, None], axis=1)
    functions = functions_of(x, problem, reference.intercept_scale)
    nodes = reference.nodes.astype(functions.dtype)
    log_scale = 0.5 * jnp.log(position.noise_variance)
    logs = jnp.stack([log_scale, jnp.log(position.precision) - 2 * log_scale])
    scale = jnp.exp(log_scales(logs, problem))

    def choose(carry, inputs):
        best, chosen = carry
        key, number = inputs
        moved = functions + scale * nodes[number][:, None]
        noise = jax.random.gumbel(key, best.shape, best.dtype)
        merit = log_likelihood(moved.T, problem) + noise
        return (jnp.maximum(merit, best), jnp.where(merit > best, number, chosen)), None

    n = problem.n_rows
    begin = (jnp.full(n, -jnp.inf, functions.dtype), jnp.zeros(n, jnp.int32))
    each = (jax.random.split(key, len(nodes)), jnp.arange(len(nodes), dtype=jnp.int32))
    (_, chosen), _ = jax.lax.scan(choose, begin, each)
    return functions.T + scale[:, None] * nodes[chosen]
