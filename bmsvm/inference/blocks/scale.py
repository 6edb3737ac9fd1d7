"""Parameter expansion: rescale scores, functions and noise together.

``(T, b, v, sigma) -> alpha (T, b, v, sigma)`` leaves every Gaussian density times its Jacobian
unchanged, so that given everything else log alpha has density
``L(y | alpha T) p(alpha^2 sigma2) alpha^2``. One slice step, O(nc).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bmsvm._validation import check_count
from bmsvm.inference.blocks.base import Block
from bmsvm.inference.slice import slice_step
from bmsvm.models.hierarchy import log_likelihood, log_noise_prior


def scale(every: int = 1) -> Block:
    """Slice the common scale of everything that is Gaussian.

    Parameters
    ----------
    every
        Sweeps for each move.
    """
    check_count("every", every)

    def move(key, position, problem):
        def log_density(log_alpha):
            alpha = jnp.exp(log_alpha)
            likelihood = jnp.sum(log_likelihood(alpha * position.columns, problem))
            prior = log_noise_prior(alpha**2 * position.noise_variance, problem)
            return likelihood + prior + 2 * log_alpha

        zero = jnp.zeros((), position.columns.dtype)
        alpha = jnp.exp(slice_step(key, zero, log_density, width=2.0))
        return position._replace(
            columns=alpha * position.columns,
            intercept=alpha * position.intercept,
            weights=alpha * position.weights,
            noise_variance=alpha**2 * position.noise_variance,
        )

    def step(key, position, memory, problem, phase):
        moved = jax.lax.cond(
            phase.sweep % every == 0,
            lambda: move(key, position, problem),
            lambda: position,
        )
        return moved, memory, {}

    return Block("scale", lambda position, problem: (), step)
