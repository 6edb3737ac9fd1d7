"""Gram matrices of low rank: ``K ~ Phi Phi'`` with r columns, from n rows in O(n r) memory.

``nystrom``
    ``Phi = K_nm R``, ``R R' = K_mm^-1``, over m landmarks. ``k(x, x) - |Phi(x)|^2`` is what the
    landmarks do not determine at x; it is never negative, and its mean over the rows is the error
    of the approximation.
``fourier``
    Random Fourier features of a stationary kernel (Rahimi and Recht): cosines and sines at
    frequencies drawn from its spectral density. The process they span has the variance of the
    kernel everywhere, away from the data too, and nothing remains; its covariance is right on
    average over frequencies, and at two given rows to about ``1/sqrt(r)``.

Either way the columns are then rotated to ``Phi = U diag(lambda)^(1/2)``, which is the interface of
an exact factorisation; the rotation goes with the map, so that new rows need the points and an
r x r matrix, and never the rows that were learned from.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike
from sklearn.cluster import MiniBatchKMeans

from bmsvm._validation import check_choice, check_count, check_positive
from bmsvm.kernels import STATIONARY, Factor, KernelFn, check_lengthscale, gram, kernel_at
from bmsvm.rows import PIECE, PiecewiseRows, Rows, pieces_of

__all__ = [
    "FeatureMap",
    "LowRank",
    "build_features",
    "features_on",
    "landmarks_of",
    "low_rank_factor",
    "pivoted_cholesky",
    "raw_features",
]

KINDS = ("nystrom", "fourier")
LANDMARKS = ("kmeans", "greedy", "leverage")

CANDIDATES = 5000
"""Rows among which landmarks are looked for one by one; a random choice of more."""

NEAR_ZERO = 1e-10
"""Eigenvalues below this part of the largest are dropped: what they add is in the remainder."""

ALIGNMENT = 64
"""Bytes at a multiple of which an array of JAX begins."""


@dataclass(frozen=True)
class LowRank:
    """How a Gram matrix is approximated.

    Parameters
    ----------
    kind
        ``"nystrom"`` or ``"fourier"``.
    rank
        Number r of columns. None: as many landmarks as bring the mean of ``k(x, x) - |Phi(x)|^2``
        below ``tolerance`` times that of ``k(x, x)``, at most ``max_rank``; ``max_rank`` Fourier
        features.
    tolerance
        See above.
    max_rank
        See above.
    landmarks
        How they are chosen. ``"kmeans"``: centres of clusters. ``"greedy"``: the row that is
        determined least by those before it, again and again (pivoted Cholesky). ``"leverage"``:
        at random, in proportion to ridge leverage scores. The last two choose among 5000 rows.
    dtype
        Type in which the basis is kept; None for JAX's default. The small matrices are float64.
    seed
        Seed of what is random.
    recompute
        Whether the basis is computed from the rows each time it is needed, part by part, rather
        than kept: memory is then that of the rows, n p numbers and not n r, and sweeps take longer.
        With ``preset="large"``, a stationary kernel given by name and a fixed lengthscale.
    """

    kind: str = "nystrom"
    rank: int | None = None
    tolerance: float = 0.01
    max_rank: int = 512
    landmarks: str = "kmeans"
    dtype: str | None = None
    seed: int = 0
    recompute: bool = False

    def validate(self) -> None:
        """Raise ``ValueError`` for settings that make no sense."""
        check_choice("features", self.kind, KINDS)
        check_choice("landmarks", self.landmarks, LANDMARKS)
        if self.rank is not None:
            check_count("rank", self.rank, smallest=2 if self.kind == "fourier" else 1)
        check_count("max_rank", self.max_rank, smallest=2)
        check_positive("tolerance", self.tolerance)
        check_count("seed", self.seed, smallest=0)
        if self.dtype is not None:
            check_choice("dtype", self.dtype, ("float32", "float64"))
        if not isinstance(self.recompute, bool | np.bool_):
            raise ValueError(f"recompute must be True or False; got {self.recompute!r}")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FeatureMap:
    """What turns rows into ``Phi``, see :meth:`__call__`."""

    points: Any
    """Landmarks, or frequencies, shape (m, p)."""
    rotation: Any
    """Matrix from raw features to those in which ``Phi'Phi`` is diagonal, shape (q, r)."""
    error: Any
    """Mean of ``k(x, x) - |Phi(x)|^2`` over the rows it was made from, a scalar."""
    kind: str = field(metadata={"static": True})

    def __call__(self, rows: ArrayLike, kernel: KernelFn | None) -> np.ndarray:
        """Phi of rows (m, p), shape (m, r), float64; ``kernel`` is that of the landmarks."""
        raw = raw_features(self.kind, kernel, np.asarray(rows), np.asarray(self.points))
        return raw @ np.asarray(self.rotation, np.float64)


