"""Ancillary half of interweaving: move tau with the whitened weights and the noise held fixed.

With nu = v sqrt(tau)/sigma and E = T - f fixed, the functions follow tau as
``Phi v (tau_old/tau_new)^(1/2)`` and the scores follow the functions, so that tau's density is
``L(y | T(tau)) p(tau)``. One slice step, O(nc) once the functions are known.
"""

from __future__ import annotations

import jax.numpy as jnp

from bmsvm.inference.blocks.base import Block, stateless
from bmsvm.inference.slice import slice_step
from bmsvm.models.hierarchy import latent, log_likelihood, precision_prior

__all__ = ["interweave"]


def interweave() -> Block:
    """Slice tau through the scores, whitened weights and noise fixed."""

    def move(key, position, problem):
        observed = problem.design.mask.T
        functions = latent(jnp.zeros_like(position.intercept), position.weights, problem)
        functions = jnp.where(observed > 0, functions, 0.0)

        def columns_at(log_precision):
            ratio = jnp.exp(0.5 * (jnp.log(position.precision) - log_precision))
            return position.columns + (ratio - 1.0) * functions, ratio

        def log_density(log_precision):
            columns, _ = columns_at(log_precision)
            prior = precision_prior(problem).log_prob(jnp.exp(log_precision)) + log_precision
            return jnp.sum(log_likelihood(columns, problem)) + prior

        log_precision = slice_step(key, jnp.log(position.precision), log_density)
        columns, ratio = columns_at(log_precision)
        return position._replace(
            columns=columns, weights=ratio * position.weights, precision=jnp.exp(log_precision)
        ), {}

    return stateless("interweave", move)
