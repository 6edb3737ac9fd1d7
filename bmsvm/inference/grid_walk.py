"""Random-walk proposals of theta on its grid."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp

from bmsvm.models.problem import Problem
from bmsvm.models.theta import KernelGrid


def walk_on_grid(
    key: jax.Array, kernel: jax.Array, width: jax.Array, problem: Problem
) -> tuple[jax.Array, jax.Array]:
    """Propose a step of at least one value of the grid, up or down; and the log prior ratio.

    Parameters
    ----------
    key
        Random key.
    kernel
        Index of theta in the grid, a scalar.
    width
        Scale of the steps, in values of the grid, a scalar.
    problem
        Where the grid is.
    """
    log_prior = cast(KernelGrid, problem.grid).log_prior
    key_sign, key_step = jax.random.split(key)
    normal = jnp.abs(jax.random.normal(key_step, (), width.dtype))
    step = 1 + jnp.floor(width * normal).astype(kernel.dtype)
    proposal = kernel + jnp.where(jax.random.bernoulli(key_sign), step, -step)
    inside = (proposal >= 0) & (proposal < log_prior.size)
    proposal = jnp.clip(proposal, 0, log_prior.size - 1)
    return proposal, jnp.where(inside, log_prior[proposal] - log_prior[kernel], -jnp.inf)