def raw_features(
    kind: str, kernel: KernelFn | None, rows: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Kernel values with landmarks, shape (n, m); or waves at m frequencies, shape (n, 2 m)."""
    if kind == "nystrom":
        return gram(cast(KernelFn, kernel), rows, points)
    phase = np.asarray(rows, np.float64) @ np.asarray(points, np.float64).T
    return np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / np.sqrt(len(points))


def own_values(kernel: KernelFn, rows: np.ndarray, constant: bool, part: int = 256) -> np.ndarray:
    """``k(x, x)`` of rows (n, p), shape (n,); 1 where the kernel is known to be so."""
    if constant:
        return np.ones(len(rows))
    parts = (rows[start : start + part] for start in range(0, len(rows), part))
    return np.concatenate([np.zeros(0), *(np.diag(gram(kernel, each)) for each in parts)])


class Pivots(NamedTuple):
    """Rows chosen by :func:`pivoted_cholesky`.

    numbers
        Of the rows, in the order in which they were chosen, shape (r,).
    errors
        ``trace(K - Phi Phi') / n`` after each, shape (r,).
    """

    numbers: np.ndarray
    errors: np.ndarray


def pivoted_cholesky(
    kernel: KernelFn, rows: np.ndarray, rank: int, *, tolerance: float = 0.0, constant: bool = False
) -> Pivots:
    """Choose rows (n, p) one by one, each the one that those before it determine least.

    It ends after ``rank`` of them, or when the mean of what is left is ``tolerance`` times that of
    ``k(x, x)``.
    """
    own = own_values(kernel, rows, constant)
    left = own.copy()
    rank = min(rank, len(rows))
    columns = np.zeros((rank, len(rows)))
    numbers, errors = [], []
    for j in range(rank):
        pivot = int(np.argmax(left))
        if left[pivot] <= NEAR_ZERO * own.max():
            break
        values = gram(kernel, rows[pivot : pivot + 1], rows)[0]
        column = (values - columns[:j, pivot] @ columns[:j]) / np.sqrt(left[pivot])
        columns[j] = column
        left = np.maximum(left - column**2, 0.0)
        left[pivot] = 0.0
        numbers.append(pivot)
        errors.append(left.mean())
        if errors[-1] <= tolerance * own.mean():
            break
    return Pivots(np.asarray(numbers), np.asarray(errors))


def _some(rows: Rows, count: int, random: np.random.Generator) -> np.ndarray:
    """At most ``count`` different rows, at random, in float64."""
    n = rows.shape[0]
    if n <= count:
        return np.asarray(rows[:], np.float64)
    numbers = np.sort(random.choice(n, count, replace=False))
    rows = rows if isinstance(rows, np.ndarray | PiecewiseRows) else PiecewiseRows(rows)
    return np.asarray(rows[numbers], np.float64)


def landmarks_of(
    kernel: KernelFn, rows: Rows, how: LowRank, *, constant: bool = False
) -> np.ndarray:
    """Landmarks (m, p) for rows (n, p)."""
    random = np.random.default_rng(how.seed)
    candidates = _some(rows, CANDIDATES, random)
    rank = min(how.max_rank if how.rank is None else how.rank, rows.shape[0])
    if how.rank is None or how.landmarks == "greedy":
        tolerance = how.tolerance if how.rank is None else 0.0
        pivots = pivoted_cholesky(
            kernel, candidates, rank, tolerance=tolerance, constant=constant
        ).numbers
        if how.landmarks == "greedy":
            return candidates[pivots]
        rank = len(pivots)
    if how.landmarks == "leverage":
        return candidates[_by_leverage(kernel, candidates, rank, random, constant)]
    distinct = np.unique(candidates, axis=0)
    if rank >= len(distinct):
        return distinct
    state = int(random.integers(2**31))
    clusters = MiniBatchKMeans(rank, random_state=state, n_init=1, batch_size=4096, max_iter=50)
    return clusters.fit(candidates).cluster_centers_


def _by_leverage(
    kernel: KernelFn,
    rows: np.ndarray,
    rank: int,
    random: np.random.Generator,
    constant: bool,
) -> np.ndarray:
    """Numbers of rows drawn in proportion to ridge leverage scores.

    The scores are those of a Nystrom approximation on twice as many rows taken at random, with the
    ridge that leaves the trace of the best approximation of that rank about where it is.
    """
    pilot = rows[random.choice(len(rows), min(2 * rank, len(rows)), replace=False)]
    raw = gram(kernel, rows, pilot) @ _inverse_root_of(gram(kernel, pilot))
    own = own_values(kernel, rows, constant)
    values = np.linalg.eigvalsh(raw.T @ raw)[::-1]
    ridge = max((own.sum() - values[:rank].sum()) / rank, NEAR_ZERO * values[0])
    inner = raw.T @ raw + ridge * np.eye(raw.shape[1])
    explained = np.sum(raw * np.linalg.solve(inner, raw.T).T, axis=1)
    scores = np.maximum(explained + np.maximum(own - np.sum(raw**2, 1), 0.0) / ridge, 0.0)
    chosen = random.choice(len(rows), min(rank, len(rows)), replace=False, p=scores / scores.sum())
    return np.sort(chosen)


def _inverse_root_of(gram_matrix: np.ndarray) -> np.ndarray:
    """``R`` with ``R R' = K^+``, shape (m, r), r the rank of K (m, m) to :data:`NEAR_ZERO`."""
    values, vectors = scipy.linalg.eigh(gram_matrix)
    kept = values > NEAR_ZERO * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])


