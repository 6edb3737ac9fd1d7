"""A normal distribution near the posterior of weights and intercept, and coordinates that follow.

Let x (k, r + 1) be the weights v of each column and, last, its intercept over a constant. With
``d = tau/sigma2`` the weights have prior precision d, and near its mode the log likelihood has
curvature ``A = Q diag(a) Q'`` in x. So, given sigma and tau, x is about normal with precision
``Q diag(a + d) Q'``, and

    x = Q (m + xi / sqrt(a + d)),    m = (a + d_0) / (a + d) (m_0 + q(log sigma, log d)),

about, xi ~ N(0, I), whatever sigma and d are; log a falls in proportion to them as functions grow,
by g. A small error of g would be multiplied by the number of weights in the volume, and lead
sigma and d astray. q is quadratic: with many rows the mode moves by many of its standard
deviations while sigma moves by one of its own, and has to be followed along its bend. Where the
labels say much (a large) xi is centred, where they say little it is the whitened weight: each
direction is parametrised as suits it. Nothing here is part of the model: a poor reference costs
acceptance and never correctness.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = [
    "Reference",
    "curvature_at",
    "distances",
    "from_coordinates",
    "log_volume",
    "monomials",
    "rotate",
    "to_coordinates",
    "unrotate",
]


LEVEL = 4.0
"""Standard deviations of log sigma and log d beyond which the mode moves no further."""


class Reference(NamedTuple):
    """The normal distribution, and the points at which noise is integrated.

    rotation
        Q, of all columns together, shape (k (r + 1), k (r + 1)); or one that columns share,
        shape (r + 1, r + 1).
    curvature
        a, shape (k, r + 1).
    mode
        Q'x at the mode, m_0, shape (k, r + 1).
    bends
        Coefficients of q, shape (5, k, r + 1): those of s, t, s^2, t^2 and s t, where s and t are
        the distances of log sigma and log d from ``logs``, made to level off (:func:`distances`).
    growth
        g, shape (2, k, r + 1): log a falls by g times s and t.
    logs
        Where it was made: (log sigma, log d), shape (2,).
    scales
        Standard deviations of log sigma and log d, about, shape (2,).
    intercept_scale
        Constant of the intercept, a scalar.
    nodes
        Points of a standard normal noise, shape (J, k).
    """

    rotation: jax.Array
    curvature: jax.Array
    mode: jax.Array
    bends: jax.Array
    growth: jax.Array
    logs: jax.Array
    scales: jax.Array
    intercept_scale: jax.Array
    nodes: jax.Array


def rotate(values: Any, rotation: Any) -> jax.Array:
    """Q times values, shape (..., k, r + 1)."""
    flat = values.reshape(-1, rotation.shape[0])
    return (flat @ rotation.T).reshape(values.shape)


def unrotate(values: Any, rotation: Any) -> jax.Array:
    """Q' times values, shape (..., k, r + 1)."""
    flat = values.reshape(-1, rotation.shape[0])
    return (flat @ rotation).reshape(values.shape)


def distances(logs: Any, reference: Reference) -> jax.Array:
    """Distances s, t of log sigma and log d from those of the reference; they level off."""
    reach = LEVEL * jnp.asarray(reference.scales)
    return reach * jnp.tanh((logs - reference.logs) / reach)


def monomials(logs: Any, reference: Reference) -> jax.Array:
    """Terms of q at (log sigma, log d), shape (5,)."""
    s, t = distances(logs, reference)
    return jnp.stack([s, t, s**2, t**2, s * t])


def curvature_at(logs: Any, reference: Reference) -> jax.Array:
    """Curvature a at (log sigma, log d), shape (k, r + 1)."""
    grown = jnp.tensordot(distances(logs, reference), reference.growth, 1)
    return reference.curvature * jnp.exp(-grown)


def mean_and_root(logs: jax.Array, reference: Reference) -> tuple[jax.Array, jax.Array]:
    """Mean of Q'x, and root of its precision, shape (k, r + 1), at (log sigma, log d)."""
    curvature = curvature_at(logs, reference)
    information = curvature + jnp.exp(logs[1])
    mode = reference.mode + jnp.tensordot(monomials(logs, reference), reference.bends, 1)
    return (curvature + jnp.exp(reference.logs[1])) * mode / information, jnp.sqrt(information)


def from_coordinates(xi: jax.Array, logs: jax.Array, reference: Reference) -> jax.Array:
    """x, shape (k, r + 1), of coordinates of the same shape at (log sigma, log d)."""
    mean, root = mean_and_root(logs, reference)
    return rotate(mean + xi / root, reference.rotation)


def to_coordinates(x: jax.Array, logs: jax.Array, reference: Reference) -> jax.Array:
    """Undo :func:`from_coordinates`."""
    mean, root = mean_and_root(logs, reference)
    return (unrotate(x, reference.rotation) - mean) * root


def log_volume(logs: jax.Array, reference: Reference) -> jax.Array:
    """Log determinant of :func:`from_coordinates` in xi."""
    _, root = mean_and_root(logs, reference)
    return -jnp.sum(jnp.log(root))
