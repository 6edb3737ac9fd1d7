"""Modes of kernel logistic regression along a path of tau, for many sets of rows at once."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

STEPS = 40
"""Steps towards each mode, starting from the previous one: enough to compare values of tau."""


def mode_path(
    root: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    taus: jax.Array,
    keep: Callable[[jax.Array], jax.Array],
    steps: int = STEPS,
) -> jax.Array:
    """Follow the modes over decreasing taus, and return ``keep`` of each.

    For each of m sets, x maximises ``sum_i w_i log softmax(R x)_i at y_i - tau/2 |x|^2``. Steps
    are Nesterov's, restarted if the objective decreases. Each coordinate is scaled by a bound of
    its curvature: that of softmax is at most 1/2.

    Parameters
    ----------
    root
        R, shape (n, r), with R'WR diagonal, W being the weights of all rows.
    targets
        Class of each row, one-hot, shape (n, c).
    weights
        Of the rows in each set, shape (n, m).
    taus
        Decreasing, shape (T,): each mode starts from the one before.
    keep
        From the modes of all sets, shape (r, m, c), to an array.
    steps
        Steps at each tau.

    Returns
    -------
    jax.Array
        Shape (T, ...).
    """
    (n, r), c, m = root.shape, targets.shape[1], weights.shape[1]
    whole = jnp.max(weights, axis=1)  # a row's weight outside its own fold
    curvature = 0.5 * (whole @ root**2)[:, None, None] + jnp.finfo(root.dtype).tiny

    def slope(x: jax.Array, tau: jax.Array) -> jax.Array:
        excess = jax.nn.softmax(functions_of(root, x)) - targets[:, None]
        back = root.T @ (excess * weights[:, :, None]).reshape(n, m * c)
        return back.reshape(r, m, c) + tau * x

    def mode(start: jax.Array, tau: jax.Array) -> tuple[jax.Array, jax.Array]:
        bound = curvature + tau

        def step(_: int, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            x, ahead, time = carry
            new = ahead - slope(ahead, tau) / bound
            uphill = jnp.sum(bound * (ahead - new) * (new - x), axis=(0, 2)) > 0
            later = jnp.where(uphill, 1.0, 0.5 * (1 + jnp.sqrt(1 + 4 * time**2)))
            speed = jnp.where(uphill, 0.0, (time - 1) / later)
            return new, new + speed[:, None] * (new - x), later

        x, _, _ = jax.lax.fori_loop(0, steps, step, (start, start, jnp.ones(m, root.dtype)))
        return x, keep(x)

    return jax.lax.scan(mode, jnp.zeros((r, m, c), root.dtype), taus)[1]


def functions_of(root: jax.Array, x: jax.Array) -> jax.Array:
    """R x, shape (n, m, c): one product for all sets and classes."""
    r, m, c = x.shape
    return (root @ x.reshape(r, m * c)).reshape(len(root), m, c)
