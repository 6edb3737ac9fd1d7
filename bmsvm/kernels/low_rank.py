"""Gram matrices of low rank: ``K ~ Phi Phi'`` with r columns, from n rows in O(n r) memory.

``Nystrom``
    ``Phi = K_nm R``, ``R R' = K_mm^-1``, over m landmarks. Given its values at the landmarks, a
    function has the prior variance ``k(x, x) - |Phi(x)|^2`` at x. This is never negative, and its
    mean over the rows is the error of the approximation.
``Fourier``
    Random Fourier features of a stationary kernel (Rahimi and Recht): cosines and sines at
    frequencies drawn from its spectral density. The process that they span has the variance of
    the kernel everywhere, so there is no remainder. The error of its covariance at two given rows
    is about ``1/sqrt(r)``.

In both cases the columns are then rotated to ``Phi = U diag(lambda)^(1/2)``, the form of an exact
factorisation. The rotation is stored with the points, so that predictions need the points and
an r x r matrix, but not the training rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike
from scipy.cluster.vq import kmeans2

from bmsvm._validation import check_choice, check_count, check_positive
from bmsvm.kernels.covariance import gram
from bmsvm.kernels.factor import Factor
from bmsvm.kernels.functions import (
    Kernel,
    KernelFn,
    Precomputed,
    Stationary,
    check_lengthscale,
    own_values,
)

BLOCK = 8192
"""Rows whose columns are computed at a time."""

CANDIDATES = 5000
"""Number of rows among which pivots are searched; a random sample if there are more."""

ROUNDS = 10
"""Rounds of k-means."""

NEAR_ZERO = 1e-10
"""Eigenvalues below this share of the largest are dropped and count as remainder."""

ALIGNMENT = 64
"""Bytes to which JAX aligns arrays."""


class Approximation:
    """Base of the low-rank approximations of a Gram matrix."""

    dtype: str | None
    seed: int

    def __post_init__(self) -> None:
        check_count("seed", self.seed, smallest=0)
        if self.dtype is not None:
            check_choice("dtype", self.dtype, ("float32", "float64"))

    @property
    def basis_dtype(self) -> np.dtype:
        """Type in which the basis is kept."""
        return np.dtype(jnp.result_type(float) if self.dtype is None else self.dtype)


@dataclass(frozen=True)
class Nystrom(Approximation):
    """Approximate the Gram matrix by landmarks, the centres of clusters of the rows.

    Parameters
    ----------
    rank
        Number r of landmarks. None: the smallest number at which the mean of
        ``k(x, x) - |Phi(x)|^2`` is below ``tolerance`` times that of ``k(x, x)``, at most
        ``max_rank``.
    tolerance, max_rank
        See ``rank``.
    dtype
        Type in which the basis is stored, ``"float32"`` or ``"float64"``; None for JAX's default.
        The r x r matrices are float64.
    seed
        Seed of the clustering.
    """

    rank: int | None = None
    tolerance: float = 0.01
    max_rank: int = 512
    dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is not None:
            check_count("rank", self.rank)
        check_count("max_rank", self.max_rank, smallest=2)
        check_positive("tolerance", self.tolerance)


@dataclass(frozen=True)
class Fourier(Approximation):
    """Approximate the Gram matrix of a stationary kernel by random Fourier features.

    Parameters
    ----------
    rank
        Number r of columns: cosines and sines at r/2 frequencies.
    dtype
        As in :class:`Nystrom`.
    seed
        Seed of the frequencies.
    """

    rank: int = 512
    dtype: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("rank", self.rank, smallest=2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BasisMap:
    """The map from rows to ``Phi``, see :meth:`__call__`."""

    points: Any
    """Landmarks, or frequencies, shape (m, p)."""
    rotation: Any
    """Matrix from raw columns to those in which ``Phi'Phi`` is diagonal, shape (q, r)."""
    error: Any
    """Mean of ``k(x, x) - |Phi(x)|^2`` over the training rows, a scalar."""
    kind: str = field(metadata={"static": True})
    """``"nystrom"`` or ``"fourier"``."""

    def __call__(self, rows: ArrayLike, kernel: KernelFn | None) -> np.ndarray:
        """Phi of rows (m, p), shape (m, r), float64; ``kernel`` is that of the landmarks."""
        raw = raw_basis(self.kind, kernel, np.asarray(rows), np.asarray(self.points))
        return raw @ np.asarray(self.rotation, np.float64)


