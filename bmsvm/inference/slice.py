"""Univariate slice sampling (Neal, 2003) by shrinkage from an interval of a given width."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

MAX_SHRINKS = 96
"""Proposals, after which the interval has shrunk to rounding and the point stays."""


def slice_step(
    key: jax.Array,
    x: jax.Array,
    log_density: Callable[[jax.Array], jax.Array],
    width: float = 8.0,
) -> jax.Array:
    """Draw one slice-sampling update of a scalar.

    The interval lies around ``x`` at random, and shrinks towards it at each proposal below the
    level. It is not widened first, which would need the density in two more loops: a width well
    above that of the density costs a few proposals, each of which halves the interval or so.

    Parameters
    ----------
    key
        Random key.
    x
        Current value, a scalar with ``log_density(x)`` finite.
    log_density
        Log density up to a constant; not-a-number counts as minus infinity.
    width
        Width of the interval, and so the largest move.

    Returns
    -------
    jax.Array
        The next value; it leaves the density invariant. Not a number where ``x`` is not finite.
    """

    def height(value: jax.Array) -> jax.Array:
        result = log_density(value)
        return jnp.where(jnp.isnan(result), -jnp.inf, result)

    dtype = jnp.result_type(x)
    places = jax.random.uniform(key, (2 + MAX_SHRINKS,), dtype)  # one call: see noise.py
    level = height(x) + jnp.log1p(-places[0])
    left = x - width * places[1]

    def rejected(carry):
        return ~carry[-1]

    def propose(carry):
        number, left, right, *_ = carry
        proposal = left + (right - left) * places[2 + number]
        # An interval shrunk to rounding is the current point itself.
        shrunk = right - left <= 4 * jnp.finfo(dtype).eps * jnp.abs(x)
        proposal = jnp.where(shrunk | (number >= MAX_SHRINKS), x, proposal)
        # A NaN is not equal to itself: the loop would not end.
        accepted = (height(proposal) > level) | (proposal == x) | ~jnp.isfinite(x)
        left = jnp.where(proposal < x, proposal, left)
        right = jnp.where(proposal < x, right, proposal)
        return number + 1, left, right, proposal, accepted

    carry = (jnp.zeros((), jnp.int32), left, left + width, x, jnp.zeros((), bool))
    return jnp.where(jnp.isfinite(x), jax.lax.while_loop(rejected, propose, carry)[3], jnp.nan)
