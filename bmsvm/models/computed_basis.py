"""A basis that is not kept: its columns are computed from the rows whenever they are needed.

``U = F R``, F (n, q) the raw features of the rows (:func:`bmsvm.features.raw_features`) and R
(q, r). All that the sampler of weights asks of a basis are the products ``W U'`` and ``V U``, W
with a few rows and r columns, V with a few rows and n columns. Here they are ``(W R') F'`` and
``(V F) R``, part by part along the rows: memory is that of the rows and not of the basis, and the
time that of computing F for each step. R has large entries that cancel, so that all of it is done
in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.features import FeatureMap
from bmsvm.kernels import stationary_at
from bmsvm.rows import Rows, pieces_of

__all__ = [
    "ComputedBasis",
    "by_row",
    "computed_basis",
    "design_of",
    "onto_basis",
    "onto_features",
]

PART = 2048
"""Rows of which features are computed at a time."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ComputedBasis:
    """Stands for U, shape (n, r), in products with it and where some of its rows are taken."""

    rows: jax.Array
    """Rows over the lengthscale (of Nystrom features), shape (n, p)."""
    present: jax.Array
    """1, and 0 for spare rows, whose part of the basis is zero, shape (n,)."""
    points: jax.Array
    """Landmarks over the lengthscale, or frequencies, shape (m, p)."""
    rotation: jax.Array
    """R, shape (q, r)."""
    kind: str = field(metadata={"static": True})
    kernel: str = field(metadata={"static": True})
    precision: str = field(metadata={"static": True})
    """Name of the type of the products."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.rows.shape[0], self.rotation.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Type of the products."""
        return np.dtype(self.precision)

    @property
    def T(self) -> _Transposed:
        """The transposed basis, for ``W @ basis.T``."""
        return _Transposed(self)

    def __getitem__(self, which: Any) -> jax.Array:
        """Rows of the basis by their numbers (m,), shape (m, r)."""
        return _dense(replace(self, rows=self.rows[which], present=self.present[which]))


class _Transposed:
    def __init__(self, basis: ComputedBasis) -> None:
        self.basis = basis

    def __rmatmul__(self, weights: jax.Array) -> jax.Array:
        return _onto_rows(weights, self.basis)


def _raw(rows: jax.Array, present: jax.Array, basis: ComputedBasis) -> jax.Array:
    """Raw features of some rows (b, p), shape (b, q)."""
    across = rows @ basis.points.T
    if basis.kind == "fourier":
        waves = jnp.concatenate([jnp.cos(across), jnp.sin(across)], axis=1)
        values = waves / jnp.sqrt(len(basis.points))
    else:
        own, theirs = (jnp.sum(each**2, axis=1) for each in (rows, basis.points))
        squares = jnp.maximum(own[:, None] + theirs - 2 * across, 0.0)
        values = stationary_at(basis.kernel, jnp.sqrt(squares))
    return values * present[:, None]


def _mapped(compute: Callable[[jax.Array], jax.Array], basis: ComputedBasis) -> jax.Array:
    """``compute`` of the raw features of each part (b, q), put together along the rows."""
    n = basis.shape[0]
    size = min(PART, n)

    def split(array):
        padded = jnp.pad(array, [(0, -n % size)] + [(0, 0)] * (array.ndim - 1))
        return padded.reshape(-1, size, *array.shape[1:])

    parts = split(basis.rows), split(basis.present)
    each = jax.lax.map(lambda part: compute(_raw(part[0], part[1], basis)), parts)
    return each.reshape(-1, *each.shape[2:])[:n]


@jax.jit
def _dense(basis: ComputedBasis) -> jax.Array:
    return _mapped(lambda raw: (raw @ basis.rotation).astype(basis.dtype), basis)


def _onto_rows(weights: jax.Array, basis: ComputedBasis) -> jax.Array:
    """``W U'``, shape (k, n), of weights (k, r)."""
    small = onto_features(weights, basis).T
    return _mapped(lambda raw: (raw @ small).astype(basis.dtype), basis).T


# For a loop over parts of the rows, whatever the basis is: what there is of each row, a design of
# some of them, weights for it, and back.


def by_row(basis: Any) -> Any:
    """Return what a basis has of each row: itself, or the rows, arrays that lead with n."""
    return (basis.rows, basis.present) if isinstance(basis, ComputedBasis) else basis


def design_of(some: Any, basis: Any) -> jax.Array:
    """Design (b, q) of some rows, as :func:`by_row` has them."""
    if not isinstance(basis, ComputedBasis):
        return some
    rows, present = some
    return _raw(rows, present, basis)


def onto_features(weights: jax.Array, basis: Any) -> jax.Array:
    """Weights of the design (k, q) of weights of the basis (k, r)."""
    if not isinstance(basis, ComputedBasis):
        return weights.astype(basis.dtype)
    return weights.astype(basis.rotation.dtype) @ basis.rotation.T


def onto_basis(slopes: jax.Array, basis: Any) -> jax.Array:
    """Slopes by weights of the basis (k, r), of slopes by those of the design (k, q)."""
    return slopes @ basis.rotation if isinstance(basis, ComputedBasis) else slopes


def computed_basis(
    features: FeatureMap,
    rows: Rows,
    kernel: str,
    lengthscale: Any,
    eigenvalues: np.ndarray,
    n_rows: int,
    dtype: np.dtype,
) -> ComputedBasis:
    """Basis of rows (n, p) under their features, spare rows following up to ``n_rows``.

    Parameters
    ----------
    features
        Made from the rows.
    rows
        What is read in pieces is read once more, and held.
    kernel, lengthscale
        A stationary kernel by name, and its theta.
    eigenvalues
        lambda, shape (r,).
    n_rows
        Rows of the basis.
    dtype
        Type of products with it.
    """
    scale = np.asarray(1.0 if features.kind == "fourier" else lengthscale, np.float64)
    held = np.zeros((n_rows, rows.shape[1]))
    start = 0
    for piece in pieces_of(rows):
        held[start : start + len(piece)] = piece / scale
        start += len(piece)
    arrays: dict[str, Any] = {
        "rows": held,
        "present": (np.arange(n_rows) < start).astype(np.float64),
        "points": np.asarray(features.points) / scale,
        "rotation": np.asarray(features.rotation) / np.sqrt(eigenvalues),
    }
    precision = np.dtype(dtype).name
    return ComputedBasis(**arrays, kind=features.kind, kernel=kernel, precision=precision)
