"""Hamiltonian Monte Carlo for scores, intercept, noise variance and precision together.

The weights are integrated out, and the coordinates are those in which the prior is a standard
normal (:mod:`bmsvm.models.whitening`), with log sigma2 and log tau beside them. There the
posterior is close to a normal with independent coordinates, whose scales are learned in warm-up.

Two things make trajectories cheap. Their length is known, about two thirds of half a period of that
normal, so no tree is built. And the force they follow is that of a likelihood whose kinks are
rounded off over the length of a step; the Metropolis test uses the exact density, so that the
rounding lowers the acceptance rate and never the correctness.

After the move the weights are drawn from their conditional, which makes it a move of the joint
posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from bmsvm.inference.adaptation import (
    Adaptation,
    Phase,
    adapt,
    init_adaptation,
    step_size_of,
)
from bmsvm.inference.blocks.base import Block
from bmsvm.inference.noise import normals_like, uniform_of
from bmsvm.models.conditionals import group, weights_given_white
from bmsvm.models.hierarchy import (
    Position,
    log_likelihood,
    log_noise_prior,
    log_precision_prior,
    typical_precision,
)
from bmsvm.models.problem import Problem
from bmsvm.models.whitening import White, colour, white_shapes, whiten

WINDOWS = (0.1, 0.25, 0.5, 0.85)
"""Ends of the windows in which scales are learned, as fractions of warm-up."""

FIRST_STEP = 0.1

GOLDEN = 0.5 * (math.sqrt(5) - 1)
"""Multiples of it, less their whole part, fill (0, 1) evenly: how lengths vary."""

INFORMATION_GUESS = 0.05
"""First guess of what the labels tell of a unit-noise score, from which first scales follow."""


class Coordinates(NamedTuple):
    """Whitened position: ``white`` columns, ``intercept`` (k,), and (log sigma2, log tau)."""

    white: White
    intercept: jax.Array
    logs: jax.Array


class _Noise(NamedTuple):
    """Standard normals of one sweep.

    momentum
        Of the coordinates as one vector, shape (m,).
    white
        What columns do not determine of their whitened coordinates.
    weights
        Of the draw of the weights, shape (r, k).
    coins
        Of the jitter of the step size and of the Metropolis test, shape (2,).
    """

    momentum: jax.Array
    white: White
    weights: jax.Array
    coins: jax.Array


def _draw_noise(key: jax.Array, scales: jax.Array, position: Position, problem: Problem) -> _Noise:
    """Draw all random numbers of one sweep."""
    white = _zeros(problem, scales.dtype).white
    white = white if white.outside is not None else White(jnp.zeros(0), None)
    like = _Noise(scales, white, group(position.weights, problem), jnp.zeros(2))
    return normals_like(key, like, position.columns.dtype)


def _zeros(problem: Problem, dtype: Any) -> Coordinates:
    inside, outside = white_shapes(problem)
    return Coordinates(
        White(jnp.zeros(inside, dtype), None if outside is None else jnp.zeros(outside, dtype)),
        jnp.zeros(problem.n_columns, dtype),
        jnp.zeros(2, dtype),
    )


def _coordinates_of(problem: Problem, dtype: Any) -> Callable[[jax.Array], Coordinates]:
    """Return the function that takes coordinates apart that were put into one vector.

    Trajectories and adaptation treat all coordinates alike: as one vector they are a third of the
    operations to compile.
    """
    return ravel_pytree(_zeros(problem, dtype))[1]


def _vector(coordinates: Coordinates) -> jax.Array:
    return ravel_pytree(coordinates)[0]


def _to_coordinates(noise: White, position: Position, problem: Problem) -> Coordinates:
    scale = jnp.sqrt(position.noise_variance)
    observed = problem.design.mask.T > 0
    residual = jnp.where(observed, position.columns - position.intercept, 0.0) / scale
    root_eta = jnp.sqrt(problem.hyper.intercept_precision)
    return Coordinates(
        whiten(noise, residual, position.precision, problem),
        position.intercept / scale * root_eta,
        jnp.log(jnp.stack([position.noise_variance, position.precision])),
    )


def _parameters(coordinates: Coordinates, problem: Problem) -> tuple[jax.Array, ...]:
    """Columns, intercept, noise variance and precision: undo :func:`_to_coordinates`."""
    noise_variance, precision = jnp.exp(coordinates.logs)
    scale = jnp.sqrt(noise_variance)
    intercept = scale * coordinates.intercept / jnp.sqrt(problem.hyper.intercept_precision)
    columns = intercept[:, None] + scale * colour(coordinates.white, precision, problem).T
    columns = jnp.where(problem.design.mask > 0, columns, 0.0).T
    return columns, intercept, noise_variance, precision


def _log_density(
    coordinates: Coordinates,
    columns: jax.Array,
    problem: Problem,
    smoothing: jax.Array | None = None,
) -> jax.Array:
    """Log posterior density of the coordinates, up to a constant, given the columns they map to.

    ``smoothing`` is the half-width, in units of sigma, over which kinks are rounded off.
    """
    noise_variance, precision = jnp.exp(coordinates.logs)
    if smoothing is not None:
        smoothing = smoothing * jax.lax.stop_gradient(jnp.sqrt(noise_variance))
    return (
        jnp.sum(log_likelihood(columns, problem, smoothing))
        - 0.5 * _squared_norm((coordinates.white, coordinates.intercept))
        + log_noise_prior(noise_variance, problem)
        + log_precision_prior(precision, problem)
        + jnp.sum(coordinates.logs)
    )


def _rough_log_density(coordinates: Coordinates, problem: Problem, smoothing: jax.Array | None):
    columns, *_ = _parameters(coordinates, problem)
    return _log_density(coordinates, columns, problem, smoothing)


def _first_scales(problem: Problem, dtype: Any) -> Coordinates:
    inside, outside = white_shapes(problem)
    prior_variance = 1 + problem.design.eigenvalues / typical_precision(problem)
    guess = jax.lax.rsqrt(1 + INFORMATION_GUESS * prior_variance)[:, None, :]
    return Coordinates(
        White(
            jnp.broadcast_to(guess, inside).astype(dtype),
            None if outside is None else jnp.ones(outside, dtype),
        ),
        jnp.ones(problem.n_columns, dtype),
        jnp.full(2, 0.5, dtype),
    )


def _cast(tree: Any, dtype: Any) -> Any:
    """Turn the floating-point leaves of a tree into a type."""
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )


def _squared_norm(tree: Any) -> jax.Array:
    return jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)]))


def hamiltonian(
    *,
    path_length: float = 2.0,
    max_steps: int = 128,
    target_accept_prob: float = 0.65,
    smoothing: float = 1.0,
    jitter: float = 0.2,
    variation: float = 0.5,
    force_dtype: Any = jnp.float32,
) -> Block:
    """Hamiltonian Monte Carlo on the whitened scores, b, log sigma2 and log tau.

    Parameters
    ----------
    path_length
        Mean length of a trajectory, in posterior standard deviations.
    max_steps
        Most leapfrog steps a trajectory may take; a shorter path is taken then.
    target_accept_prob
        Acceptance probability, geometric mean of the chains, to which warm-up tunes the step size.
    smoothing
        Half-width, in steps, over which the force rounds off the kinks; 0 for the exact force.
    jitter
        Relative half-width of the uniform jitter of the step size.
    variation
        Relative half-width over which the length varies from sweep to sweep, the same for all
        chains. At one length all draws would lie across from the ones before, and how far out they
        are would change slowly.
    force_dtype
        Type in which forces are computed; the path and the Metropolis test have the position's.
    """

    def init(position: Position, problem: Problem) -> Adaptation:
        dtype = position.columns.dtype
        scales = _vector(_first_scales(problem, dtype))
        return init_adaptation(jnp.zeros_like(scales), scales, FIRST_STEP, dtype)

    def step(key, position, memory: Adaptation, problem: Problem, phase: Phase):
        dtype = position.columns.dtype
        scales = memory.scales
        noise = _draw_noise(key, scales, position, problem)
        start = _vector(_to_coordinates(noise.white, position, problem))
        place, coin = uniform_of(noise.coins)
        step_size = step_size_of(memory, phase).astype(dtype)
        length = path_length * (1 + variation * (2 * jnp.mod(GOLDEN * phase.sweep, 1.0) - 1))
        num_steps = jnp.clip(jnp.ceil(length / step_size), 1, max_steps).astype(jnp.int32)
        epsilon = step_size * (1 + jitter * (2 * place - 1))
        rough = _cast(problem, force_dtype)
        width = (smoothing * epsilon).astype(force_dtype) if smoothing > 0 else None
        apart = _coordinates_of(problem, force_dtype)

        def force(at):
            def density(vector):
                return _rough_log_density(apart(vector), rough, width)

            return jax.grad(density)(at.astype(force_dtype)).astype(dtype)

        def leapfrog(_, carry):
            at, momentum = carry
            momentum = momentum + epsilon * scales * force(at)
            return at + epsilon * scales * momentum, momentum

        # Half a drift, then kicks and drifts, then half a drift back: one gradient a step.
        momentum = noise.momentum
        carry = (start + 0.5 * epsilon * scales * momentum, momentum)
        end, end_momentum = jax.lax.fori_loop(0, num_steps, leapfrog, carry)
        end = end - 0.5 * epsilon * scales * end_momentum

        apart = _coordinates_of(problem, dtype)
        columns, intercept, noise_variance, precision = _parameters(apart(end), problem)
        moved = position._replace(
            columns=columns,
            intercept=intercept,
            noise_variance=noise_variance,
            precision=precision,
        )
        kinetic = 0.5 * (jnp.sum(momentum**2) - jnp.sum(end_momentum**2))
        log_ratio = (
            _log_density(apart(end), moved.columns, problem)
            - _log_density(apart(start), position.columns, problem)
            + kinetic
        )
        log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)  # diverged
        accept_prob = jnp.exp(jnp.minimum(log_ratio, 0.0))
        accepted = coin < accept_prob
        here, position = jax.tree.map(
            lambda new, old: jnp.where(accepted, new, old), (end, moved), (start, position)
        )
        conditional = weights_given_white(apart(here).white, position, problem)
        position = position._replace(weights=conditional.at(noise.weights))
        memory = adapt(memory, here, accept_prob, target_accept_prob, phase, WINDOWS)
        info = {"accept_prob": accept_prob, "step_size": step_size, "num_steps": num_steps}
        return position, memory, info

    return Block("hamiltonian", init, step)
