"""The kernel parameter theta on its grid: two Metropolis-Hastings moves, interwoven.

*Sufficient*: the scores are held and everything Gaussian but tau is integrated out, so that theta
has density ``p(T | theta, tau) p(theta)``; sigma2, b and B are then drawn. *Ancillary*: the scores
are written ``T = 1 b' + sigma R(theta, tau)^(1/2) E`` and E is held, so that theta has density
``L(y | T(theta)) p(theta)``. The first moves well where the labels say much about the scores, the
second where they say little. The symmetric root makes T continuous in theta, which eigenvectors
are not. Each costs a few products with n x n matrices, no factorisation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bmsvm.inference.blocks.base import Block, Phase
from bmsvm.inference.blocks.parameters import noise_intercept_weights
from bmsvm.models.conditionals import log_density_columns_collapsed, project
from bmsvm.models.hierarchy import Position, log_likelihood
from bmsvm.models.problem import Problem
from bmsvm.models.whitening import symmetric_colour, symmetric_whiten

__all__ = ["lengthscale"]

FIRST_WIDTH = 2.0


class Memory(NamedTuple):
    """Logarithms of the widths of the two proposals, in steps of the grid."""

    log_widths: jax.Array


def _propose(
    key: jax.Array, kernel: jax.Array, log_width: jax.Array, size: int
) -> tuple[jax.Array, jax.Array]:
    """Walk at least one step on the grid, at random; and whether that is still on it."""
    key_sign, key_step = jax.random.split(key)
    normal = jnp.abs(jax.random.normal(key_step, (), log_width.dtype))
    step = 1 + jnp.floor(jnp.exp(log_width) * normal).astype(kernel.dtype)
    proposal = kernel + jnp.where(jax.random.bernoulli(key_sign), step, -step)
    return jnp.clip(proposal, 0, size - 1), (proposal >= 0) & (proposal < size)


def lengthscale(*, target_accept_prob: float = 0.4) -> Block:
    """Move theta over its grid, with the scores held and with their whitened noise held.

    Parameters
    ----------
    target_accept_prob
        Acceptance probability to which the widths of the proposals are tuned in warm-up.
    """

    def init(position: Position, problem: Problem) -> Memory:
        dtype = position.columns.dtype
        return Memory(jnp.full(2, math.log(FIRST_WIDTH), dtype))

    def step(key, position, memory: Memory, problem: Problem, phase: Phase):
        keys = jax.random.split(key, 6)
        grid = problem.grid
        if grid is None:
            raise ValueError('the block lengthscale needs data prepared with lengthscale="sample"')
        size = grid.values.shape[0]

        def accept(key, log_ratio, on_grid):
            log_ratio = jnp.where(on_grid & ~jnp.isnan(log_ratio), log_ratio, -jnp.inf)
            probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
            return jax.random.uniform(key, (), probability.dtype) < probability, probability

        # Ancillary.
        proposal, on_grid = _propose(keys[0], position.kernel, memory.log_widths[0], size)
        here, there = problem.at(position.kernel), problem.at(proposal)
        scale, precision = jnp.sqrt(position.noise_variance), position.precision
        noise = symmetric_whiten((position.columns - position.intercept) / scale, precision, here)
        columns = position.intercept + scale * symmetric_colour(noise, precision, there)
        log_ratio = (
            jnp.sum(log_likelihood(columns, problem) - log_likelihood(position.columns, problem))
            + grid.log_prior[proposal]
            - grid.log_prior[position.kernel]
        )
        accepted, first = accept(keys[1], log_ratio, on_grid)
        position = position._replace(
            columns=jnp.where(accepted, columns, position.columns),
            kernel=jnp.where(accepted, proposal, position.kernel),
        )

        # Sufficient.
        proposal, on_grid = _propose(keys[2], position.kernel, memory.log_widths[1], size)

        def log_density(kernel):
            at = problem.at(kernel)
            projection = project(position.columns, at)
            log_p = log_density_columns_collapsed(projection, position.precision, at)
            return log_p + grid.log_prior[kernel]

        log_ratio = log_density(proposal) - log_density(position.kernel)
        accepted, second = accept(keys[3], log_ratio, on_grid)
        position = position._replace(kernel=jnp.where(accepted, proposal, position.kernel))
        at = problem.at(position.kernel)
        projection = project(position.columns, at)
        position = noise_intercept_weights(keys[4], position, projection, position.precision, at)

        rate = 1.0 / jnp.sqrt(1.0 + phase.sweep)
        probabilities = jnp.stack([first, second])
        learned = memory.log_widths + rate * (probabilities - target_accept_prob)
        learned = jnp.clip(learned, math.log(0.5), math.log(size))
        warming_up = phase.sweep < phase.n_warmup
        memory = Memory(jnp.where(warming_up, learned, memory.log_widths))
        return position, memory, {"lengthscale_accept_prob": 0.5 * (first + second)}

    return Block("lengthscale", init, step)
