"""Posterior draws of the class functions, evaluated at any number of new rows.

Given a posterior draw, the column functions at a new row are ``f* = b + Phi* v + e*`` (see
:mod:`bmsvm.inference.predict`), so that all draws at many rows are one matrix product. What is
random beyond the draw is integrated by quasi-random points which belong to the draw and are the
same for every row: one for the remainder ``e*``, and some for the noise of the scores. What
is said of a row therefore depends on that row alone, whatever rows are asked about beside it; the
price is that the noise of different rows is not independent, which no statement about single rows
can tell.

Rows are worked on in blocks of one size, the last one filled up, and draws in batches of one size:
memory is bounded, one program serves all, and results do not depend on how rows are grouped.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from tqdm.auto import tqdm

from bmsvm._validation import check_defined
from bmsvm.features import raw_features
from bmsvm.inference.quasirandom import normal_points
from bmsvm.kernels import (
    RANK_MULTIPLE,
    STATIONARY,
    Factor,
    KernelFn,
    gram,
    kernel_at,
    projection,
)
from bmsvm.models.couplings import class_map, class_vector
from bmsvm.models.kernel_parameters import nearest_on_grid
from bmsvm.models.likelihoods import probabilities_by_class
from bmsvm.models.problem import Problem
from bmsvm.rows import PiecewiseRows

__all__ = ["Evaluated", "Posterior", "Stage", "fill", "posterior_of"]

ROWS = 128
"""Rows of a block."""

DRAWS = 64
"""Draws of a batch."""

POINTS = 16
"""Points at which the noise of the scores is integrated, for each draw; a power of two."""

NOISE_STREAM, REMAINDER_STREAM = 1, 2
"""Set the two sequences of points apart."""

MOST = 1e37
"""Scores beyond it, which float32 could not add, decide for or against a class as it does."""

LIGHT = np.float32
"""Type in which probabilities are computed; functions are float64."""


class Stage(NamedTuple):
    """Draws that share one kernel.

    kernel
        Callable, or None where rows are given by their kernel values.
    kind
        How features are made of the kernel: ``"nystrom"``, of values with points, as where the
        points are all rows, too; or ``"fourier"``.
    points
        Training rows, landmarks or frequencies, shape (m, p).
    constant
        ``k(x, x)`` where that is the same for every x, else None.
    projection
        ``U diag(lambda)^(-1/2)``, shape (n, q), which makes Phi* of K*; q is the rank of K,
        rounded up. Of a map of low rank, its rotation.
    draws
        Numbers of the draws, shape (s,).
    """

    kernel: KernelFn | None
    kind: str
    points: np.ndarray
    constant: float | None
    projection: np.ndarray
    draws: np.ndarray


class Batch(NamedTuple):
    """Some draws, as many as ``DRAWS``, the last of them repeated.

    weights
        v, shape (q, D k).
    intercept
        Of the classes, shape (D, c).
    outside
        sigma/sqrt(tau) times the point of the remainder, shape (D, k).
    noise
        sigma times the points of the noise, shape (c, D, J).
    """

    weights: jax.Array
    intercept: jax.Array
    outside: jax.Array
    noise: jax.Array


class Evaluated(NamedTuple):
    """All draws at some rows.

    rows
        Which rows.
    functions
        Class functions, shape (m, c, s).
    probabilities
        Class probabilities p(y | f), the noise of the scores integrated, shape (m, c, s).

    What was not asked for is empty.
    """

    rows: slice
    functions: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True)
class Posterior:
    """Posterior draws of the class functions.

    samples
        Draws, flat over chains: ``weights`` (s, r, k), ``intercept`` (s, c), ``noise_variance``
        (s,), ``precision`` (s,).
    stages
        The draws by kernel.
    coupling, likelihood
        Of the model.
    remainder
        Whether new rows have the variance that the training rows leave (the Gaussian process),
        or none (the representer form).
    points
        Points of the remainder, shape (s, k), and of the noise, shape (s, J, k).
    """

    samples: dict[str, np.ndarray]
    stages: tuple[Stage, ...]
    coupling: str
    likelihood: str
    remainder: bool
    points: tuple[np.ndarray, np.ndarray]

    @property
    def n_draws(self) -> int:
        """Number of draws of all chains."""
        return len(self.samples["precision"])

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.samples["intercept"].shape[1]

    def evaluate(
        self,
        rows: np.ndarray | PiecewiseRows,
        *,
        functions: bool = True,
        probabilities: bool = True,
        progress: str | None = None,
    ) -> Iterator[Evaluated]:
        """Evaluate all draws at rows (m, p), block by block.

        Parameters
        ----------
        rows
            Rows as the kernel sees them, shape (m, p), or kernel values (m, n) where the kernel
            was precomputed.
        functions, probabilities
            What to keep: class functions, class probabilities.
        progress
            What to call the progress bar; None for none.
        """
        with jax.enable_x64(True):
            batches = [list(self._batches(stage)) for stage in self.stages]
        shape = (ROWS, self.n_classes, self.n_draws)
        empty = (ROWS, 0, 0)
        with tqdm(total=len(rows), desc=progress, disable=progress is None, unit="row") as bar:
            for start in range(0, len(rows), ROWS):
                block, size = fill(rows[start : start + ROWS])
                heights = np.empty(shape if functions else empty)
                chances = np.empty(shape if probabilities else empty, LIGHT)
                for stage, parts in zip(self.stages, batches, strict=True):
                    inside, root = self.features(stage, block)
                    for numbers, batch in parts:
                        with jax.enable_x64(True):
                            at = _functions(inside, root, batch, coupling=self.coupling)
                            if functions:
                                heights[:, :, numbers] = np.asarray(at)[:, :, : len(numbers)]
                            if probabilities:
                                p = _probabilities(at, batch.noise, likelihood=self.likelihood)
                                chances[:, :, numbers] = np.asarray(p)[:, :, : len(numbers)]
                for found in (heights[:size], chances[:size]):
                    check_defined(found, start)
                yield Evaluated(slice(start, start + size), heights[:size], chances[:size])
                bar.update(size)

    def features(self, stage: Stage, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Phi* of rows, shape (m, q), and the root of the remainder's variance, shape (m,)."""
        if stage.kernel is None:
            values = np.pad(block, ((0, 0), (0, len(stage.projection) - block.shape[1])))
            return _product(values, stage.projection), np.zeros(len(block))
        values = raw_features(stage.kind, stage.kernel, block, stage.points)
        inside = _product(values, stage.projection)
        if not self.remainder:
            return inside, np.zeros(len(block))
        own: np.ndarray | float | None = stage.constant
        if own is None:
            own = np.diag(gram(stage.kernel, block))
        return inside, np.sqrt(np.maximum(own - np.sum(inside**2, axis=1), 0.0))

    def _batches(self, stage: Stage) -> Iterator[tuple[np.ndarray, Batch]]:
        to_classes = class_map(self.coupling, self.n_classes)
        rank = int(np.sum(np.any(stage.projection != 0, axis=0)))
        wide = stage.projection.shape[1]
        for start in range(0, len(stage.draws), DRAWS):
            numbers = stage.draws[start : start + DRAWS]
            filled = np.concatenate([numbers, np.repeat(numbers[-1:], DRAWS - len(numbers))])
            weights, intercept, variance, precision = (
                self.samples[name][filled].astype(np.float64)
                for name in ("weights", "intercept", "noise_variance", "precision")
            )
            outside, noise = (points[filled] for points in self.points)
            scale = np.sqrt(variance)
            scores = scale[:, None, None] * noise @ to_classes
            batch = Batch(
                weights=jnp.asarray(_batched(weights[:, :rank], wide)),
                intercept=jnp.asarray(intercept),
                outside=jnp.asarray((scale / np.sqrt(precision))[:, None] * outside),
                noise=jnp.asarray(np.clip(np.moveaxis(scores, -1, 0), -MOST, MOST), LIGHT),
            )
            yield numbers, batch


