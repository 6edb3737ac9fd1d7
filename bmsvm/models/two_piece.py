"""A normal tilted by one hinge: density proportional to N(z | m, s^2) exp(-w (z + d)_+).

With a = (m + d) / s, x = (z + d) / s and the tilt h = w s, the log density is, up to a constant,

    x <= 0:  -(x - a)^2 / 2            N(a, 1), seen from the kink at distance y = -x, t = a
    x >  0:  -(x - a)^2 / 2 - h x      N(a - h, 1), at distance y = x, t = h - a

so each side of the kink z = -d is the tail beyond t of a standard normal, with density in y
proportional to exp(-y (y/2 + t)) and mass proportional to the Mills ratio

    R(t) = Q(t) / phi(t) = sqrt(pi/2) erfcx(t / sqrt 2),    Q = 1 - Phi.

The left side therefore has probability R(a) / (R(a) + R(h - a)), and
log E exp(-w (z + d)_+) = log phi(a) + log(R(a) + R(h - a)). No large quadratic terms are left to
cancel. Since a + (h - a) = h >= 0, at most one of the two t is negative; there the mass is taken
as Q(t) sqrt(2 pi) and the other side is scaled down by exp(-t^2/2), so nothing overflows.

All functions are elementwise, broadcast, and work in the dtype of their arguments (float32 or
float64). ``scale`` must be positive, the slope w not negative; it is 1 where it is not given.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from bmsvm.models.normal_tail import (
    MILLS_AT_ZERO,
    SQRT_TWO_PI,
    excess,
    floating,
    mills,
    uniform,
)


class _Sides(NamedTuple):
    """The two sides of the kink, ordered by mass instead of by position.

    low, high
        The smaller and the larger of a and h - a; ``high`` is not negative, and its side has at
        most half of the mass.
    flipped
        Whether ``high`` belongs to the left side.
    mills_low, mills_high
        R(|low|) and R(high).
    damping
        exp(-low^2/2) where low < 0, and 1 elsewhere.
    mass_low, mass_high
        Masses of the sides: R(low) and R(high), both times ``damping``.
    """

    a: jax.Array
    low: jax.Array
    high: jax.Array
    flipped: jax.Array
    mills_low: jax.Array
    mills_high: jax.Array
    damping: jax.Array
    mass_low: jax.Array
    mass_high: jax.Array


def _sides(mean: jax.Array, scale: jax.Array, offset: jax.Array, tilt: jax.Array) -> _Sides:
    """Locate and weigh the two sides of the kink."""
    a = (mean + offset) / scale
    b = tilt - a
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    negative = low < 0
    mills_low = mills(jnp.where(negative, -low, low))
    mills_high = mills(high)
    below = jnp.where(negative, low, 0.0)
    damping = jnp.exp(-0.5 * below * below)
    mass_low = jnp.where(negative, SQRT_TWO_PI - damping * mills_low, mills_low)
    mass_high = damping * mills_high
    return _Sides(a, low, high, a > b, mills_low, mills_high, damping, mass_low, mass_high)


@jax.jit
def draw(
    key: jax.Array,
    mean: ArrayLike,
    scale: ArrayLike,
    offset: ArrayLike,
    slope: ArrayLike = 1.0,
) -> jax.Array:
    """Draw z with density proportional to N(z | mean, scale^2) exp(-slope (z + offset)_+).

    Each draw is the inverse distribution function at one uniform number, exact up to rounding: the
    number determines the side of the kink, and its remaining digits the place on that side.

    Parameters
    ----------
    key
        Random key.
    mean, scale, offset, slope
        m, s > 0, d and w >= 0; any shapes that broadcast.

    Returns
    -------
    jax.Array
        Independent draws, of the broadcast shape.
    """
    mean, scale, offset, slope = floating(mean, scale, offset, slope)
    tilt = slope * scale
    sides = _sides(mean, scale, offset, tilt)
    u, v = uniform(key, sides.high.shape, sides.high.dtype)

    # Along the line from the far end of the light side: u * total is the mass up to z.
    total = sides.mass_low + sides.mass_high
    before, after = u * total, v * total
    light = before < sides.mass_high
    bulk = ~light & (sides.low < 0)
    # With low < 0 the heavy side is a normal truncated below its median: count mass from the nearer
    # end of the whole normal, whose mass is sqrt(2 pi), and measure from its centre.
    near = before - sides.mass_high + sides.damping * sides.mills_low
    inward = bulk & (near < after)
    mass = jnp.where(light, before, jnp.where(inward, near, after))
    whole = jnp.where(light, sides.mass_high, jnp.where(bulk, 0.5 * SQRT_TWO_PI, sides.mass_low))
    # R decreases, so near >= before > 0: the logarithm is finite.
    e = -jnp.log(jnp.minimum(mass / whole, 1.0))

    t = jnp.where(light, sides.high, jnp.maximum(sides.low, 0.0))
    ratio = jnp.where(light, sides.mills_high, jnp.where(bulk, MILLS_AT_ZERO, sides.mills_low))
    y = excess(t, ratio, e)

    left = light == sides.flipped
    centre = jnp.where(left, mean, mean - scale * tilt)
    start = jnp.where(bulk, centre, -offset)
    z = start + jnp.where(left != inward, -scale, scale) * y
    return jnp.where(left, jnp.minimum(z, -offset), jnp.maximum(z, -offset))
