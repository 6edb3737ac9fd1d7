"""A normal approximation of the posterior of the weights: the reference of the collapsed sampler.

It starts as Laplace's approximation: the mode of weights and intercept at a given sigma and
``d = tau/sigma2``, by L-BFGS; d by the fixed point of the evidence, whose trace is that of the
approximate posterior covariance; and the Fisher information there, ``A = Phi' I Phi``,
diagonalised. At the mode, however, rows are more certain than on average, which puts sigma and d
many standard deviations off. So it continues as a variational approximation: the mean maximises the
log density averaged over a few draws around it, the Fisher information is averaged likewise, and
sigma and d maximise that average, in turn until they no longer change.

All of it is passes over the basis: of some of the rows if there are many, and then a few over all
rows to correct mean, sigma and d. Rows that are spread over processes are gathered for the first
part, so that the reference is the same as with one process.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize

from bmsvm.inference.reference import (
    Reference,
    Setup,
    from_coordinates,
    log_density_at,
    rotate,
    unrotate,
)
from bmsvm.models.integrated import (
    check_nodes,
    fisher_information,
    functions_of,
    log_marginal_likelihood,
)
from bmsvm.models.problem import Problem, some_rows
from bmsvm.models.quadrature import noise_nodes

NODES = 16
"""Points at which the noise of the scores is integrated, or twice the columns if that is more."""

LARGEST = 3072
"""Largest size of a rotation of all columns together; beyond it columns share one."""

ROUNDS = 4
"""Rounds of mode and d before the Fisher information is computed."""

STEPS = (15, 20)
"""Most steps of L-BFGS in each round, and in the last."""

REFERENCE_ROWS = 200_000
"""Largest number of rows, evenly spaced, from which the reference is made."""

PART = 4096
"""Rows in one product of the Fisher information."""

AVERAGED = 2
"""Draws, and as many antithetic ones, over which density and Fisher information are averaged."""

PASSES = 6
"""Largest number of rounds of mean, Fisher information, sigma and d."""

FURTHER = 1.7
"""Over-relaxation of the steps of sigma and d, which otherwise go about half way."""

SETTLED = 0.3
"""Change of log sigma and log d, in standard deviations, that needs no further round."""

MOST_SPREAD = 0.5
"""Largest first guess of a standard deviation of log sigma or log d."""

SMALLEST_RATIO, LARGEST_RATIO = 1e-6, 1e6


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Target:
    """The posterior to be approximated: its data, and the points of the noise (J, k)."""

    problem: Problem
    nodes: jax.Array

    def log_likelihood(self, x: jax.Array, logs: jax.Array, scale: jax.Array) -> jax.Array:
        """Log likelihood of x (k, r + 1) at (log sigma, log d)."""
        return log_marginal_likelihood(x, logs, scale, self.nodes, self.problem)


def _mean_log_likelihood(x, around, logs, scale, target: _Target):
    """Log likelihood of x (k, r + 1) plus each of ``around`` (s, k, r + 1), the mean over them."""
    each = jax.vmap(lambda by: target.log_likelihood(x + by, logs, scale))
    return jnp.mean(each(around))


@jax.jit
def _value_and_slope(
    x: jax.Array,
    around: jax.Array,
    logs: jax.Array,
    scale: jax.Array,
    target: _Target,
) -> tuple[jax.Array, jax.Array]:
    """Mean log likelihood plus log prior of x at (log sigma, log d), and its gradient."""

    def value(x):
        # The intercept has about the precision d too, by its scale.
        prior = -0.5 * jnp.exp(logs[1]) * jnp.sum(x**2)
        return _mean_log_likelihood(x, around, logs, scale, target) + prior

    return jax.value_and_grad(value)(x)


@jax.jit
def _slope_by_log_scale(x, around, logs, scale, target):
    """Return the derivative of the gradient of the log likelihood by log sigma, (k, r + 1)."""
    step = 1e-2

    def slope(by):
        moved = logs + jnp.asarray([by, 0.0])
        return jax.grad(_mean_log_likelihood)(x, around, moved, scale, target)

    return (slope(step) - slope(-step)) / (2 * step)


def _mode(
    x: np.ndarray,
    around: np.ndarray,
    logs: np.ndarray,
    scale: float,
    target: _Target,
    information: np.ndarray,
    rotation: np.ndarray,
    steps: int,
) -> np.ndarray:
    """Climb to the x (k, r + 1) of the largest mean, in coordinates of about unit curvature."""
    root = np.sqrt(information)
    turned = np.asarray(rotation)

    def outward(flat):
        return np.asarray(rotate(flat.reshape(x.shape) / root, turned))

    def loss(flat):
        value, slope = _value_and_slope(outward(flat), around, logs, scale, target)
        inward = np.asarray(unrotate(np.asarray(slope), turned)) / root
        return -float(value), -inward.ravel().astype(np.float64)

    start = (np.asarray(unrotate(x, turned)) * root).ravel()
    found = scipy.optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 8}
    )
    return outward(found.x)


@functools.partial(jax.jit, static_argnames=("first", "second"))
def _weighted_products(
    basis: jax.Array, scaled: jax.Array, weights: jax.Array, first: int, second: int
) -> jax.Array:
    """``Phi' diag(w_ab) Phi`` summed part by part, shape (r + 1, r + 1), in float32 products."""

    def design(part):
        ones = jnp.ones((part.shape[0], 1), part.dtype)
        return jnp.append(part, ones, axis=1) * scaled

    part = min(PART, len(basis))

    def add(i, total):
        rows = design(jax.lax.dynamic_slice_in_dim(basis, i * part, part))
        each = jax.lax.dynamic_slice_in_dim(weights[first, second], i * part, part)
        return total + (rows.T @ (rows * each[:, None])).astype(total.dtype)

    whole = len(basis) // part
    size = basis.shape[1] + 1
    total = jax.lax.fori_loop(0, whole, add, jnp.zeros((size, size), scaled.dtype))
    rest = design(basis[whole * part :])
    return total + rest.T @ (rest * weights[first, second, whole * part :, None])


