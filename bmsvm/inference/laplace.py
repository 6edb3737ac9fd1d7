"""Laplace's approximation at large n: what the sampler of weights takes its coordinates from.

About the mean of weights and intercept at a given sigma and ``d = tau/sigma2``, by L-BFGS; d by the
fixed point of the evidence, whose trace is that of the approximate posterior covariance; and the
Fisher information there, ``A = Phi' I Phi``, diagonalised once. All in passes over the basis, of
some of the rows where they are many; a few passes over all of them then put mode, sigma and d
right. Rows that several processes share are gathered for the first part, so that the reference is
that of one process.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
from bmsvm.models.problem import Problem, some_rows
from bmsvm.models.reference import (
    Reference,
    curvature_at,
    distances,
    from_coordinates,
    mean_and_root,
    monomials,
    rotate,
    unrotate,
)

__all__ = ["NODES", "with_reference"]

NODES = 16
"""Points at which the noise of the scores is integrated, or twice the columns if that is more."""

LARGEST = 3072
"""Size of a rotation of all columns together; beyond it columns share one."""

PAIRS = 2
"""Pairs of opposite places around the mean, over which density and information are averaged."""

ROUNDS = 4
"""Rounds of mode and d before the Fisher information is computed."""

STEPS = (15, 40)
"""Most steps of L-BFGS in each round, and in the last."""

REFERENCE_ROWS = 200_000
"""Rows from which the reference is made; evenly spaced of more."""

PART = 4096
"""Rows of which it is summed at a time."""

GROWTH_ROWS = 20_000
"""Rows from which it is found how the Fisher information follows log sigma and log d."""

MOST_GROWTH = 4.0
"""Largest slope of its logarithm."""

STAGES = 3
"""How often the reference is made, each time at the log sigma and log d of the one before."""

REACH = 1.5
"""Standard deviations of log sigma and log d at which the mode is looked for around it."""

MOST_SPREAD = 0.5
"""Largest first guess of a standard deviation of log sigma or log d."""

SMALLEST_RATIO, LARGEST_RATIO = 1e-6, 1e6


@jax.jit
def _value_and_slope(
    x: jax.Array,
    shifts: jax.Array,
    logs: jax.Array,
    scale: jax.Array,
    nodes: jax.Array,
    problem: Problem,
) -> tuple[jax.Array, jax.Array]:
    """Log likelihood plus log prior of x (k, r + 1) at (log sigma, log d), and its gradient.

    The likelihood is the mean over shifts of x, shape (S, k, r + 1).
    """

    def value(x):
        def shifted(by):
            return log_marginal_likelihood(x + by, logs, scale, nodes, problem)

        # The intercept has about the precision d too, by its scale.
        prior = -0.5 * jnp.exp(logs[1]) * jnp.sum(x**2)
        return jnp.mean(jax.vmap(shifted)(shifts)) + prior

    return jax.value_and_grad(value)(x)


@functools.cache
def _noise(shape: tuple[int, ...]) -> np.ndarray:
    """Return normal noise and its negative, always the same: shape (2 PAIRS, *shape)."""
    half = np.random.default_rng(1).standard_normal((PAIRS, *shape))
    return np.concatenate([half, -half])


def _mode(
    x: np.ndarray,
    logs: np.ndarray,
    scale: float,
    nodes: jax.Array,
    problem: Problem,
    information: np.ndarray,
    rotation: np.ndarray,
    steps: int,
) -> np.ndarray:
    """Climb to about the mean of x (k, r + 1), in coordinates of about unit curvature.

    It is the mode of the density averaged over the noise of the approximate posterior: that is
    where a normal of this precision comes nearest to the posterior.
    """
    root = np.sqrt(information)
    turned = np.asarray(rotation)

    def outward(flat):
        return np.asarray(rotate(flat.reshape(x.shape) / root, turned))

    shifts = np.asarray(rotate(_noise(x.shape) / root, turned))

    def loss(flat):
        value, slope = _value_and_slope(outward(flat), shifts, logs, scale, nodes, problem)
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


def _fisher_matrix(
    places: Sequence[np.ndarray],
    logs: np.ndarray,
    scale: float,
    nodes: jax.Array,
    problem: Problem,
) -> np.ndarray:
    """Fisher information of x, the mean over some x (k, r + 1).

    Of all columns together, or beyond :data:`LARGEST` of one, their mean.
    """
    k, wide = places[0].shape
    basis, eigenvalues = problem.factor
    information = jnp.zeros(())
    for x in places:
        functions = functions_of(jnp.asarray(x), problem, scale)
        information = information + _fisher(functions, jnp.asarray(logs), nodes, problem)
    information = information / len(places)
    scaled = jnp.append(jnp.sqrt(eigenvalues), scale).astype(basis.dtype)
    if k * wide > LARGEST:
        mean = jnp.mean(jnp.stack([information[j, j] for j in range(k)]), axis=0)
        return np.asarray(_weighted_products(basis, scaled, mean[None, None], 0, 0), np.float64)
    matrix = np.zeros((k, wide, k, wide))
    for first in range(k):
        for second in range(first + 1):
            block = np.asarray(_weighted_products(basis, scaled, information, first, second))
            matrix[first, :, second] = block
            matrix[second, :, first] = block.T
    return matrix.reshape(k * wide, k * wide)


def _eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2, overwrite_a=True)
    return np.maximum(values, 0.0), vectors


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
    reference = beside(_from_some(nodes, near), problem)
    if near.n_rows < problem.n_rows:
        reference = _refined(reference, problem.n_rows / near.n_rows, problem)
    kept = jax.tree.map(lambda part: jnp.asarray(part, nodes.dtype), reference)
    return replace(problem, reference=beside(kept, problem))


def _from_some(nodes: jax.Array, problem: Problem) -> Reference:
    """Make the reference of rows that are here."""
    hyper = problem.hyper
    log_scale = 0.5 * float(np.log(hyper.noise_rate / hyper.noise_shape))
    precision = 0.1
    logs = np.asarray([log_scale, np.log(precision) - 2 * log_scale])
    scale = _intercept_scale(logs, problem)
    x, logs = _rough_mode(logs, scale, nodes, problem)
    x, scale = _rescaled(x, scale, logs, problem)
    places = [x]
    for stage in range(STAGES):
        last = stage == STAGES - 1
        reference = _reference_at(x, places, logs, scale, nodes, problem, rounds=int(last))
        if last:
            break
        logs = _best_logs(replace(problem, reference=reference))
        # At the mode rows look surer than they are on average, and their labels more telling.
        noise = [np.zeros(x.shape), *_noise(x.shape)]
        around = [np.asarray(from_coordinates(xi, jnp.asarray(logs), reference)) for xi in noise]
        x, *places = (_rescaled(each, scale, logs, problem)[0] for each in around)
        scale = _intercept_scale(logs, problem)
    return reference


def _refined(reference: Reference, times: float, problem: Problem) -> Reference:
    """Put the reference of some rows right for all, of which there are so many times more.

    The Fisher information grows with the rows; the mode, sigma and d are found again, from there.
    """
    rows: Any = dict(
        curvature=times * np.asarray(reference.curvature),
        scales=np.asarray(reference.scales) / np.sqrt(times),
    )
    for steps in STEPS:
        reference = reference._replace(**rows)
        logs, rotation = np.asarray(reference.logs), np.asarray(reference.rotation)
        scale, nodes = float(reference.intercept_scale), reference.nodes
        information = np.asarray(reference.curvature) + np.exp(logs[1])
        x = np.asarray(rotate(reference.mode, rotation))
        x = _mode(x, logs, scale, nodes, problem, information, rotation, steps)
        rows = dict(mode=np.asarray(unrotate(x, rotation)))
        if steps == STEPS[0]:
            there = reference._replace(**rows)
            logs = _best_logs(replace(problem, reference=there))
            mean, _ = mean_and_root(jnp.asarray(logs), there)
            rows.update(mode=np.asarray(mean), logs=logs)
    return _followed(reference._replace(**rows), problem, rounds=1)


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
    """Give x (k, r + 1) the scale of the intercept that suits (log sigma, log d)."""
    better = _intercept_scale(logs, problem)
    return np.append(x[:, :-1], x[:, -1:] * scale / better, axis=1), better


def _rough_mode(
    logs: np.ndarray, scale: float, nodes: jax.Array, problem: Problem
) -> tuple[np.ndarray, np.ndarray]:
    """Mode of x and value of d in turn, as if all rows had the same Fisher information."""
    eigenvalues = np.asarray(problem.factor.eigenvalues, np.float64)
    squares = np.append(eigenvalues, scale**2 * problem.n_rows)
    x = np.zeros((problem.n_columns, len(squares)))
    identity, level, logs = np.eye(len(squares)), 0.1, logs.copy()
    for _ in range(ROUNDS):
        ratio = np.exp(logs[1])
        guess = np.broadcast_to(level * squares, x.shape)
        x = _mode(x, logs, scale, nodes, problem, guess + ratio, identity, STEPS[0])
        functions = functions_of(jnp.asarray(x), problem, scale)
        information = _fisher(functions, jnp.asarray(logs), nodes, problem)
        level = float(jnp.mean(jnp.einsum("jjn->n", information)) / len(information))
        guess = np.broadcast_to(level * squares, x.shape)
        logs[1] = np.log(_ratio((guess + ratio) * x, guess, ratio))
    return x, logs


def _reference_at(
    x: np.ndarray,
    places: Sequence[np.ndarray],
    logs: np.ndarray,
    scale: float,
    nodes: jax.Array,
    problem: Problem,
    rounds: int,
) -> Reference:
    """Make the reference at (log sigma, log d), of the curvature at some places, mode near x."""
    values, rotation = _eigen(_fisher_matrix(places, logs, scale, nodes, problem))
    curvature = np.broadcast_to(values.reshape(-1, x.shape[1]), x.shape)
    information = curvature + np.exp(logs[1])
    x = _mode(x, logs, scale, nodes, problem, information, rotation, STEPS[1])
    parts: dict[str, Any] = dict(  # arrays of the host, which keep float64
        rotation=rotation,
        curvature=curvature,
        mode=np.asarray(unrotate(x, rotation)),
        bends=np.zeros((5, *x.shape)),
        growth=np.zeros((2, *x.shape)),
        logs=np.asarray(logs),
        scales=np.full(2, 0.1),
        intercept_scale=np.asarray(scale),
        nodes=nodes,
    )
    reference = _grown(_bent(Reference(**parts), problem), problem)
    return _followed(reference, problem, rounds)


def _followed(reference: Reference, problem: Problem, rounds: int) -> Reference:
    """Let the mode follow log sigma and log d, and see how far those go, in turn."""
    for _ in range(rounds):
        bent = _bent(reference, problem)
        scales = _spread_of_logs(np.asarray(bent.logs), replace(problem, reference=bent))
        reference = bent._replace(scales=cast(Any, scales))
    return _bent(reference, problem)


def _bent(reference: Reference, problem: Problem) -> Reference:
    """Let the mode follow log sigma and log d: modes at places around, and a quadratic in them."""
    mode, scale = np.asarray(reference.mode), float(reference.intercept_scale)
    rotation, nodes = np.asarray(reference.rotation), reference.nodes
    centre, spread = np.asarray(reference.logs), np.asarray(reference.scales)
    terms, moved = [], []
    for place in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1)):
        logs = centre + REACH * np.asarray(place) * spread
        start = np.asarray(from_coordinates(jnp.zeros(mode.shape), jnp.asarray(logs), reference))
        curvature = np.asarray(curvature_at(logs, reference))
        information = curvature + np.exp(logs[1])
        x = _mode(start, logs, scale, nodes, problem, information, rotation, STEPS[0])
        shrunk = (curvature + np.exp(centre[1])) / information
        terms.append(np.asarray(monomials(jnp.asarray(logs), reference)))
        moved.append(np.asarray(unrotate(x, rotation)) / shrunk - mode)
    bends = np.linalg.solve(np.asarray(terms), np.asarray(moved).reshape(5, -1))
    return reference._replace(bends=cast(Any, bends.reshape(5, *mode.shape)))


def _grown(reference: Reference, problem: Problem) -> Reference:
    """Let the curvature follow log sigma and log d: that at places around, of some rows."""
    problem = some_rows(problem, GROWTH_ROWS) if problem.n_rows > GROWTH_ROWS else problem
    shape, rotation = np.shape(reference.mode), np.asarray(reference.rotation)
    scale, growth = float(reference.intercept_scale), []
    for axis in np.eye(2):
        ends = []
        for sign in (1, -1):
            logs = np.asarray(reference.logs) + sign * REACH * axis * np.asarray(reference.scales)
            places = [
                np.asarray(from_coordinates(jnp.asarray(xi), jnp.asarray(logs), reference))
                for xi in _noise(shape)
            ]
            matrix = _fisher_matrix(places, logs, scale, reference.nodes, problem)
            values = np.sum(rotation * (matrix @ rotation), axis=0)
            far = float(axis @ np.asarray(distances(logs, reference)))
            ends.append((far, np.log(np.maximum(values, 1e-300)).reshape(-1, shape[1])))
        (near, one), (far, other) = ends
        fall = np.clip((other - one) / (near - far), -MOST_GROWTH, MOST_GROWTH)
        growth.append(np.broadcast_to(fall, shape))
    return reference._replace(growth=cast(Any, np.asarray(growth)))


@jax.jit
def _slope_of_logs(logs: jax.Array, problem: Problem) -> tuple[jax.Array, jax.Array]:
    """Log density of (log sigma, log d), x integrated out by the reference; and its gradient."""

    def value(logs):
        def at(xi):
            return log_density(Coordinates(xi, logs), problem)

        return jnp.mean(jax.vmap(at)(_noise(cast(Reference, problem.reference).mode.shape)))

    return jax.value_and_grad(value)(logs)


def _loss_of_logs(logs: np.ndarray, problem: Problem) -> tuple[float, np.ndarray]:
    """Minus :func:`_slope_of_logs`, on the host."""
    value, slope = _slope_of_logs(logs, problem)
    return -float(value), -np.asarray(slope, np.float64)


def _best_logs(problem: Problem) -> np.ndarray:
    """Mode of (log sigma, log d), x integrated out by the reference."""
    start = np.asarray(cast(Reference, problem.reference).logs)
    around = [(each - 1.5, each + 1.5) for each in start]
    return scipy.optimize.minimize(
        _loss_of_logs,
        start,
        (problem,),
        jac=True,
        method="L-BFGS-B",
        bounds=around,
        options={"maxiter": 20},
    ).x


def _spread_of_logs(logs: np.ndarray, problem: Problem) -> np.ndarray:
    """Return standard deviations of log sigma and log d by the curvature of their density."""
    steps = 0.02 * np.eye(2)
    slopes = [
        _loss_of_logs(logs + step, problem)[1] - _loss_of_logs(logs - step, problem)[1]
        for step in steps
    ]
    hessian = np.asarray(slopes) / 0.04
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    return np.sqrt((vectors**2) @ (1 / np.clip(values, 1 / MOST_SPREAD**2, None)))
