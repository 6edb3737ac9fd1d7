"""Moves of theta on a grid where the scores are integrated out.

Every theta has a reference, a normal distribution near its posterior, and with it coordinates
(xi, u) in which that posterior is close to a standard normal (:mod:`bmsvm.inference.reference`).
Theta is proposed while these coordinates are held: weights, intercept, sigma and tau move to where
the posterior at the new theta has them. The acceptance ratio is then about the ratio of the
marginal posteriors of the two thetas. The test uses the exact density and the volume of the move,
so that a poor reference lowers the acceptance rate and never the correctness.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from bmsvm.inference.adaptation import Phase
from bmsvm.inference.grid_walk import walk_on_grid
from bmsvm.inference.reference import Coordinates, Setup, log_density
from bmsvm.models.problem import Problem

FIRST_WIDTH = 1.0
WIDTHS = (1e-2, 1e2)
"""Smallest and largest width; a step is at least one value of the grid."""

TARGET_ACCEPT_PROB = 0.4


def log_density_held(
    held: Coordinates, kernel: jax.Array, setup: Setup, problem: Problem
) -> jax.Array:
    """Log posterior density of held coordinates at a theta, its prior left out."""
    here = setup.at(kernel)
    volume = jnp.sum(jnp.log(jnp.diagonal(here.reference.spread)))  # of the logs
    volume += problem.n_columns * jnp.log(here.reference.intercept_scale)  # of the intercept
    return log_density(held, here, problem.at(kernel)) + volume


def move_theta(
    key: jax.Array,
    kernel: jax.Array,
    at: Coordinates,
    log_width: jax.Array,
    setup: Setup,
    problem: Problem,
    times: int,
) -> tuple[jax.Array, jax.Array]:
    """Propose theta ``times`` times, the coordinates held.

    Returns
    -------
    tuple
        Index of theta in the grid, and the mean acceptance probability.
    """

    def attempt(carry, key):
        kernel, value = carry
        key_walk, key_accept = jax.random.split(key)
        proposal, log_ratio = walk_on_grid(key_walk, kernel, jnp.exp(log_width), problem)
        ahead = log_density_held(at, proposal, setup, problem)
        log_ratio = log_ratio + ahead - value
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
        accepted = jax.random.uniform(key_accept, (), probability.dtype) < probability
        kernel = jnp.where(accepted, proposal, kernel)
        return (kernel, jnp.where(accepted, ahead, value)), probability

    start = kernel, log_density_held(at, kernel, setup, problem)
    (kernel, _), probabilities = jax.lax.scan(attempt, start, jax.random.split(key, times))
    return kernel, jnp.mean(probabilities)


def tuned_width(log_width: jax.Array, accept_prob: jax.Array, phase: Phase) -> jax.Array:
    """Tune the width of the proposals in warm-up."""
    tuned = log_width + (accept_prob - TARGET_ACCEPT_PROB) / jnp.sqrt(1.0 + phase.sweep)
    tuned = jnp.clip(tuned, *map(math.log, WIDTHS)).astype(log_width.dtype)
    return jnp.where(phase.warming_up, tuned, log_width)
