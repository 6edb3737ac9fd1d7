"""Tails of the standard normal, drawn by inversion at any distance from the centre.

Q = 1 - Phi is the tail and R = Q / phi the Mills ratio, which neither overflows nor underflows.
All functions are elementwise and work in the dtype of their arguments (float32 or float64).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
MILLS_AT_ZERO = math.sqrt(0.5 * math.pi)

# (x + 4) R(x) on x >= 0 as a polynomial in w = (x - 4) / (x + 4), highest power first: truncated
# Chebyshev expansions, with truncation error below half a unit in the last place of the dtype.
MILLS_64 = (
    -3.0073979672398766e-10,
    -4.232837128668023e-09,
    -1.4722998923746307e-09,
    4.027496644667924e-08,
    4.473060051450323e-08,
    -1.974812079272745e-07,
    -4.00493929251171e-07,
    6.635890483495518e-07,
    2.568755311229722e-06,
    -1.5665301434775512e-06,
    -1.4843277679080294e-05,
    1.7912419621396938e-06,
    8.809573121072337e-05,
    -4.781834677436329e-06,
    -0.0005792693046478719,
    0.0003342443649391365,
    0.004087855681200072,
    -0.008722295248200037,
    -0.018900450861711257,
    0.1513917623110474,
    -0.4675409629983325,
    0.9704095548676177,
    -1.5237709108199835,
    1.8932190633084853,
)
MILLS_32 = (
    -4.339179842591588e-06,
    -0.0003943441879017728,
    0.00033501935909112867,
    0.003919832456096184,
    -0.0087229526886489,
    -0.01883037158706878,
    0.15139194626659092,
    -0.46755312744498745,
    0.9704095376160407,
    -1.5237703138482697,
    1.8932190635612893,
)


def floating(*values: ArrayLike) -> tuple[jax.Array, ...]:
    """Bring the arguments to their common floating dtype, at least float32."""
    dtype = jnp.promote_types(jnp.result_type(*values, float), jnp.float32)
    return tuple(jnp.asarray(value, dtype) for value in values)


def mills(x: jax.Array) -> jax.Array:
    """Mills ratio R(x) for x >= 0, to a few units in the last place."""
    inverse = 1.0 / (x + 4.0)
    w = 1.0 - 8.0 * inverse
    coefficients = MILLS_64 if x.dtype == jnp.float64 else MILLS_32
    total = jnp.full_like(w, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * w + coefficient
    return total * inverse


def uniform(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> tuple[jax.Array, ...]:
    """Uniforms u in the open unit interval, and 1 - u without loss of precision near u = 1."""
    if dtype == jnp.float64:
        # A random significand gives 1 + k 2^-52; centre the cells. Both results are exact.
        bits = jax.random.bits(key, shape, jnp.uint64)
        one = jnp.uint64(0x3FF0000000000000)
        u = jax.lax.bitcast_convert_type((bits >> 12) | one, dtype) - (1.0 - 2.0**-53)
        return u, 1.0 - u
    bits = jax.random.bits(key, shape, jnp.uint32)
    u, v = ((half.astype(dtype) + 0.5) * 2.0**-32 for half in (bits, ~bits))
    return jnp.minimum(u, 1.0 - 2.0**-24), jnp.minimum(v, 1.0 - 2.0**-24)


def excess(t: jax.Array, ratio: jax.Array, e: jax.Array) -> jax.Array:
    """Solve Q(t + y) = exp(-e) Q(t) for y, where t >= 0, 0 <= e < 40 and ratio = R(t).

    In logarithms, y (t + y/2) + log(R(t) / R(t + y)) = e. The left side is a cumulative hazard:
    it starts with slope h = 1/R(t) and curvature h (h - t), which tends to 1 as y grows. A
    quadratic with a curvature in between gets within 0.006 of e, and the Taylor series of the
    inverse function about that point does the rest: its error is below rounding.
    """
    hazard = 1.0 / ratio
    curvature = jnp.clip(hazard * (hazard - t), 2.0 / math.pi, 1.0)
    spread = 1.885 + t * (1.455 + 1.326 * t) + (2.824 + 0.383 * t) * jnp.sqrt(e) + e
    curvature = curvature + (1.0 - curvature) * e / spread
    y = 2.0 * e / (hazard + jnp.sqrt(hazard * hazard + 2.0 * curvature * e))

    # dy/de = R(x), d/de = R d/dx and R' = x R - 1 = -q at x = t + y.
    x = t + y
    r = mills(x)
    miss = e - (y * (t + 0.5 * y) + jnp.log(ratio / r))
    q = 1.0 - x * r
    series = 1.0 - 0.5 * q * miss
    if t.dtype == jnp.float64:
        rr = r * r
        third = rr - q + 2.0 * q * q
        fourth = (4.0 * q - 1.0) * (q - q * q - rr) - q * (2.0 * rr + third)
        series = series + miss * miss * (third / 6.0 + fourth * miss / 24.0)
    return jnp.maximum(y + r * miss * series, 0.0)