_fisher = jax.jit(fisher_information)


def _curvature(
    places: np.ndarray,
    logs: np.ndarray,
    scale: float,
    target: _Target,
) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and eigenvalues (k, r + 1) of the Fisher information, the mean over places."""
    _, k, wide = places.shape
    problem, nodes = target.problem, target.nodes
    basis, eigenvalues = problem.factor
    information = jnp.zeros(())
    for x in places:
        functions = functions_of(jnp.asarray(x), problem, scale)
        information = information + _fisher(functions, jnp.asarray(logs), nodes, problem)
    information = information / len(places)
    scaled = jnp.append(jnp.sqrt(eigenvalues), scale).astype(basis.dtype)
    if k * wide > LARGEST:
        mean = jnp.mean(jnp.stack([information[j, j] for j in range(k)]), axis=0)
        shared = _weighted_products(basis, scaled, mean[None, None], 0, 0)
        values, rotation = _eigen(np.asarray(shared, np.float64))
        return rotation, np.broadcast_to(values, (k, wide))
    matrix = np.zeros((k, wide, k, wide))
    for first in range(k):
        for second in range(first + 1):
            block = np.asarray(_weighted_products(basis, scaled, information, first, second))
            matrix[first, :, second] = block
            matrix[second, :, first] = block.T
    values, rotation = _eigen(matrix.reshape(k * wide, k * wide))
    return rotation, values.reshape(k, wide)


def _eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, none negative, and vectors whose largest entry is positive."""
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2, overwrite_a=True)
    largest = np.argmax(np.abs(vectors), axis=0)
    signs = np.sign(vectors[largest, np.arange(len(largest))])
    return np.maximum(values, 0.0), vectors * signs


def _ratio(centre: np.ndarray, curvature: np.ndarray, ratio: float) -> float:
    """Return the fixed point of ``d = size / E|x|^2`` under the normal of precision a + d.

    Its mean is h/(a + d); ``centre`` is h, shape (k, r + 1).
    """
    for _ in range(50):
        information = curvature + ratio
        energy = np.sum((centre / information) ** 2) + np.sum(1 / information)
        ratio = float(np.clip(centre.size / energy, SMALLEST_RATIO, LARGEST_RATIO))
    return ratio


