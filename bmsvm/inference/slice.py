"""Univariate slice sampling (Neal, 2003): stepping out, then shrinkage."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

__all__ = ["slice_step"]

MAX_STEPS_OUT = 32


def slice_step(
    key: jax.Array,
    x: jax.Array,
    log_density: Callable[[jax.Array], jax.Array],
    width: float = 1.0,
) -> jax.Array:
    """Draw one slice-sampling update of a scalar.

    Parameters
    ----------
    key
        Random key.
    x
        Current value, a scalar with ``log_density(x)`` finite.
    log_density
        Log density up to a constant; not-a-number counts as minus infinity.
    width
        Initial width of the interval.

    Returns
    -------
    jax.Array
        The next value; it leaves the density invariant. Not a number where ``x`` is not finite.
    """

    def height(value: jax.Array) -> jax.Array:
        result = log_density(value)
        return jnp.where(jnp.isnan(result), -jnp.inf, result)

    key_level, key_place, key_budget, key_shrink = jax.random.split(key, 4)
    dtype = jnp.result_type(x)
    level = height(x) - jax.random.exponential(key_level, dtype=dtype)
    left = x - width * jax.random.uniform(key_place, dtype=dtype)
    # Neal's random split of the budget keeps the limited stepping-out reversible.
    budget = jax.random.randint(key_budget, (), 0, MAX_STEPS_OUT)

    def step_out(edge: jax.Array, direction: float, steps: jax.Array) -> jax.Array:
        def unfinished(carry):
            position, remaining = carry
            return (remaining > 0) & (height(position) > level)

        def move(carry):
            position, remaining = carry
            return position + direction * width, remaining - 1

        return jax.lax.while_loop(unfinished, move, (edge, steps))[0]

    right = step_out(left + width, 1.0, MAX_STEPS_OUT - 1 - budget)
    left = step_out(left, -1.0, budget)

    def rejected(carry):
        *_, proposal, proposed_height = carry
        # A NaN is not equal to itself: the loop would not end.
        return (proposed_height <= level) & (proposal != x) & jnp.isfinite(x)

    def shrink(carry):
        key, left, right, proposal, _ = carry
        left = jnp.where(proposal < x, proposal, left)
        right = jnp.where(proposal < x, right, proposal)
        key, subkey = jax.random.split(key)
        proposal = jax.random.uniform(subkey, dtype=dtype, minval=left, maxval=right)
        # An interval shrunk to rounding is the current point itself.
        proposal = jnp.where(right - left <= 4 * jnp.finfo(dtype).eps * jnp.abs(x), x, proposal)
        return key, left, right, proposal, height(proposal)

    key_shrink, subkey = jax.random.split(key_shrink)
    first = jax.random.uniform(subkey, dtype=dtype, minval=left, maxval=right)
    carry = (key_shrink, left, right, first, height(first))
    return jnp.where(jnp.isfinite(x), jax.lax.while_loop(rejected, shrink, carry)[3], jnp.nan)
