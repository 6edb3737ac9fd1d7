"""A basis that is not kept: its columns are computed from the rows whenever they are needed.

``U = F R``, F (n, q) the raw features of the rows (:func:`bmsvm.features.raw_features`) and R
(q, r). All that the sampler of weights asks of a basis are the products ``W U'`` and ``V U``, W
with a few rows and r columns, V with a few rows and n columns. Here they are ``(W R') F'`` and
``(V F) R``, part by part along the rows: memory is that of the rows and not of the basis, and the
time that of computing F twice for each step. R has large entries that cancel, so that all of it is
done in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.features import FeatureMap
from bmsvm.kernels import PROFILES
from bmsvm.rows import Rows, pieces_of

__all__ = ["ComputedBasis", "computed_basis"]

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
        some = ComputedBasis(
            self.rows[which],
            self.present[which],
            self.points,
            self.rotation,
            self.kind,
            self.kernel,
            self.precision,
        )
        return _dense(some)


class _Transposed:
    def __init__(self, basis: ComputedBasis) -> None:
        self.basis = basis

    def __rmatmul__(self, weights: jax.Array) -> jax.Array:
        return _onto_rows(weights, self.basis)


def _raw(rows: jax.Array, present: jax.Array, basis: ComputedBasis) -> jax.Array:
    """Raw features of some rows, shape (b, q)."""
    across = rows @ basis.points.T
    if basis.kind == "fourier":
        waves = jnp.concatenate([jnp.cos(across), jnp.sin(across)], axis=1)
        values = waves / jnp.sqrt(len(basis.points))
    else:
        own, theirs = (jnp.sum(each**2, axis=1) for each in (rows, basis.points))
        squares = jnp.maximum(own[:, None] + theirs - 2 * across, 0.0)
        values = PROFILES[basis.kernel](squares)
    return values * present[:, None]


def _parts(basis: ComputedBasis, *along: jax.Array) -> tuple[jax.Array, ...]:
    """Rows, and arrays that lead with n, in parts of equal size, zeros at the end."""
    n = basis.shape[0]
    size = min(PART, n)
    missing = -n % size

    def split(array):
        padded = jnp.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
        return padded.reshape(-1, size, *array.shape[1:])

    return tuple(split(each) for each in (basis.rows, basis.present, *along))


def _mapped(compute: Callable[[jax.Array], jax.Array], basis: ComputedBasis) -> jax.Array:
    """``compute`` of the raw features of each part (b, q), put together along the rows."""
    each = jax.lax.map(lambda part: compute(_raw(*part, basis)), _parts(basis))
    return each.reshape(-1, *each.shape[2:])[: basis.shape[0]]


@jax.jit
def _dense(basis: ComputedBasis) -> jax.Array:
    return _mapped(lambda raw: (raw @ basis.rotation).astype(basis.dtype), basis)


@jax.custom_vjp
def _onto_rows(weights: jax.Array, basis: ComputedBasis) -> jax.Array:
    """``W U'``, shape (k, n), of weights (k, r)."""
    small = (weights.astype(basis.rotation.dtype) @ basis.rotation.T).T
    return _mapped(lambda raw: (raw @ small).astype(basis.dtype), basis).T


def _forward(weights: jax.Array, basis: ComputedBasis) -> tuple[jax.Array, ComputedBasis]:
    return _onto_rows(weights, basis), basis


def _backward(basis: ComputedBasis, slopes: jax.Array) -> tuple[jax.Array, None]:
    """``V U``, shape (k, r), of slopes V (k, n)."""

    def add(total, part):
        rows, present, slope = part
        return total + slope.astype(total.dtype).T @ _raw(rows, present, basis), None

    zero = jnp.zeros((len(slopes), basis.rotation.shape[0]), basis.rotation.dtype)
    total, _ = jax.lax.scan(add, zero, _parts(basis, slopes.T))
    return (total @ basis.rotation).astype(basis.dtype), None


_onto_rows.defvjp(_forward, _backward)


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
    parts: Any = (
        held,
        (np.arange(n_rows) < start).astype(np.float64),
        np.asarray(features.points) / scale,
        np.asarray(features.rotation) / np.sqrt(eigenvalues),
    )
    return ComputedBasis(*parts, features.kind, kernel, np.dtype(dtype).name)