def _frequencies(
    kernel: str, lengthscale: np.ndarray, count: int, n_features: int, seed: int
) -> np.ndarray:
    """Frequencies (m, p) from the spectral density of a named stationary kernel.

    That of a Matern kernel is Student's, with twice its order as degrees of freedom.
    """
    random = np.random.default_rng(seed)
    normal = random.standard_normal((count, n_features))
    freedom = {"gaussian": None, "matern32": 3.0, "matern52": 5.0}[kernel]
    if freedom is not None:
        normal *= np.sqrt(freedom / random.chisquare(freedom, (count, 1)))
    return normal / lengthscale


@functools.partial(jax.jit, donate_argnums=0)
def _add_outer(total: jax.Array, part: jax.Array) -> jax.Array:
    return total + part.T @ part


def build_features(
    rows: Rows,
    kernel: KernelFn | str,
    how: LowRank,
    lengthscale: ArrayLike = 1.0,
    points: np.ndarray | None = None,
) -> FeatureMap:
    """Make the features of rows (n, p): choose points, then rotate, in one pass over the rows.

    Parameters
    ----------
    rows
        Anything with a shape that can be sliced: an array, a memory map, a Zarr array.
    kernel, lengthscale
        As in :func:`bmsvm.prepare`; ``"fourier"`` needs a stationary kernel given by name.
    how
        How the Gram matrix is approximated.
    points
        Landmarks (m, p), if they are chosen already.
    """
    how.validate()
    function = kernel_at(kernel, lengthscale)
    if function is None:
        raise ValueError(
            'features must be "exact" with kernel="precomputed", whose rows nobody knows; '
            f"got {how.kind!r}"
        )
    named = isinstance(kernel, str) and kernel in STATIONARY
    if named:
        check_lengthscale(lengthscale, rows.shape[1])
    if how.kind == "fourier":
        if not named:
            raise ValueError(
                'features="fourier" needs a stationary kernel by name: kernel must be one of '
                f'{", ".join(map(repr, STATIONARY))}; got {kernel!r}. Pass features="nystrom"'
            )
        count = (how.max_rank if how.rank is None else how.rank) // 2
        theta = np.asarray(lengthscale, np.float64)
        points = _frequencies(cast(str, kernel), theta, count, rows.shape[1], how.seed)
        start = np.eye(2 * count)
    else:
        if points is None:
            points = landmarks_of(function, rows, how, constant=named)
        start = _inverse_root_of(gram(function, points))
    own = 0.0
    with jax.enable_x64(True):
        outer = jnp.zeros((start.shape[1],) * 2)
        for part in pieces_of(rows):
            raw = raw_features(how.kind, function, part, points) @ start
            outer = _add_outer(outer, jnp.asarray(raw))
            own += float(own_values(function, part, named).sum())
    values, vectors = scipy.linalg.eigh(np.asarray(outer))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > NEAR_ZERO * values[0]
    error = max(own - float(values[kept].sum()), 0.0) / rows.shape[0]
    return FeatureMap(points, start @ vectors[:, kept], np.asarray(error), how.kind)