def fill(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Repeat the last row until there are ``ROWS`` of them; and how many there were."""
    block = np.asarray(rows, np.float64)
    filled = np.concatenate([block, np.repeat(block[-1:], ROWS - len(block), axis=0)])
    return filled, len(block)


@functools.partial(jax.jit, static_argnames="coupling")
def _functions(inside: jax.Array, root: jax.Array, batch: Batch, *, coupling: str) -> jax.Array:
    """Class functions at rows, for a batch of draws: shape (m, c, D)."""
    columns = (inside @ batch.weights).reshape(len(inside), *batch.outside.shape)
    columns = columns + root[:, None, None] * batch.outside
    return jnp.swapaxes(class_vector(columns, coupling) + batch.intercept, 1, 2)


def _batched(weights: np.ndarray, rank: int) -> np.ndarray:
    """Weights (D, r, k) side by side, shape (rank, D k), zeros at the end."""
    flat = weights.transpose(1, 0, 2).reshape(weights.shape[1], -1)
    return np.pad(flat, ((0, rank - len(flat)), (0, 0)))


_multiply = jax.jit(jnp.matmul)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Matrix product in float64, by JAX: its threads do not fight over busy processors."""
    with jax.enable_x64(True):
        return np.asarray(_multiply(left, right))


@functools.partial(jax.jit, static_argnames="likelihood")
def _probabilities(functions: jax.Array, noise: jax.Array, *, likelihood: str) -> jax.Array:
    """``E p(y | z)``, ``z ~ N(f, sigma2)``, of functions (m, c, D): the same shape."""
    light = jnp.clip(functions, -MOST, MOST).astype(noise.dtype)
    scores = [light[:, j, :, None] + noise[j] for j in range(functions.shape[1])]
    each = probabilities_by_class(scores, likelihood)
    return jnp.stack([jnp.mean(p, axis=-1) for p in each], axis=1)


def _within_rank(factor: Factor) -> np.ndarray:
    """Projection in float64, of as many columns as the rank rounded up, zeros at the end."""
    basis, eigenvalues = (np.asarray(part, np.float64) for part in factor)
    rank = int(np.sum(eigenvalues > 0))  # they decrease
    return _padded(projection(Factor(basis[:, :rank], eigenvalues[:rank])))  # type: ignore[arg-type]


def _padded(matrix: np.ndarray) -> np.ndarray:
    """Columns of zeros added, up to a multiple of ``RANK_MULTIPLE`` of them."""
    return np.pad(matrix.astype(np.float64), ((0, 0), (0, -matrix.shape[1] % RANK_MULTIPLE)))


def posterior_of(
    samples: Mapping[str, np.ndarray],
    problem: Problem,
    training_rows: np.ndarray,
    *,
    kernel: KernelFn | str = "gaussian",
    lengthscale: ArrayLike = 1.0,
    remainder: bool = True,
    seed: int = 0,
    points: int = POINTS,
) -> Posterior:
    """Make draws of chains ready to be evaluated at new rows.

    Parameters
    ----------
    samples
        Draws (chain, draw, ...) of ``weights``, ``intercept``, ``noise_variance``, ``precision``,
        and ``lengthscale`` where that was sampled.
    problem
        The prepared training data.
    training_rows
        Rows (n, p) it was prepared from; not used where the problem has features of low rank.
    kernel, lengthscale
        As given to :func:`bmsvm.prepare`; the lengthscale is not used where it was sampled.
    remainder
        Whether new rows have the Gaussian process's variance. With ``kernel="precomputed"`` they
        have not: nobody says what ``k(x*, x*)`` is.
    seed
        Seed of the points at which what is random beyond the draws is integrated.
    points
        Points at which the noise of the scores is integrated, for each draw; a power of two.
    """
    chains, draws = samples["precision"].shape
    n_draws = chains * draws
    flat = {name: value.reshape(n_draws, *value.shape[2:]) for name, value in samples.items()}
    each: list[tuple[ArrayLike, Any, np.ndarray]]
    low, grid = problem.features, problem.grid
    maps: Any = problem.factor if low is None else low
    if grid is None:
        each = [(lengthscale, maps, np.ones(n_draws, bool))]
    else:
        # As NumPy arrays: outside float64 mode JAX would round what it indexes.
        values = np.asarray(grid.values)
        maps = jax.tree.map(np.asarray, grid.factors if low is None else grid.features)
        numbers = nearest_on_grid(np.asarray(flat["lengthscale"]), values)
        each = [
            (values[g], jax.tree.map(operator.itemgetter(g), maps), numbers == g)
            for g in np.unique(numbers)
        ]
    places: Any = None
    if low is None:
        # A spare row has no part in any function; its place is taken by any row.
        spare = problem.n_rows - len(training_rows)
        places = np.concatenate([training_rows, np.repeat(training_rows[-1:], spare, axis=0)])
    stages = tuple(
        Stage(
            kernel=kernel_at(kernel, theta),
            kind="nystrom" if low is None else low.kind,
            points=np.asarray(places if low is None else here.points, np.float64),
            constant=1.0 if isinstance(kernel, str) and kernel in STATIONARY else None,
            projection=_within_rank(here) if low is None else _padded(np.asarray(here.rotation)),
            draws=np.flatnonzero(mine),
        )
        for theta, here, mine in each
    )
    # Points go to draws in the order of time, so that longer chains keep those of shorter ones.
    order = np.arange(n_draws).reshape(draws, chains).T.ravel()
    k = problem.n_columns
    noise = normal_points(n_draws * points, k, _stream(seed, NOISE_STREAM))
    return Posterior(
        samples=flat,
        stages=stages,
        coupling=problem.coupling,
        likelihood=problem.likelihood,
        remainder=remainder,
        points=(
            normal_points(n_draws, k, _stream(seed, REMAINDER_STREAM))[order],
            noise.reshape(-1, points, k)[order],
        ),
    )


def _stream(seed: int, stream: int) -> int:
    return int(np.random.SeedSequence((seed, stream)).generate_state(1)[0])
