"""A normal approximation at large n: what the sampler of weights takes its coordinates from.

It begins as Laplace's: the mode of weights and intercept at a given sigma and ``d = tau/sigma2``,
by L-BFGS; d by the fixed point of the evidence, whose trace is that of the approximate posterior
covariance; and the Fisher information there, ``A = Phi' I Phi``, diagonalised. At the mode rows
look surer than they are on average, though, which puts sigma and d many standard deviations off. It
goes on as a variational approximation does: the mean is where the log density, averaged over a few
draws around it, is largest, the Fisher information is averaged likewise, and sigma and d are those
of the largest average, in turn until sigma and d stay.

All in passes over the basis, of some of the rows where they are many; a few passes over all of them
then put mean, sigma and d right. Rows that several processes share are gathered for the first part,
so that the reference is that of one process.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize

from bmsvm.inference.loo import obstacle
from bmsvm.inference.quasirandom import noise_nodes
from bmsvm.inference.sharding import beside, some_rows_here
from bmsvm.models.collapsed import (
    Coordinates,
    fisher_information,
    functions_of,
    log_density,
    log_marginal_likelihood,
)
from bmsvm.models.kernel_parameters import KernelGrid
from bmsvm.models.problem import Problem
from bmsvm.models.reference import Reference, from_coordinates, rotate, unrotate

__all__ = ["NODES", "with_reference"]

NODES = 16
"""Points at which the noise of the scores is integrated, or twice the columns if that is more."""

LARGEST = 3072
"""Size of a rotation of all columns together; beyond it columns share one."""

ROUNDS = 4
"""Rounds of mode and d before the Fisher information is computed."""

STEPS = (15, 20)
"""Most steps of L-BFGS in each round, and in the last."""

REFERENCE_ROWS = 200_000
"""Rows from which the reference is made; evenly spaced of more."""

PART = 4096
"""Rows of which it is summed at a time."""

AVERAGED = 2
"""Places, and as many opposite, over which density and Fisher information are averaged."""

PASSES = 6
"""Most times that mean, Fisher information, sigma and d are found in turn, averaged so."""

FURTHER = 1.7
"""Times the way to better sigma and d that is gone: they follow each other about half way."""

SETTLED = 0.3
"""Standard deviations of a change of log sigma and log d that needs no other pass."""

MOST_SPREAD = 0.5
"""Largest first guess of a standard deviation of log sigma or log d."""

SMALLEST_RATIO, LARGEST_RATIO = 1e-6, 1e6


def _mean_log_likelihood(x, around, logs, scale, nodes, problem):
    """Log likelihood of x (k, r + 1) plus each of ``around`` (s, k, r + 1), the mean over them."""
    each = jax.vmap(lambda by: log_marginal_likelihood(x + by, logs, scale, nodes, problem))
    return jnp.mean(each(around))


@jax.jit
def _value_and_slope(
    x: jax.Array,
    around: jax.Array,
    logs: jax.Array,
    scale: jax.Array,
    nodes: jax.Array,
    problem: Problem,
) -> tuple[jax.Array, jax.Array]:
    """Mean log likelihood plus log prior of x at (log sigma, log d), and its gradient."""

    def value(x):
        # The intercept has about the precision d too, by its scale.
        prior = -0.5 * jnp.exp(logs[1]) * jnp.sum(x**2)
        return _mean_log_likelihood(x, around, logs, scale, nodes, problem) + prior

    return jax.value_and_grad(value)(x)


@jax.jit
def _slope_by_log_scale(x, around, logs, scale, nodes, problem):
    """Return the derivative of the gradient of the log likelihood by log sigma, (k, r + 1)."""
    step = 1e-2

    def slope(by):
        moved = logs + jnp.asarray([by, 0.0])
        return jax.grad(_mean_log_likelihood)(x, around, moved, scale, nodes, problem)

    return (slope(step) - slope(-step)) / (2 * step)


def _mode(
    x: np.ndarray,
    around: np.ndarray,
    logs: np.ndarray,
    scale: float,
    nodes: jax.Array,
    problem: Problem,
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
        value, slope = _value_and_slope(outward(flat), around, logs, scale, nodes, problem)
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
    nodes: jax.Array,
    problem: Problem,
) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and eigenvalues (k, r + 1) of the Fisher information, the mean over places."""
    _, k, wide = places.shape
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


