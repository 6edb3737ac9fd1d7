"""Covariance functions and the factorisation of their Gram matrix.

A kernel is any callable ``kernel(X1, X2) -> (n1, n2)``; tinygp's kernels are exactly that, so
they are accepted as they come, sums and products included. The functions below only give the
ones the paper needs under their usual names. Gram matrices are evaluated and factored here in
float64 on the host, whatever precision JAX is set to: the sampler divides by their eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.spatial.distance
from jax.typing import ArrayLike
from tinygp import kernels as tinygp_kernels
from tinygp import transforms

from bmsvm._validation import check_choice, check_count, check_positive

__all__ = [
    "Factor",
    "check_gram",
    "check_lengthscale",
    "factorize",
    "gaussian",
    "gram",
    "gram_of",
    "inverse_root",
    "kernel_at",
    "linear",
    "matern32",
    "matern52",
    "median_distance",
    "polynomial",
    "projection",
    "stationary",
]

KernelFn = Callable[[jax.Array, jax.Array], jax.Array]

LARGEST_DEGREE = 1000
"""Of a polynomial; powers beyond it are out of reach of floats for all but a few rows."""

RANK_MULTIPLE = 32
"""Truncated ranks are rounded up to this, so that data sets of one size share one program."""


def check_lengthscale(lengthscale: ArrayLike, n_features: int | None = None) -> np.ndarray:
    """Return theta as a float64 array, shape () or (p,), or raise ``ValueError``."""
    try:
        scale = np.asarray(lengthscale)
        good = scale.dtype.kind in "fiu" and scale.ndim <= 1 and scale.size > 0
        good = good and bool(np.all(np.isfinite(scale) & (scale > 0)))
    except (TypeError, ValueError):
        good = False
    if good and n_features is not None:
        good = scale.ndim == 0 or scale.size in (1, n_features)
    if not good:
        features = "feature" if n_features is None else f"feature, of which X has {n_features}"
        raise ValueError(
            f"lengthscale must be a positive number, or one positive number per {features}; "
            f"got {lengthscale!r}"
        )
    return scale.astype(np.float64)


def _stationary(kernel_class: type, lengthscale: ArrayLike) -> KernelFn:
    """Give a stationary kernel Euclidean distance and a scalar or per-feature lengthscale."""
    scale = check_lengthscale(lengthscale)
    if scale.ndim == 0:
        return kernel_class(scale=float(scale), distance=tinygp_kernels.distance.L2Distance())
    unit = kernel_class(distance=tinygp_kernels.distance.L2Distance())
    # A NumPy array, so that it stays float64 whatever precision JAX is set to.
    return transforms.Linear(cast(jax.Array, 1.0 / scale), unit)


def stationary(name: str, lengthscale: jax.Array) -> KernelFn:
    """Named stationary kernel at a lengthscale, () or (p,), that may be traced by JAX."""
    unit = STATIONARY[name](1.0)
    return lambda X1, X2: unit(X1 / lengthscale, X2 / lengthscale)


def stationary_at(name: str, distances: jax.Array) -> jax.Array:
    """Named stationary kernel at distances (n1, n2) between rows, over their lengthscale.

    A distance is that of a point on a line from its origin.
    """
    unit = STATIONARY[name](1.0)

    def at(distance: jax.Array) -> jax.Array:
        return unit(distance.reshape(1, 1), jnp.zeros((1, 1)))[0, 0]

    return jax.vmap(jax.vmap(at))(distances)


def gaussian(lengthscale: ArrayLike = 1.0) -> KernelFn:
    """Gaussian kernel ``exp(-|x - x'|^2 / (2 theta^2))``.

    Parameters
    ----------
    lengthscale
        theta: a positive number, or one per feature, shape (p,).
    """
    return _stationary(tinygp_kernels.ExpSquared, lengthscale)


def matern32(lengthscale: ArrayLike = 1.0) -> KernelFn:
    """Matern-3/2 kernel ``(1 + a) exp(-a)``, ``a = sqrt(3) |x - x'| / theta``."""
    return _stationary(tinygp_kernels.Matern32, lengthscale)


def matern52(lengthscale: ArrayLike = 1.0) -> KernelFn:
    """Matern-5/2 kernel ``(1 + a + a^2/3) exp(-a)``, ``a = sqrt(5) |x - x'| / theta``."""
    return _stationary(tinygp_kernels.Matern52, lengthscale)


def linear() -> KernelFn:
    """Linear kernel ``x . x'``; its Gram matrix has rank p at most."""
    return tinygp_kernels.DotProduct()


def polynomial(degree: int = 2, *, lengthscale: float = 1.0, offset: float = 1.0) -> KernelFn:
    """Polynomial kernel ``(x . x' / theta^2 + offset^2)^degree``."""
    check_count("degree", degree, largest=LARGEST_DEGREE)
    check_positive("lengthscale", lengthscale)
    if not isinstance(offset, int | float | np.number) or not np.isfinite(offset):
        raise ValueError(f"offset must be a finite number; got {offset!r}")
    return tinygp_kernels.Polynomial(order=degree, scale=lengthscale, sigma=offset)


@jax.jit
def _compiled(kernel: tinygp_kernels.Kernel, left: jax.Array, right: jax.Array) -> jax.Array:
    return kernel(left, right)


def _evaluate(kernel: KernelFn, left: jax.Array, right: jax.Array) -> jax.Array:
    """Evaluate a kernel; tinygp's are pytrees, and one program serves all of a kind."""
    if isinstance(kernel, tinygp_kernels.Kernel):
        return _compiled(kernel, left, right)
    return kernel(left, right)


def gram(kernel: KernelFn, X1: ArrayLike, X2: ArrayLike | None = None) -> np.ndarray:
    """Evaluate a kernel between two sets of rows in float64.

    Parameters
    ----------
    kernel
        Callable ``kernel(X1, X2) -> (n1, n2)``.
    X1, X2
        Rows, shapes (n1, p) and (n2, p); ``X2`` defaults to ``X1``.

    Returns
    -------
    numpy.ndarray
        Gram matrix, shape (n1, n2), float64.
    """
    with jax.enable_x64(True):
        left = jnp.asarray(np.asarray(X1, dtype=np.float64))
        right = left if X2 is None else jnp.asarray(np.asarray(X2, dtype=np.float64))
        values = np.asarray(_evaluate(kernel, left, right))
    shape = (left.shape[0], right.shape[0])
    if values.shape != shape:
        raise ValueError(
            f"kernel must return one value per pair of rows, shape {shape}; "
            f"it returned shape {values.shape}"
        )
    return values.astype(np.float64, copy=False)


STATIONARY: dict[str, Callable[[ArrayLike], KernelFn]] = {
    "gaussian": gaussian,
    "matern32": matern32,
    "matern52": matern52,
}
"""Kernels with a lengthscale that can be named by a string."""

NAMED: dict[str, Callable[[ArrayLike], KernelFn]] = {
    **STATIONARY,
    "linear": lambda lengthscale: linear(),
}
"""Kernels that can be named by a string, each built from a lengthscale."""


def kernel_at(kernel: KernelFn | str, lengthscale: ArrayLike = 1.0) -> KernelFn | None:
    """Kernel given by name or as a callable, at a lengthscale; None for ``"precomputed"``."""
    if isinstance(kernel, str):
        check_choice("kernel", kernel, [*NAMED, "precomputed"])
        return None if kernel == "precomputed" else NAMED[kernel](lengthscale)
    if not callable(kernel):
        raise ValueError(
            f"kernel must be a name or a callable kernel(X1, X2) -> (n1, n2); got {kernel!r}"
        )
    return kernel


def gram_of(kernel: KernelFn | str, rows: np.ndarray, lengthscale: ArrayLike = 1.0) -> np.ndarray:
    """Gram matrix (n, n) of rows (n, p) under a kernel given by name or as a callable.

    ``"precomputed"`` returns the rows, which are then the Gram matrix itself.
    """
    if isinstance(kernel, str) and kernel in STATIONARY:
        check_lengthscale(lengthscale, rows.shape[1])
    function = kernel_at(kernel, lengthscale)
    return rows if function is None else gram(function, rows)


def median_distance(rows: ArrayLike, limit: int = 2000) -> float:
    """Median Euclidean distance between two different rows, of rows (n, p): a first lengthscale.

    Pairs of equal rows do not count; 1 where there are no others. Of more than ``limit`` rows,
    every so many are looked at.
    """
    given = rows if hasattr(rows, "shape") else np.asarray(rows)
    some = np.asarray(given[:: -(-given.shape[0] // limit)], np.float64)  # type: ignore[index]
    distances = scipy.spatial.distance.pdist(some)
    apart = distances[distances > 0]
    return float(np.median(apart)) if apart.size else 1.0


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
    """``U diag(lambda)^(-1/2)``, shape (n, r), which makes features ``Phi*`` of kernel values."""
    return factor.basis * inverse_root(factor.eigenvalues)


def check_gram(gram_matrix: ArrayLike, *, name: str = "kernel") -> tuple[np.ndarray, float]:
    """Check that a matrix is square, finite and symmetric, or raise ``ValueError``.

    Returns
    -------
    tuple
        The matrix in float64, shape (n, n), and the relative precision it came with.
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
        What to call it in an error message.
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
    kept = (
        kept if 2 * kept <= n and not complete else n
    )  # a complete basis makes better coordinates
    truncated = np.where(np.arange(kept) < rank, values[:kept], 0.0)
    basis = np.ascontiguousarray(vectors[:, :kept])
    return Factor(cast(jax.Array, basis), cast(jax.Array, truncated))
