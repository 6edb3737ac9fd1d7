"""Momentum for weights, intercept, sigma and tau at once, the scores integrated out.

For many rows and a basis of low rank. The coordinates are those in which the posterior is close to
a standard normal (:mod:`bmsvm.models.reference`). A trajectory takes the normal exactly, which is a
rotation of position and momentum into each other, and only what the posterior adds to it as kicks
(a splitting): its steps are limited by what is not normal, and a few are enough. Each costs two
passes over the basis, which vectorised chains share.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from numpyro.infer.hmc_util import welford_covariance

from bmsvm.inference.blocks.base import Block, Phase
from bmsvm.inference.step_size import init_step, update_step
from bmsvm.models.collapsed import Coordinates, coordinates_of, log_density, position_of
from bmsvm.models.hierarchy import Position
from bmsvm.models.problem import Problem
from bmsvm.models.reference import Reference

__all__ = ["collapsed"]

FIRST_STEP = 0.5
OVERDISPERSED = 1.5
"""Standard deviations of the reference over which log sigma and log d begin."""

WINDOWS = (0.3, 0.8)
"""Ends of the windows in which those are learned, as fractions of warm-up."""

LONGEST_STEP = 0.5 * math.pi
"""A step beyond a quarter turn would come back."""


class Point(NamedTuple):
    """Coordinates with their log density and its gradient."""

    at: Coordinates
    value: jax.Array
    slope: Coordinates


class Memory(NamedTuple):
    """What the block remembers.

    point
        Where it stands.
    centre, scales
        Mean and standard deviation of (log sigma, log d), shape (2,); of their distance from the
        reference where theta is sampled.
    step
        State of dual averaging for the log step size.
    moments
        State of Welford's algorithm in the current window.
    """

    point: Point
    centre: jax.Array
    scales: jax.Array
    step: Any
    moments: Any


_init_moments, _update_moments, _final_moments = welford_covariance(diagonal=True)


@jax.jit  # a chain begins outside of any program, where the rows would be copied
def _evaluate(at: Coordinates, problem: Problem) -> Point:
    value, slope = jax.value_and_grad(log_density)(at, problem)
    return Point(at, value, slope)


def collapsed(
    *,
    path_length: float = 0.5 * math.pi,
    max_steps: int = 3,
    target_accept_prob: float = 0.7,
    jitter: float = 0.2,
) -> Block:
    """Hamiltonian Monte Carlo on weights, intercept, log sigma and log tau, scores integrated out.

    It stands alone: no other block may move the position, but for one of theta. The columns of the
    position are None; scores are drawn where they are asked for.

    Parameters
    ----------
    path_length
        Length of a trajectory, in posterior standard deviations; a quarter turn makes draws of a
        normal posterior independent.
    max_steps
        Most steps a trajectory may take; a shorter path is taken then.
    target_accept_prob
        Acceptance probability to which the step size is tuned in warm-up.
    jitter
        Relative half-width of the uniform jitter of the step size.
    """

    def begin(key: jax.Array, position: Position, problem: Problem) -> Position:
        reference = problem.reference
        if reference is None:
            raise ValueError("problem must have a reference: pass it through with_reference first")
        key_logs, key_xi = jax.random.split(key)
        dtype = reference.logs.dtype
        noise = jax.random.normal(key_logs, (2,), dtype)
        logs = reference.logs + OVERDISPERSED * reference.scales * noise
        xi = jax.random.normal(key_xi, reference.mode.shape, dtype)
        return position_of(Coordinates(xi, logs), position, problem)

    def init(position: Position, problem: Problem) -> Memory:
        at = coordinates_of(position, problem)
        reference = cast(Reference, problem.reference)
        scales = reference.scales
        return Memory(
            _evaluate(at, problem),
            reference.logs - _origin(problem),
            scales,
            init_step(jnp.full((), math.log(FIRST_STEP), scales.dtype)),
            _init_moments(2),
        )

    def step(key, position, memory: Memory, problem: Problem, phase: Phase):
        warming_up = phase.sweep < phase.n_warmup
        key_momentum, key_jitter, key_accept = jax.random.split(key, 3)
        log_step, log_average, *_ = memory.step
        step_size = jnp.exp(jnp.where(warming_up, log_step, log_average))
        step_size = jnp.minimum(step_size, LONGEST_STEP)
        num_steps = jnp.clip(jnp.round(path_length / step_size), 1, max_steps).astype(jnp.int32)
        dtype = memory.scales.dtype
        stretch = jax.random.uniform(key_jitter, (), dtype, 1 - jitter, 1)
        epsilon = step_size * stretch
        centre, scales = memory.centre + _origin(problem), memory.scales

        def standard(at: Coordinates) -> Coordinates:
            return Coordinates(at.xi, (at.logs - centre) / scales)

        def kick(momentum: Coordinates, point: Point) -> Coordinates:
            """Half a step of the force that the standard normal lacks."""
            force = Coordinates(point.slope.xi, point.slope.logs * scales)
            return jax.tree.map(
                lambda p, g, q: p + 0.5 * epsilon * (g + q), momentum, force, standard(point.at)
            )

        def turn(_, carry):
            point, momentum = carry
            momentum = kick(momentum, point)
            cos, sin = jnp.cos(epsilon), jnp.sin(epsilon)
            here = standard(point.at)
            there = jax.tree.map(lambda q, p: cos * q + sin * p, here, momentum)
            momentum = jax.tree.map(lambda q, p: cos * p - sin * q, here, momentum)
            point = _evaluate(Coordinates(there.xi, centre + scales * there.logs), problem)
            return point, kick(momentum, point)

        start = memory.point
        if problem.samples_kernel:  # theta has moved since
            start = _evaluate(coordinates_of(position, problem), problem)
        keys = jax.random.split(key_momentum)
        momentum = Coordinates(
            jax.random.normal(keys[0], start.at.xi.shape, dtype),
            jax.random.normal(keys[1], (2,), dtype),
        )
        end, last = jax.lax.fori_loop(0, num_steps, turn, (start, momentum))
        log_ratio = end.value - start.value + 0.5 * (_square(momentum) - _square(last))
        log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)  # diverged
        accept_prob = jnp.exp(jnp.minimum(log_ratio, 0.0))
        accepted = jax.random.uniform(key_accept, (), dtype) < accept_prob
        point = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), end, start)
        seen = point.at.logs - _origin(problem)
        learned = _learn(memory, point, seen, target_accept_prob - accept_prob, phase)
        memory = jax.tree.map(
            lambda new, old: jnp.where(warming_up, new, old), learned, memory._replace(point=point)
        )
        info = {"accept_prob": accept_prob, "step_size": step_size, "num_steps": num_steps}
        return position_of(point.at, position, problem), memory, info

    return Block("collapsed", init, step, begin)


def _square(tree: Any) -> jax.Array:
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))  # type: ignore[return-value]


def _origin(problem: Problem) -> jax.Array | float:
    """Where the centre of the logs is counted from: they move along with theta."""
    return cast(Reference, problem.reference).logs if problem.samples_kernel else 0.0


def _learn(
    memory: Memory, point: Point, logs: jax.Array, shortfall: jax.Array, phase: Phase
) -> Memory:
    """Tune the step size; at the end of a window take over the moments of the logs seen in it."""
    tuned = update_step(shortfall, memory.step)
    moments = _update_moments(logs, memory.moments)
    ends = jnp.asarray([int(1000 * end) for end in WINDOWS]) * phase.n_warmup // 1000
    ended = jnp.any(phase.sweep + 1 == ends) & (moments[2] >= 10)
    scales = jnp.sqrt(_final_moments(moments, regularize=True)[0])
    fresh = Memory(point, moments[0], scales, init_step(tuned[1]), _init_moments(2))
    kept = Memory(point, memory.centre, memory.scales, tuned, moments)
    return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, kept)
