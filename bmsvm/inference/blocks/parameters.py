"""Steps (b) and (c) of section 4.1: noise, intercept, weights and precision given the scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bmsvm.inference.blocks.base import Block, stateless
from bmsvm.inference.slice import slice_step
from bmsvm.models.conditionals import (
    draw_noise_intercept_weights,
    log_density_precision_collapsed,
    precision_full,
    project,
)


def conjugate_parameters() -> Block:
    """Draw sigma2 with b and B integrated out, then b, then B: step (b), theta fixed."""

    def move(key, position, problem):
        projection = project(position.columns, problem)
        precision = position.precision
        return draw_noise_intercept_weights(key, position, projection, precision, problem), {}

    return stateless("conjugate_parameters", move)


def conjugate_precision() -> Block:
    """Draw tau given B and sigma2 from its gamma conditional: step (c)."""

    def move(key, position, problem):
        conditional = precision_full(position.weights, position.noise_variance, problem)
        return position._replace(precision=conditional.sample(key)), {}

    return stateless("conjugate_precision", move)


def collapsed_parameters() -> Block:
    """Slice tau with (sigma2, b, B) integrated out, then draw those: one joint update."""

    def move(key, position, problem):
        key_precision, key_rest = jax.random.split(key)
        projection = project(position.columns, problem)

        def log_density(log_precision):
            precision = jnp.exp(log_precision)
            log_p = log_density_precision_collapsed(precision, projection, problem)
            return log_p + log_precision

        precision = jnp.exp(slice_step(key_precision, jnp.log(position.precision), log_density))
        return draw_noise_intercept_weights(key_rest, position, projection, precision, problem), {}

    return stateless("collapsed_parameters", move)