def with_reference(problem: Problem, *, num_nodes: int | None = None) -> Problem:
    """Give a problem the reference that :func:`bmsvm.inference.blocks.collapsed` goes by.

    Parameters
    ----------
    problem
        The prepared data: theta fixed or on a grid, each value of which has a reference; coupling
        ``sum_to_zero``, likelihood ``hinge`` or ``normalized``.
    num_nodes
        Points at which the noise is integrated: even, at least twice the columns. Default: 16, or
        as many as are needed.
    """
    if problem.grid is not None:
        return _with_references(problem, num_nodes)
    needed = obstacle(problem.coupling, problem.likelihood)
    if needed is not None or problem.samples_kernel:
        given = "parameters of the kernel that are fixed, or a lengthscale on a given grid"
        raise ValueError(f'preset="large" needs {needed or given}')
    k = problem.n_columns
    count = max(NODES, 2 * k) if num_nodes is None else num_nodes
    if count < 2 * k or count % 2:
        raise ValueError(
            f"num_nodes must be even and at least {2 * k}, twice the columns; got {num_nodes}"
        )
    nodes = jnp.asarray(noise_nodes(count, k), jnp.result_type(float))
    near = some_rows_here(problem, REFERENCE_ROWS)
    reference, scales = _from_some(nodes, near)
    reference = beside(reference, problem)
    if near.n_rows < problem.n_rows:
        reference, scales = _refined(reference, problem.n_rows / near.n_rows, problem)
    reference = reference._replace(scales=jnp.asarray(scales))
    kept = jax.tree.map(lambda part: jnp.asarray(part, nodes.dtype), reference)
    return replace(problem, reference=beside(kept, problem))


def _from_some(nodes: jax.Array, problem: Problem) -> tuple[Reference, np.ndarray]:
    """Make the reference of rows that are here, and standard deviations of log sigma and log d."""
    hyper = problem.hyper
    log_scale = 0.5 * float(np.log(hyper.noise_rate / hyper.noise_shape))
    precision = 0.1
    logs = np.asarray([log_scale, np.log(precision) - 2 * log_scale])
    scale = _intercept_scale(logs, problem)
    x, logs = _rough_mode(logs, scale, nodes, problem)
    x, scale = _rescaled(x, scale, logs, problem)
    alone, spread = np.zeros((1, *x.shape)), _both_ways(x.shape)
    reference = _reference_at(x[None], alone, logs, scale, nodes, problem)
    for number in range(PASSES):
        better, scales = _best_logs(spread, replace(problem, reference=reference))
        way = better - logs
        logs = logs + (FURTHER if number else 1.0) * way
        at_logs = functools.partial(from_coordinates, logs=jnp.asarray(logs), reference=reference)
        places = np.asarray(jax.vmap(at_logs)(jnp.asarray(spread)))
        places, scale = _rescaled(places, scale, logs, problem)
        reference = _reference_at(places, spread, logs, scale, nodes, problem)
        if np.all(np.abs(way) < SETTLED * scales):
            break
    return reference, scales


def _both_ways(shape: tuple[int, ...]) -> np.ndarray:
    """Draw standard normals and add their negatives, shape (2 AVERAGED, *shape)."""
    drawn = np.random.default_rng(0).standard_normal((AVERAGED, *shape))
    return np.concatenate([drawn, -drawn])


def _refined(reference: Reference, times: float, problem: Problem) -> tuple[Reference, np.ndarray]:
    """Put the reference of some rows right for all, of which there are so many times more.

    The Fisher information grows with the rows; the mode, sigma and d are found again, from there.
    """
    rotation, curvature = np.asarray(reference.rotation), times * np.asarray(reference.curvature)
    scale, nodes = float(reference.intercept_scale), reference.nodes
    x, logs = np.asarray(rotate(reference.mode, rotation)), np.asarray(reference.logs)
    spread = _both_ways(x.shape)
    reference = _around(x, spread, rotation, curvature, logs, scale, nodes, problem)
    logs, scales = _best_logs(spread, replace(problem, reference=reference))
    x = np.asarray(from_coordinates(jnp.zeros(x.shape), jnp.asarray(logs), reference))
    return _around(x, spread, rotation, curvature, logs, scale, nodes, problem), scales


