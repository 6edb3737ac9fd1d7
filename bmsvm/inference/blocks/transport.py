"""Theta on a grid where the scores are integrated out: a move that takes the weights along.

Every theta has a reference, a normal distribution near its posterior, and with it coordinates
(xi, logs) in which that posterior is close to a standard normal (:mod:`bmsvm.models.reference`).
Theta is proposed while these coordinates are held: weights, intercept, sigma and tau move to where
the posterior of the new theta has them. What is left to accept or reject is about the ratio of the
marginal posteriors of the two thetas. The test is on the exact density, the volume of the move in
it, so that a poor reference costs acceptance and never correctness.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from bmsvm.inference.blocks.base import Block, Phase
from bmsvm.inference.grid_walk import walk_on_grid
from bmsvm.models.collapsed import Coordinates, coordinates_of, log_density, position_of
from bmsvm.models.hierarchy import Position
from bmsvm.models.problem import Problem
from bmsvm.models.reference import Reference

__all__ = ["transported_lengthscale"]

FIRST_WIDTH = 1.0
WIDTHS = (1e-2, 1e2)
"""Smallest and largest width; a step is one value of the grid at least."""


class Memory(NamedTuple):
    """Logarithm of the width of the proposals, a scalar."""

    log_width: jax.Array


def _held(at: Coordinates, reference: Reference) -> Coordinates:
    """Coordinates less where the reference expects them, in its units."""
    return Coordinates(at.xi, (at.logs - reference.logs) / reference.scales)


def _released(held: Coordinates, reference: Reference) -> Coordinates:
    return Coordinates(held.xi, reference.logs + reference.scales * held.logs)


def _log_density(held: Coordinates, problem: Problem) -> jax.Array:
    """Log posterior density of what is held at the problem's theta, its prior left out."""
    reference = cast(Reference, problem.reference)
    volume = jnp.sum(jnp.log(reference.scales))  # of the logs
    volume += problem.n_columns * jnp.log(reference.intercept_scale)  # of the intercept
    return log_density(_released(held, reference), problem) + volume


def transported_lengthscale(*, times: int = 2, target_accept_prob: float = 0.4) -> Block:
    """Move theta on its grid, and the weights with it; for the block ``collapsed``.

    Parameters
    ----------
    times
        Proposals of a sweep, each a pass over the basis.
    target_accept_prob
        Acceptance probability to which the width of the proposals is tuned in warm-up.
    """

    def init(position: Position, problem: Problem) -> Memory:
        return Memory(jnp.full((), math.log(FIRST_WIDTH), position.precision.dtype))

    def step(key, position: Position, memory: Memory, problem: Problem, phase: Phase):
        if problem.grid is None:
            raise ValueError("the block needs data prepared with a grid of lengthscales")
        here = problem.at(position.kernel)
        held = _held(coordinates_of(position, here), cast(Reference, here.reference))

        def attempt(carry, key):
            kernel, value = carry
            key_walk, key_accept = jax.random.split(key)
            proposal, log_ratio = walk_on_grid(key_walk, kernel, jnp.exp(memory.log_width), problem)
            ahead = _log_density(held, problem.at(proposal))
            log_ratio = log_ratio + ahead - value
            log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
            probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
            accepted = jax.random.uniform(key_accept, (), probability.dtype) < probability
            kernel = jnp.where(accepted, proposal, kernel)
            return (kernel, jnp.where(accepted, ahead, value)), probability

        start = position.kernel, _log_density(held, here)
        (kernel, _), probabilities = jax.lax.scan(attempt, start, jax.random.split(key, times))
        there = problem.at(kernel)
        at = _released(held, cast(Reference, there.reference))
        position = position_of(at, position._replace(kernel=kernel), there)
        probability = jnp.mean(probabilities)
        tuned = memory.log_width + (probability - target_accept_prob) / jnp.sqrt(1.0 + phase.sweep)
        tuned = jnp.clip(tuned, *map(math.log, WIDTHS)).astype(memory.log_width.dtype)
        warming_up = phase.sweep < phase.n_warmup
        memory = Memory(jnp.where(warming_up, tuned, memory.log_width))
        return position, memory, {"lengthscale_accept_prob": probability}

    return Block("transported lengthscale", init, step)