def raw_basis(
    kind: str, kernel: KernelFn | None, rows: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Kernel values with landmarks, shape (n, m); or waves at m frequencies, shape (n, 2 m)."""
    if kind == "nystrom":
        return gram(cast(KernelFn, kernel), rows, points)
    phase = np.asarray(rows, np.float64) @ np.asarray(points, np.float64).T
    return np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / np.sqrt(len(points))


class Pivots(NamedTuple):
    """Rows chosen by :func:`pivoted_cholesky`.

    numbers
        Indices of the rows, in the order in which they were chosen, shape (r,).
    errors
        ``trace(K - Phi Phi') / n`` after each, shape (r,).
    """

    numbers: np.ndarray
    errors: np.ndarray


def pivoted_cholesky(
    kernel: Kernel, lengthscale: Any, rows: np.ndarray, rank: int, tolerance: float = 0.0
) -> Pivots:
    """Choose rows (n, p) one by one, each with the largest variance given the rows before it.

    It stops after ``rank`` rows, or when the mean of that variance over all rows is below
    ``tolerance`` times the mean of ``k(x, x)``.
    """
    function = kernel.at(lengthscale)
    own = own_values(kernel, lengthscale, rows)
    left = own.copy()
    rank = min(rank, len(rows))
    columns = np.zeros((rank, len(rows)))
    numbers, errors = [], []
    for j in range(rank):
        pivot = int(np.argmax(left))
        if left[pivot] <= NEAR_ZERO * own.max():
            break
        values = gram(function, rows[pivot : pivot + 1], rows)[0]
        column = (values - columns[:j, pivot] @ columns[:j]) / np.sqrt(left[pivot])
        columns[j] = column
        left = np.maximum(left - column**2, 0.0)
        left[pivot] = 0.0
        numbers.append(pivot)
        errors.append(left.mean())
        if errors[-1] <= tolerance * own.mean():
            break
    return Pivots(np.asarray(numbers), np.asarray(errors))


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Rows (n, p), :data:`BLOCK` at a time, each block in float64."""
    for start in range(0, len(rows), BLOCK):
        yield np.asarray(rows[start : start + BLOCK], np.float64)


def _some(rows: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """At most ``count`` different rows, at random, in float64."""
    if len(rows) > count:
        rows = rows[np.sort(random.choice(len(rows), count, replace=False))]
    return np.asarray(rows, np.float64)


def landmarks_of(kernel: Kernel, lengthscale: Any, rows: np.ndarray, how: Nystrom) -> np.ndarray:
    """Landmarks (m, p) for rows (n, p): centres of as many clusters as the rank."""
    random = np.random.default_rng(how.seed)
    candidates = _some(rows, CANDIDATES, random)
    rank = min(how.max_rank if how.rank is None else how.rank, len(rows))
    if how.rank is None:
        pivots = pivoted_cholesky(kernel, lengthscale, candidates, rank, how.tolerance)
        rank = len(pivots.numbers)
    distinct = np.unique(candidates, axis=0)
    if rank >= len(distinct):
        return distinct
    first = _far_apart(candidates, rank, random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the centre of a cluster that becomes empty stays
        return kmeans2(candidates, first, iter=ROUNDS, minit="matrix")[0]


def _far_apart(rows: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Draw rows, each in proportion to the squared distance from those before (k-means++)."""
    chosen = [int(random.integers(len(rows)))]
    nearest = np.full(len(rows), np.inf)
    for level in random.uniform(size=count - 1):
        nearest = np.minimum(nearest, np.sum((rows - rows[chosen[-1]]) ** 2, axis=1))
        below = np.cumsum(nearest)
        place = int(np.searchsorted(below, level * below[-1], side="right"))
        chosen.append(min(place, len(rows) - 1))
    return rows[chosen]


def _inverse_root_of(gram_matrix: np.ndarray) -> np.ndarray:
    """``R`` with ``R R' = K^+``, shape (m, r), r the rank of K (m, m) to :data:`NEAR_ZERO`."""
    values, vectors = scipy.linalg.eigh(gram_matrix)
    kept = values > NEAR_ZERO * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])


def build_basis_map(
    rows: np.ndarray,
    kernel: Kernel,
    how: Approximation,
    lengthscale: Any = None,
    points: np.ndarray | None = None,
) -> BasisMap:
    """Choose landmarks or frequencies, then the rotation, in one pass over the rows.

    Parameters
    ----------
    rows
        Rows, shape (n, p).
    kernel, lengthscale
        The kernel and its theta; :class:`Fourier` needs a stationary kernel.
    how
        The approximation.
    points
        Landmarks (m, p), if they have been chosen before.
    """
    if isinstance(kernel, Precomputed):
        raise ValueError(
            'approximation must be "exact" with kernel="precomputed", whose rows are unknown; '
            f"got {how!r}"
        )
    if isinstance(kernel, Stationary):
        check_lengthscale(lengthscale, rows.shape[1])
    function = kernel.at(lengthscale)
    if isinstance(how, Fourier):
        if not isinstance(kernel, Stationary):
            raise ValueError(
                "approximation=Fourier() needs a stationary kernel, such as Gaussian or "
                f"Laplacian; got {kernel}. Use Nystrom()"
            )
        random, count = np.random.default_rng(how.seed), how.rank // 2
        points = kernel.frequencies(random, count, lengthscale, rows.shape[1])
        kind, start = "fourier", np.eye(2 * count)
    else:
        if points is None:
            points = landmarks_of(kernel, lengthscale, rows, cast(Nystrom, how))
        kind, start = "nystrom", _inverse_root_of(gram(function, points))
    own, outer = 0.0, np.zeros((start.shape[1],) * 2)
    for part in _blocks(rows):
        raw = raw_basis(kind, function, part, points) @ start
        outer += raw.T @ raw
        own += float(own_values(kernel, lengthscale, part).sum())
    values, vectors = scipy.linalg.eigh(outer)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > NEAR_ZERO * values[0]
    error = max(own - float(values[kept].sum()), 0.0) / len(rows)
    return BasisMap(points, start @ vectors[:, kept], np.asarray(error), kind)


def basis_maps_on_grid(
    rows: np.ndarray, kernel: Kernel, how: Approximation, values: np.ndarray, start: int
) -> list[BasisMap]:
    """Basis maps of rows (n, p) at each lengthscale of a grid (G,), padded to one rank.

    Landmarks are chosen at the value with index ``start``; frequencies differ only in their scale.
    """
    points = None
    if isinstance(how, Nystrom):
        points = landmarks_of(kernel, values[start], rows, how)
    made = [build_basis_map(rows, kernel, how, theta, points=points) for theta in values]
    width = max(each.rotation.shape[1] for each in made)
    return [
        replace(each, rotation=np.pad(each.rotation, ((0, 0), (0, width - each.rotation.shape[1]))))
        for each in made
    ]


def _aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros in memory that JAX can take over without a copy."""
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def low_rank_factor(
    basis_map: BasisMap,
    rows: np.ndarray,
    kernel: Kernel,
    lengthscale: Any = None,
    *,
    n_rows: int | None = None,
    dtype: Any = np.float64,
) -> tuple[Factor, np.ndarray | None]:
    """Factor ``K ~ U diag(lambda) U'`` of rows under their basis map.

    Parameters
    ----------
    basis_map
        The basis map, built from the same rows, so that the columns of U are orthonormal.
    rows
        Rows, shape (n, p).
    kernel, lengthscale
        The kernel that was approximated.
    n_rows
        Number of rows of U; rows of zeros follow those of the data.
    dtype
        Type of the basis.

    Returns
    -------
    tuple
        The factor in NumPy arrays, U (n, r) of that type and lambda (r,) in float64; and the
        remainder of each row, ``k(x, x) - |Phi(x)|^2``, shape (n,), not negative; None for Fourier
        features, which have no remainder.
    """
    total = len(rows) if n_rows is None else n_rows
    basis = _aligned_zeros((total, basis_map.rotation.shape[1]), np.dtype(dtype))
    norms, left = np.zeros(basis.shape[1]), np.zeros(total, dtype)
    function = kernel.at(lengthscale)
    leaves = basis_map.kind == "nystrom"
    start = 0
    for block in _blocks(rows):
        part = basis_map(block, function)
        norms += np.sum(part**2, axis=0)
        basis[start : start + len(part)] = part
        if leaves:
            own = own_values(kernel, lengthscale, block)
            left[start : start + len(part)] = np.maximum(own - np.sum(part**2, axis=1), 0.0)
        start += len(part)
    roots = np.sqrt(np.where(norms > 0, norms, 1.0))
    for begin in range(0, len(basis), BLOCK):
        basis[begin : begin + BLOCK] /= roots
    factor = Factor(cast(jax.Array, basis), cast(jax.Array, norms))
    return factor, left if leaves else None
