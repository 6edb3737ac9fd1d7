"""Univariate slice sampling (Neal, 2003): stepping out, then shrinkage."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

__all__ = ["slice_step"]

MAX_STEPS_OUT = 32

MAX_SHRINKS = 96
"""Proposals, after which the interval has shrunk to rounding and the point stays."""


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

    dtype = jnp.result_type(x)
    places = jax.random.uniform(key, (3 + MAX_SHRINKS,), dtype)  # one call: see noise.py
    level = height(x) + jnp.log1p(-places[0])
    left = x - width * places[1]
    # Neal's random split of the budget keeps the limited stepping-out reversible.
    budget = jnp.floor(MAX_STEPS_OUT * places[2]).astype(jnp.int32)

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

    def proposal_of(number: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
        proposal = left + (right - left) * places[3 + number]
        # An interval shrunk to rounding is the current point itself.
        shrunk = right - left <= 4 * jnp.finfo(dtype).eps * jnp.abs(x)
        return jnp.where(shrunk | (number >= MAX_SHRINKS), x, proposal)

    def shrink(carry):
        number, left, right, proposal, _ = carry
        left = jnp.where(proposal < x, proposal, left)
        right = jnp.where(proposal < x, right, proposal)
        proposal = proposal_of(number, left, right)
        return number + 1, left, right, proposal, height(proposal)

    first = proposal_of(jnp.zeros((), jnp.int32), left, right)
    carry = (jnp.ones((), jnp.int32), left, right, first, height(first))
    return jnp.where(jnp.isfinite(x), jax.lax.while_loop(rejected, shrink, carry)[3], jnp.nan)
