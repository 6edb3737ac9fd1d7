"""Step sizes tuned by dual averaging, from a first guess."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from numpyro.infer.hmc_util import dual_averaging

__all__ = ["init_step", "update_step"]

_, update_step = dual_averaging()


def init_step(log_step: jax.Array) -> tuple[jax.Array, ...]:
    """Dual averaging that starts at a step size and is drawn towards twice that."""
    zero = jnp.zeros_like(log_step)
    return log_step, log_step, zero, jnp.zeros((), jnp.result_type(int)), log_step + math.log(2.0)
