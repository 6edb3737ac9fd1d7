"""A normal distribution near the posterior of weights and intercept, and coordinates from it.

Let x (k, r + 1) be the weights v of each column and, last, its intercept over a constant. With
``d = tau/sigma2`` the weights have prior precision d, and near its mode the log likelihood has
curvature ``A = Q diag(a) Q'`` in x. So, given sigma and tau, x is about normal with precision
``Q diag(a + d) Q'``, and

    x = Q (m + xi / sqrt(a + d)),    m = (a + d_0) / (a + d) (m_0 + m_1 log(sigma/sigma_0)),

about, xi ~ N(0, I), whatever sigma and d are; a shrinks as noise makes functions grow, by
``(sigma/sigma_0)^(-2 g)``. Where the labels say much (a large) xi is centred, where they say
little it is the whitened weight. The reference is not part of the model: a poor one lowers the
acceptance rate and never the correctness.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bmsvm.models.integrated import log_posterior
from bmsvm.models.problem import Problem


class Coordinates(NamedTuple):
    """A point in the units of the reference: ``xi``, shape (k, r + 1), and ``u``, shape (2,).

    ``(log sigma, log d) = logs + spread u``, with logs and spread of the reference.
    """

    xi: jax.Array
    u: jax.Array


class Reference(NamedTuple):
    """The normal distribution, and the points at which noise is integrated.

    rotation
        Q, of all columns together, shape (k (r + 1), k (r + 1)); or one that columns share,
        shape (r + 1, r + 1).
    curvature
        a, shape (k, r + 1).
    mode, slope
        Q'x at the mode, m_0, and how it moves with log sigma, m_1, shape (k, r + 1).
    growth
        g, a scalar.
    logs
        Where it was made: (log sigma, log d), shape (2,).
    spread
        Root of the covariance of log sigma and log d, about: lower triangular, shape (2, 2).
    intercept_scale
        Constant of the intercept, a scalar.
    nodes
        Points of a standard normal noise, shape (J, k).
    """

    rotation: jax.Array
    curvature: jax.Array
    mode: jax.Array
    slope: jax.Array
    growth: jax.Array
    logs: jax.Array
    spread: jax.Array
    intercept_scale: jax.Array
    nodes: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Setup:
    """What the sampler of weights computes from a problem once, shared by all chains."""

    reference: Reference
    """With a leading axis of G where theta is sampled on a grid of G values."""
    on_grid: bool = field(default=False, metadata={"static": True})

    def at(self, kernel: Any) -> Setup:
        """Return the setup at an index of the grid; itself if theta is fixed."""
        if kernel is None or not self.on_grid:
            return self
        here = jax.tree.map(lambda leaf: leaf[kernel], self.reference)
        return replace(self, reference=here, on_grid=False)


def rotate(values: Any, rotation: Any) -> jax.Array:
    """Q times values, shape (k, r + 1)."""
    flat = values.reshape(-1, rotation.shape[0])
    return (flat @ rotation.T).reshape(values.shape)


def unrotate(values: Any, rotation: Any) -> jax.Array:
    """Q' times values, shape (k, r + 1)."""
    flat = values.reshape(-1, rotation.shape[0])
    return (flat @ rotation).reshape(values.shape)


def _mean(logs: jax.Array, reference: Reference) -> tuple[jax.Array, jax.Array]:
    """Mean of Q'x, and root of its precision, shape (k, r + 1), at (log sigma, log d)."""
    by = logs[0] - reference.logs[0]
    curvature = reference.curvature * jnp.exp(-2 * reference.growth * by)
    information = curvature + jnp.exp(logs[1])
    mode = reference.mode + reference.slope * by
    return (curvature + jnp.exp(reference.logs[1])) * mode / information, jnp.sqrt(information)


def from_coordinates(xi: jax.Array, logs: jax.Array, reference: Reference) -> jax.Array:
    """x, shape (k, r + 1), of coordinates of the same shape at (log sigma, log d)."""
    mean, root = _mean(logs, reference)
    return rotate(mean + xi / root, reference.rotation)


def log_volume(logs: jax.Array, reference: Reference) -> jax.Array:
    """Log determinant of :func:`from_coordinates` in xi."""
    _, root = _mean(logs, reference)
    return -jnp.sum(jnp.log(root))


def logs_at(u: jax.Array, reference: Reference) -> jax.Array:
    """(log sigma, log d) of their coordinates u, shape (2,)."""
    return reference.logs + reference.spread @ u


def log_density_at(xi: jax.Array, logs: jax.Array, setup: Setup, problem: Problem) -> jax.Array:
    """Log posterior density of xi (k, r + 1) and (log sigma, log d), up to a constant."""
    reference = setup.reference
    x = from_coordinates(xi, logs, reference)
    density = log_posterior(x, logs, reference.intercept_scale, reference.nodes, problem)
    return density + log_volume(logs, reference)


def log_density(at: Coordinates, setup: Setup, problem: Problem) -> jax.Array:
    """Log posterior density of coordinates at one theta, up to a constant."""
    return log_density_at(at.xi, logs_at(at.u, setup.reference), setup, problem)
