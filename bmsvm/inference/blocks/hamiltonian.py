"""Momentum for everything at once: scores, intercept, noise variance and precision.

The weights are integrated out, and the coordinates are those in which the prior is a standard
normal (:mod:`bmsvm.models.whitening`), with log sigma2 and log tau beside them: there the
posterior is close to a normal with independent coordinates, whose scales are learned in warm-up.
Two things make the trajectories cheap. Their length is fixed at about a quarter period of that
normal, so no tree is built. And the force they follow is that of a likelihood whose kinks are
rounded off over the length of a step; the Metropolis test is on the exact density, so that the
rounding costs acceptance and never correctness.

After the move the weights are drawn from their conditional, which makes it a move of the joint
posterior.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc_util import dual_averaging, welford_covariance

from bmsvm.inference.blocks.base import Block, Phase
from bmsvm.models.conditionals import project, weights_full
from bmsvm.models.hierarchy import Position, log_likelihood, noise_prior, precision_prior
from bmsvm.models.problem import Problem
from bmsvm.models.whitening import White, colour, white_shapes, whiten

__all__ = ["hamiltonian"]

WINDOWS = (0.1, 0.25, 0.5, 0.85)
"""Ends of the windows in which scales are learned, as fractions of warm-up."""

SMALLEST_WINDOW = 10
FIRST_STEP = 0.1

INFORMATION_GUESS = 0.05
PRECISION_GUESS = 0.1
"""First guess of the scales: what the labels tell of a unit-noise score, at a typical tau."""


class Coordinates(NamedTuple):
    """Whitened position: ``white`` columns, ``intercept`` (k,), and (log sigma2, log tau)."""

    white: White
    intercept: jax.Array
    logs: jax.Array


class Memory(NamedTuple):
    """What the block learns.

    scales
        Standard deviation of each coordinate, flat.
    step
        State of dual averaging for the log step size.
    moments
        State of Welford's algorithm in the current window.
    """

    scales: jax.Array
    step: Any
    moments: Any


_, _update_step = dual_averaging()
_init_moments, _update_moments, _final_moments = welford_covariance(diagonal=True)


def _init_step(log_step: jax.Array) -> tuple[jax.Array, ...]:
    """Dual averaging that starts at a step size and is drawn towards twice that."""
    zero = jnp.zeros_like(log_step)
    return log_step, log_step, zero, jnp.zeros((), jnp.result_type(int)), log_step + math.log(2.0)


def _to_coordinates(key: jax.Array, position: Position, problem: Problem) -> Coordinates:
    scale = jnp.sqrt(position.noise_variance)
    observed = problem.design.mask.T > 0
    residual = jnp.where(observed, position.columns - position.intercept, 0.0) / scale
    root_eta = jnp.sqrt(problem.hyper.intercept_precision)
    return Coordinates(
        whiten(key, residual, position.precision, problem),
        position.intercept / scale * root_eta,
        jnp.log(jnp.stack([position.noise_variance, position.precision])),
    )


def _columns(
    coordinates: Coordinates, problem: Problem
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Columns (n, k), intercept (k,), noise variance and precision at the coordinates."""
    noise_variance, precision = jnp.exp(coordinates.logs)
    scale = jnp.sqrt(noise_variance)
    intercept = scale * coordinates.intercept / jnp.sqrt(problem.hyper.intercept_precision)
    columns = intercept + scale * colour(coordinates.white, precision, problem)
    observed = problem.design.mask.T > 0
    return jnp.where(observed, columns, 0.0), intercept, noise_variance, precision


def _log_density(
    coordinates: Coordinates, problem: Problem, smoothing: jax.Array | None = None
) -> jax.Array:
    """Log posterior density of the coordinates, up to a constant.

    ``smoothing`` is the half-width, in units of sigma, over which kinks are rounded off.
    """
    columns, _, noise_variance, precision = _columns(coordinates, problem)
    if smoothing is not None:
        smoothing = smoothing * jax.lax.stop_gradient(jnp.sqrt(noise_variance))
    normals = (coordinates.white, coordinates.intercept)
    squares = jnp.sum(jnp.stack([jnp.sum(x**2) for x in jax.tree.leaves(normals)]))
    return (
        jnp.sum(log_likelihood(columns, problem, smoothing))
        - 0.5 * squares
        + noise_prior(problem).log_prob(noise_variance)
        + precision_prior(problem).log_prob(precision)
        + jnp.sum(coordinates.logs)
    )


def _first_scales(problem: Problem, dtype: Any) -> jax.Array:
    inside, outside = white_shapes(problem)
    prior_variance = 1 + problem.design.eigenvalues / PRECISION_GUESS
    guess = jax.lax.rsqrt(1 + INFORMATION_GUESS * prior_variance)[:, :, None]
    return ravel_pytree(
        Coordinates(
            White(
                jnp.broadcast_to(guess, inside).astype(dtype),
                None if outside is None else jnp.ones(outside, dtype),
            ),
            jnp.ones(problem.n_columns, dtype),
            jnp.full(2, 0.5, dtype),
        )
    )[0]


