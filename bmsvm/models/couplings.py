"""Two readings of the hierarchy: which scores are free, and how classes depend on each other.

The sampler works on *columns*, an (n, k) matrix of free Gaussian regressions. A coupling maps
columns to the (n, c) matrix of scores, whose rows sum to zero, and back.

``independent``
    Eqs. (13)-(19) as printed: k = c, column j observes the rows whose label is not j, and the
    score of a row's own class is minus the sum of the others (12).
``sum_to_zero``
    Eq. (18) with the constraint Z1 = 0 imposed: k = c - 1 contrasts T = Z C, where C'C = I and
    CC' = H, each observing every row. Z = T C' gives the scores back.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

COUPLINGS = ("sum_to_zero", "independent")


@functools.cache
def contrast(n_classes: int) -> np.ndarray:
    """Orthonormal basis C of the zero-sum subspace, shape (c, c - 1): C'C = I, CC' = H."""
    return scipy.linalg.helmert(n_classes).T


def check_integrable(what: str, coupling: str) -> None:
    """Raise ``ValueError`` if scores cannot be integrated out of the model.

    ``what`` names, in the message, the setting that needs it.
    """
    if coupling != "sum_to_zero":
        raise ValueError(
            f'{what} needs coupling="sum_to_zero", in which all columns observe a row; '
            f"got {coupling!r}"
        )


def n_columns(coupling: str, n_classes: int) -> int:
    """Return the number k of free columns."""
    return n_classes if coupling == "independent" else n_classes - 1


def to_scores(columns: jax.Array, labels: jax.Array, coupling: str) -> jax.Array:
    """Scores (n, c), rows summing to zero, from columns (n, k)."""
    if coupling == "sum_to_zero":
        return (jnp.asarray(contrast(columns.shape[1] + 1), columns.dtype) @ columns.T).T
    own = labels[:, None] == jnp.arange(columns.shape[1])
    others = jnp.where(own, 0.0, columns)
    return jnp.where(own, -others.sum(-1, keepdims=True), others)  # eq. (12)


def to_columns(scores: jax.Array, labels: jax.Array, coupling: str) -> jax.Array:
    """Columns (n, k) from scores (n, c); entries a column does not observe are zero."""
    n_classes = scores.shape[1]
    if coupling == "sum_to_zero":
        return scores @ jnp.asarray(contrast(n_classes), scores.dtype)
    return jnp.where(labels[:, None] == jnp.arange(n_classes), 0.0, scores)


def class_map(coupling: str, n_classes: int) -> np.ndarray:
    """Matrix of :func:`class_vector`, shape (k, c): columns on the left, classes on the right."""
    if coupling == "sum_to_zero":
        return contrast(n_classes).T
    return np.eye(n_classes) - 1.0 / n_classes


def class_vector(column_values: jax.Array, coupling: str) -> jax.Array:
    """Per-class values summing to zero, (..., c), from per-column values (..., k): eq. (5).

    This maps b0 to w0 = H b0, B to W = B H, and column functions to class functions.
    """
    if coupling == "sum_to_zero":
        basis = jnp.asarray(contrast(column_values.shape[-1] + 1).T, column_values.dtype)
        return column_values @ basis
    return column_values - column_values.mean(-1, keepdims=True)
