"""Factorisation of Gram matrices: ``K = U diag(lambda) U'``, on the host and in float64."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

RANK_MULTIPLE = 32
"""Ranks are rounded up to a multiple of this, so that data of one size share one program."""


class Factor(NamedTuple):
    """Truncated eigendecomposition ``K = U diag(lambda) U'`` of a Gram matrix.

    basis
        U, shape (n, r), orthonormal columns. r is the numerical rank, rounded up.
    eigenvalues
        lambda, shape (r,), decreasing; exactly zero past the numerical rank.
    """

    basis: jax.Array
    eigenvalues: jax.Array


def inverse_root(eigenvalues: Any) -> Any:
    """``lambda^(-1/2)`` where lambda is positive, and zero elsewhere; of NumPy or JAX arrays."""
    xp = np if isinstance(eigenvalues, np.ndarray) else jnp
    positive = eigenvalues > 0
    return xp.where(positive, 1 / xp.sqrt(xp.where(positive, eigenvalues, 1.0)), 0.0)


def projection(factor: Factor) -> Any:
    """``U diag(lambda)^(-1/2)``, shape (n, r), which maps kernel values to ``Phi*``."""
    return factor.basis * inverse_root(factor.eigenvalues)


def check_gram(gram_matrix: ArrayLike, *, name: str = "kernel") -> tuple[np.ndarray, float]:
    """Check that a matrix is square, finite and symmetric, or raise ``ValueError``.

    Returns
    -------
    tuple
        The matrix in float64, shape (n, n), and the machine epsilon of its original type.
    """
    given = np.asarray(gram_matrix)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ValueError(f"{name}: the Gram matrix must be square; got shape {given.shape}")
    if not np.all(np.isfinite(given)):
        row, column = np.argwhere(~np.isfinite(given))[0]
        raise ValueError(
            f"{name}: the Gram matrix must be finite; "
            f"its entry [{row}, {column}] is {given[row, column]}"
        )
    eps = np.finfo(np.float64).eps
    if np.issubdtype(given.dtype, np.floating):
        eps = max(eps, np.finfo(given.dtype).eps)
    matrix = given.astype(np.float64)
    largest = np.abs(matrix).max(initial=0.0)
    asymmetry = np.abs(matrix - matrix.T).max(initial=0.0)
    if asymmetry > 100 * eps * max(largest, 1e-300):
        raise ValueError(
            f"{name}: the Gram matrix must be symmetric; the largest |K - K'| is {asymmetry:.3g}"
        )
    return matrix, float(eps)


def factorize(gram_matrix: ArrayLike, *, name: str = "kernel", complete: bool = False) -> Factor:
    """Factor a Gram matrix once, at its numerical rank (the Moore-Penrose case of section 2.2).

    Parameters
    ----------
    gram_matrix
        Symmetric positive semi-definite matrix, shape (n, n).
    name
        Name of the matrix in error messages.
    complete
        Whether to keep a basis of all n columns, whatever the rank.

    Returns
    -------
    Factor
        In float64 NumPy arrays: r is the rank rounded up to a multiple of 32, or n where that is
        more than n/2.
    """
    matrix, eps = check_gram(gram_matrix, name=name)
    n = matrix.shape[0]
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    tolerance = 10 * n * eps * max(abs(values[0]), abs(values[-1]))
    if values[-1] < -tolerance:
        raise ValueError(
            f"{name}: the Gram matrix must be positive semi-definite; "
            f"its smallest eigenvalue is {values[-1]:.3g}"
        )
    if values[0] <= 0:
        raise ValueError(f"{name}: the Gram matrix is zero, and so is every function")
    rank = int(np.sum(values > tolerance))
    kept = -(-rank // RANK_MULTIPLE) * RANK_MULTIPLE
    if complete or 2 * kept > n:  # a complete basis gives better coordinates
        kept = n
    truncated = np.where(np.arange(kept) < rank, values[:kept], 0.0)
    basis = np.ascontiguousarray(vectors[:, :kept])
    return Factor(cast(jax.Array, basis), cast(jax.Array, truncated))