def _with_references(problem: Problem, num_nodes: int | None) -> Problem:
    """Give each value of the grid its reference, and the problem that of the first."""
    grid = cast(KernelGrid, problem.grid)
    each = [
        with_reference(replace(problem.at(jnp.asarray(i)), grid=None), num_nodes=num_nodes)
        for i in range(grid.values.size)
    ]
    references = [cast(Reference, one.reference) for one in each]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *references)
    return replace(
        problem,
        grid=grid._replace(reference=stacked),
        reference=references[int(grid.start)],
    )


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


def _rough_mode(
    logs: np.ndarray, scale: float, nodes: jax.Array, problem: Problem
) -> tuple[np.ndarray, np.ndarray]:
    """Mode of x and value of d in turn, as if all rows had the same Fisher information."""
    eigenvalues = np.asarray(problem.factor.eigenvalues, np.float64)
    squares = np.append(eigenvalues, scale**2 * problem.n_rows)
    x = np.zeros((problem.n_columns, len(squares)))
    alone, identity = np.zeros((1, *x.shape)), np.eye(len(squares))
    level, logs = 0.1, logs.copy()
    for _ in range(ROUNDS):
        ratio = np.exp(logs[1])
        guess = np.broadcast_to(level * squares, x.shape)
        x = _mode(x, alone, logs, scale, nodes, problem, guess + ratio, identity, STEPS[0])
        functions = functions_of(jnp.asarray(x), problem, scale)
        information = _fisher(functions, jnp.asarray(logs), nodes, problem)
        level = float(jnp.mean(jnp.einsum("jjn->n", information)) / len(information))
        guess = np.broadcast_to(level * squares, x.shape)
        logs[1] = np.log(_ratio((guess + ratio) * x, guess, ratio))
    return x, logs


def _reference_at(
    places: np.ndarray,
    spread: np.ndarray,
    logs: np.ndarray,
    scale: float,
    nodes: jax.Array,
    problem: Problem,
) -> Reference:
    """Make the reference at (log sigma, log d), of the curvature at places (s, k, r + 1)."""
    rotation, curvature = _curvature(places, logs, scale, nodes, problem)
    x = places.mean(axis=0)
    return _around(x, spread, rotation, curvature, logs, scale, nodes, problem)


def _around(
    x: np.ndarray,
    spread: np.ndarray,
    rotation: np.ndarray,
    curvature: np.ndarray,
    logs: np.ndarray,
    scale: float,
    nodes: jax.Array,
    problem: Problem,
) -> Reference:
    """Make the reference of a curvature, its mean near x (k, r + 1)."""
    information = curvature + np.exp(logs[1])
    around = np.asarray(jax.vmap(rotate, (0, None))(spread / np.sqrt(information), rotation))
    x = _mode(x, around, logs, scale, nodes, problem, information, rotation, STEPS[1])
    moved = np.asarray(_slope_by_log_scale(x, around, jnp.asarray(logs), scale, nodes, problem))
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
        scales=np.full(2, 0.1),
        intercept_scale=np.asarray(scale),
        nodes=nodes,
    )
    return Reference(**parts)


@jax.jit
def _slope_of_logs(
    logs: jax.Array, spread: jax.Array, problem: Problem
) -> tuple[jax.Array, jax.Array]:
    """Mean log density at (log sigma, log d) over coordinates xi (s, k, r + 1); its gradient."""

    def value(logs):
        each = jax.vmap(lambda xi: log_density(Coordinates(xi, logs), problem))
        return jnp.mean(each(spread))

    return jax.value_and_grad(value)(logs)


def _best_logs(spread: np.ndarray, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Find (log sigma, log d) of the largest mean log density, and standard deviations."""

    def loss(logs):
        value, slope = _slope_of_logs(jnp.asarray(logs), jnp.asarray(spread), problem)
        return -float(value), -np.asarray(slope, np.float64)

    start = np.asarray(cast(Reference, problem.reference).logs)
    around = [(each - 1.5, each + 1.5) for each in start]
    found = scipy.optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=around, options={"maxiter": 8}
    ).x
    step = 0.02
    rows = [(loss(found + step * e)[1] - loss(found - step * e)[1]) / (2 * step) for e in np.eye(2)]
    values, vectors = np.linalg.eigh((np.asarray(rows) + np.asarray(rows).T) / 2)
    variances = (vectors**2) @ (1 / np.clip(values, 1 / MOST_SPREAD**2, None))
    return found, np.sqrt(variances)