def laplace_setup(problem: Problem, *, num_nodes: int | None = None) -> Setup:
    """Return the reference of a problem, and of each value of its grid if it has one.

    Parameters
    ----------
    problem
        The prepared data: theta fixed or on a grid; coupling ``sum_to_zero``, likelihood ``hinge``
        or ``normalized``.
    num_nodes
        Points at which the noise is integrated: even, at least twice the columns. Default: 16, or
        as many as are needed.
    """
    check_nodes('sampler="collapsed"', problem.coupling, problem.likelihood)
    if problem.family is not None:
        raise ValueError(
            'sampler="collapsed" needs kernel parameters that are fixed, or a lengthscale on a grid'
        )
    k = problem.n_columns
    count = max(NODES, 2 * k) if num_nodes is None else num_nodes
    if count < 2 * k or count % 2:
        raise ValueError(
            f"num_nodes must be even and at least {2 * k}, twice the columns; got {num_nodes}"
        )
    nodes = jnp.asarray(noise_nodes(count, k), jnp.result_type(float))
    if problem.grid is None:
        return Setup(_reference(nodes, problem))
    each = [
        _reference(nodes, replace(problem.at(jnp.asarray(i)), grid=None))
        for i in range(problem.grid.values.size)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    return Setup(stacked, on_grid=True)


def _reference(nodes: jax.Array, problem: Problem) -> Reference:
    """Make the reference of a problem with a fixed theta."""
    near = some_rows(problem, REFERENCE_ROWS) if problem.n_rows > REFERENCE_ROWS else problem
    reference, root = _from_some(_Target(near, nodes))
    if near.n_rows < problem.n_rows:
        target = _Target(problem, nodes)
        reference, root = _refined(reference, problem.n_rows / near.n_rows, target)
    reference = reference._replace(spread=jnp.asarray(root))
    return jax.tree.map(lambda part: jnp.asarray(part, nodes.dtype), reference)


def _from_some(target: _Target) -> tuple[Reference, np.ndarray]:
    """Make the reference, and a root of the covariance of log sigma and log d."""
    problem, hyper = target.problem, target.problem.hyper
    log_scale = 0.5 * float(np.log(hyper.noise_rate / hyper.noise_shape))
    precision = 0.1
    logs = np.asarray([log_scale, np.log(precision) - 2 * log_scale])
    scale = _intercept_scale(logs, problem)
    x, logs = _rough_mode(logs, scale, target)
    x, scale = _rescaled(x, scale, logs, problem)
    alone, spread = np.zeros((1, *x.shape)), _both_ways(x.shape)
    reference = _reference_at(x[None], alone, logs, scale, target)
    for number in range(PASSES):
        better, root = _best_logs(spread, reference, target)
        way = better - logs
        logs = logs + (FURTHER if number else 1.0) * way
        at_logs = functools.partial(from_coordinates, logs=jnp.asarray(logs), reference=reference)
        places = np.asarray(jax.vmap(at_logs)(jnp.asarray(spread)))
        places, scale = _rescaled(places, scale, logs, problem)
        reference = _reference_at(places, spread, logs, scale, target)
        if np.all(np.abs(way) < SETTLED * np.linalg.norm(root, axis=1)):
            break
    return reference, root


def _both_ways(shape: tuple[int, ...]) -> np.ndarray:
    """Draw standard normals and add their negatives, shape (2 AVERAGED, *shape)."""
    drawn = np.random.default_rng(0).standard_normal((AVERAGED, *shape))
    return np.concatenate([drawn, -drawn])


def _refined(reference: Reference, times: float, target: _Target) -> tuple[Reference, np.ndarray]:
    """Correct the reference of some rows for all rows, which are ``times`` as many.

    The Fisher information grows with the rows; the mode, sigma and d are found again, from there.
    """
    rotation, curvature = np.asarray(reference.rotation), times * np.asarray(reference.curvature)
    scale = float(reference.intercept_scale)
    x, logs = np.asarray(rotate(reference.mode, rotation)), np.asarray(reference.logs)
    spread = _both_ways(x.shape)
    reference = _around(x, spread, rotation, curvature, logs, scale, target)
    logs, root = _best_logs(spread, reference, target)
    x = np.asarray(from_coordinates(jnp.zeros(x.shape), jnp.asarray(logs), reference))
    return _around(x, spread, rotation, curvature, logs, scale, target), root


def _intercept_scale(logs: np.ndarray, problem: Problem) -> float:
    """Return what, times a normal of precision d, is an intercept of its prior variance."""
    precision = np.exp(logs[1] + 2 * logs[0])
    return float(np.sqrt(precision / float(problem.hyper.intercept_precision)))


def _rescaled(
    x: np.ndarray, scale: float, logs: np.ndarray, problem: Problem
) -> tuple[np.ndarray, float]:
    """Give x (..., k, r + 1) the scale of the intercept that suits (log sigma, log d)."""
    better = _intercept_scale(logs, problem)
    return np.append(x[..., :-1], x[..., -1:] * scale / better, axis=-1), better


def _rough_mode(logs: np.ndarray, scale: float, target: _Target) -> tuple[np.ndarray, np.ndarray]:
    """Mode of x and value of d in turn, as if all rows had the same Fisher information."""
    problem = target.problem
    eigenvalues = np.asarray(problem.factor.eigenvalues, np.float64)
    squares = np.append(eigenvalues, scale**2 * problem.n_rows)
    x = np.zeros((problem.n_columns, len(squares)))
    alone, identity = np.zeros((1, *x.shape)), np.eye(len(squares))
    level, logs = 0.1, logs.copy()
    for _ in range(ROUNDS):
        ratio = np.exp(logs[1])
        guess = np.broadcast_to(level * squares, x.shape)
        x = _mode(x, alone, logs, scale, target, guess + ratio, identity, STEPS[0])
        functions = functions_of(jnp.asarray(x), problem, scale)
        information = _fisher(functions, jnp.asarray(logs), target.nodes, problem)
        level = float(jnp.mean(jnp.einsum("jjn->n", information)) / len(information))
        guess = np.broadcast_to(level * squares, x.shape)
        logs[1] = np.log(_ratio((guess + ratio) * x, guess, ratio))
    return x, logs


def _reference_at(
    places: np.ndarray,
    spread: np.ndarray,
    logs: np.ndarray,
    scale: float,
    target: _Target,
) -> Reference:
    """Make the reference at (log sigma, log d), of the curvature at places (s, k, r + 1)."""
    rotation, curvature = _curvature(places, logs, scale, target)
    x = places.mean(axis=0)
    return _around(x, spread, rotation, curvature, logs, scale, target)


def _around(
    x: np.ndarray,
    spread: np.ndarray,
    rotation: np.ndarray,
    curvature: np.ndarray,
    logs: np.ndarray,
    scale: float,
    target: _Target,
) -> Reference:
    """Make the reference of a curvature, its mean near x (k, r + 1)."""
    information = curvature + np.exp(logs[1])
    around = np.asarray(jax.vmap(rotate, (0, None))(spread / np.sqrt(information), rotation))
    x = _mode(x, around, logs, scale, target, information, rotation, STEPS[1])
    moved = np.asarray(_slope_by_log_scale(x, around, jnp.asarray(logs), scale, target))
    mode = np.asarray(unrotate(x, rotation))
    slope = np.asarray(unrotate(moved, rotation)) / information
    growth = np.sum(curvature * mode * slope) / max(np.sum(curvature * mode**2), 1e-300)
    parts: dict[str, Any] = dict(  # arrays of the host, which keep float64
        rotation=rotation,
        curvature=curvature,
        mode=mode,
        slope=slope,
        growth=np.clip(growth, 0.0, 1.0),
        logs=np.asarray(logs),
        spread=0.1 * np.eye(2),
        intercept_scale=np.asarray(scale),
        nodes=target.nodes,
    )
    return Reference(**parts)


@jax.jit
def _slope_of_logs(
    logs: jax.Array, spread: jax.Array, setup: Setup, problem: Problem
) -> tuple[jax.Array, jax.Array]:
    """Mean log density at (log sigma, log d) over coordinates xi (s, k, r + 1); its gradient."""

    def value(logs):
        each = jax.vmap(lambda xi: log_density_at(xi, logs, setup, problem))
        return jnp.mean(each(spread))

    return jax.value_and_grad(value)(logs)


def _best_logs(
    spread: np.ndarray, reference: Reference, target: _Target
) -> tuple[np.ndarray, np.ndarray]:
    """Find (log sigma, log d) of the largest mean log density, and a root of their covariance."""
    setup = Setup(reference)

    def loss(logs):
        value, slope = _slope_of_logs(jnp.asarray(logs), jnp.asarray(spread), setup, target.problem)
        return -float(value), -np.asarray(slope, np.float64)

    start = np.asarray(reference.logs)
    around = [(each - 1.5, each + 1.5) for each in start]
    found = scipy.optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=around, options={"maxiter": 8}
    ).x
    step = 0.02
    rows = [(loss(found + step * e)[1] - loss(found - step * e)[1]) / (2 * step) for e in np.eye(2)]
    values, vectors = np.linalg.eigh((np.asarray(rows) + np.asarray(rows).T) / 2)
    covariance = (vectors / np.clip(values, 1 / MOST_SPREAD**2, None)) @ vectors.T
    return found, np.linalg.cholesky(covariance)