def hamiltonian(
    *,
    path_length: float = math.pi / 2,
    max_steps: int = 32,
    target_accept_prob: float = 0.8,
    smoothing: float = 1.0,
    jitter: float = 0.2,
) -> Block:
    """Hamiltonian Monte Carlo on the whitened scores, b, log sigma2 and log tau.

    Parameters
    ----------
    path_length
        Length of a trajectory, in posterior standard deviations.
    max_steps
        Most leapfrog steps a trajectory may take; a shorter path is taken then.
    target_accept_prob
        Acceptance probability to which the step size is tuned in warm-up.
    smoothing
        Half-width, in steps, over which the force rounds off the kinks; 0 for the exact force.
    jitter
        Relative half-width of the uniform jitter of the step size.
    """

    def init(position: Position, problem: Problem) -> Memory:
        scales = _first_scales(problem, position.columns.dtype)
        log_step = jnp.full((), math.log(FIRST_STEP), scales.dtype)
        return Memory(scales, _init_step(log_step), _init_moments(scales.size))

    def step(key, position, memory: Memory, problem: Problem, phase: Phase):
        warming_up = phase.sweep < phase.n_warmup
        key_white, key_momentum, key_jitter, key_accept, key_weights = jax.random.split(key, 5)
        start, unravel = ravel_pytree(_to_coordinates(key_white, position, problem))
        scales, dtype = memory.scales, start.dtype

        log_step, log_step_average, *_ = memory.step
        step_size = jnp.exp(jnp.where(warming_up, log_step, log_step_average)).astype(dtype)
        num_steps = jnp.clip(jnp.ceil(path_length / step_size), 1, max_steps).astype(jnp.int32)
        stretch = jax.random.uniform(key_jitter, (), dtype, 1 - jitter, 1 + jitter)
        epsilon = step_size * stretch

        def log_density(flat):
            return _log_density(unravel(flat), problem)

        def force(flat):
            width = smoothing * epsilon if smoothing > 0 else None
            return scales * jax.grad(lambda x: _log_density(unravel(x), problem, width))(flat)

        def leapfrog(_, carry):
            flat, momentum = carry
            momentum = momentum + epsilon * force(flat)
            return flat + epsilon * scales * momentum, momentum

        # Half a drift, then kicks and drifts, then half a drift back: one gradient a step.
        momentum = jax.random.normal(key_momentum, start.shape, dtype)
        carry = (start + 0.5 * epsilon * scales * momentum, momentum)
        end, end_momentum = jax.lax.fori_loop(0, num_steps, leapfrog, carry)
        end = end - 0.5 * epsilon * scales * end_momentum

        kinetic = 0.5 * (jnp.sum(momentum**2) - jnp.sum(end_momentum**2))
        log_ratio = log_density(end) - log_density(start) + kinetic
        log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)  # diverged
        accept_prob = jnp.exp(jnp.minimum(log_ratio, 0.0))
        accepted = jax.random.uniform(key_accept, (), dtype) < accept_prob
        flat = jnp.where(accepted, end, start)

        columns, intercept, noise_variance, precision = _columns(unravel(flat), problem)
        projection = project(columns, problem)
        conditional = weights_full(projection, intercept, precision, noise_variance, problem)
        moved = Position(
            columns, intercept, conditional.sample(key_weights), noise_variance, precision
        )
        learned = _learn(memory, flat, target_accept_prob - accept_prob, phase)
        memory = jax.tree.map(lambda new, old: jnp.where(warming_up, new, old), learned, memory)
        info = {"accept_prob": accept_prob, "step_size": step_size, "num_steps": num_steps}
        return moved, memory, info

    return Block("hamiltonian", init, step)


def _learn(memory: Memory, flat: jax.Array, shortfall: jax.Array, phase: Phase) -> Memory:
    """Tune the step size, and at the end of a window take over the scales seen in it."""
    tuned = _update_step(shortfall, memory.step)
    moments = _update_moments(flat, memory.moments)
    ends = jnp.asarray([int(1000 * end) for end in WINDOWS]) * phase.n_warmup // 1000
    window_ended = jnp.any(phase.sweep + 1 == ends) & (moments[2] >= SMALLEST_WINDOW)
    scales = jnp.sqrt(_final_moments(moments, regularize=True)[0])
    fresh = Memory(scales, _init_step(tuned[1]), _init_moments(flat.size))
    kept = Memory(memory.scales, tuned, moments)
    return jax.tree.map(lambda new, old: jnp.where(window_ended, new, old), fresh, kept)