def features_on(
    rows: Rows, kernel: str, how: LowRank, values: np.ndarray, start: int
) -> list[FeatureMap]:
    """Features of rows (n, p) at each lengthscale of a grid (G,), all as wide as the widest.

    Landmarks are chosen at the value of number ``start``; frequencies are the same but for their
    scale.
    """
    points = None
    if how.kind == "nystrom":
        points = landmarks_of(STATIONARY[kernel](values[start]), rows, how, constant=True)
    made = [build_features(rows, kernel, how, theta, points=points) for theta in values]
    width = max(each.rotation.shape[1] for each in made)
    return [
        replace(each, rotation=np.pad(each.rotation, ((0, 0), (0, width - each.rotation.shape[1]))))
        for each in made
    ]


def _aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros in memory that JAX can take over as it is, and need not copy."""
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def low_rank_factor(
    features: FeatureMap,
    rows: Rows | Iterable[np.ndarray],
    kernel: KernelFn | None,
    *,
    constant: bool = False,
    n_rows: int | None = None,
    dtype: Any = np.float64,
    keep: bool = True,
) -> tuple[Factor, np.ndarray]:
    """Factor ``K ~ U diag(lambda) U'`` of rows under their features.

    Parameters
    ----------
    features
        Made from the same rows, for the columns of U to be orthonormal.
    rows
        As in :func:`build_features`; or batches of rows (m, p), then with ``n_rows``.
    kernel
        Kernel of the landmarks; None for Fourier features.
    constant
        Whether it is known that ``k(x, x) = 1``.
    n_rows
        Rows of the basis: zeros follow where there are more than rows.
    dtype
        Type of the basis.
    keep
        Whether to keep the basis; if not, it has no rows.

    Returns
    -------
    tuple
        The factor in NumPy arrays, U (n, r) of that type and lambda (r,) in float64; and what the
        features leave of each row, ``k(x, x) - |Phi(x)|^2``, shape (n,), not negative.
    """
    sliced = hasattr(rows, "shape")
    batches = pieces_of(cast(Rows, rows)) if sliced else cast(Iterable[np.ndarray], rows)
    total = cast(Rows, rows).shape[0] if n_rows is None else n_rows
    basis = _aligned_zeros((total if keep else 0, features.rotation.shape[1]), np.dtype(dtype))
    norms, left = np.zeros(basis.shape[1]), np.zeros(total, dtype)
    start = 0
    for batch in batches:
        part = features(batch, kernel)
        norms += np.sum(part**2, axis=0)
        if keep:
            basis[start : start + len(part)] = part
        if kernel is not None:
            own = own_values(kernel, batch, constant)
            left[start : start + len(part)] = np.maximum(own - np.sum(part**2, axis=1), 0.0)
        start += len(part)
    roots = np.sqrt(np.where(norms > 0, norms, 1.0))
    for begin in range(0, len(basis), PIECE):
        basis[begin : begin + PIECE] /= roots
    return Factor(cast(jax.Array, basis), cast(jax.Array, norms)), left
