"""Posterior draws of the class functions at new rows.

Given a draw, the functions are a Gaussian process conditioned on the training rows, so that the
column functions at a new row are

    f* = b + Phi* v + e*,    Phi* = K* U diag(lambda)^(-1/2),
    e* ~ N(0, sigma2/tau (k** - |Phi*|^2)),

where the remainder e* has the conditional variance given the training rows. The kernel expansion
(1) is the same without e*. One matrix product evaluates all draws at many rows.

The remainder e* and the noise of the scores are integrated by quasi-random points: for each draw
one for the remainder and several for the noise, the same for every row. Predictions of a row
therefore do not depend on the other rows. The noise of different rows is not independent, which
does not affect predictions of single rows.

Rows are processed in blocks of one size, the last one padded, and draws in batches of one size.
Memory is bounded, and results do not depend on the grouping. All is NumPy but the mean over the
noise, one compiled program, which ``squared`` does not need.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm._threads import few_blas_threads
from bmsvm.kernels.factor import Factor, projection
from bmsvm.kernels.functions import Kernel, Precomputed, own_values
from bmsvm.kernels.low_rank import raw_basis
from bmsvm.models.couplings import class_map
from bmsvm.models.likelihoods import probabilities_given_functions

ROWS = 128
"""Rows of a block."""

DRAWS = 64
"""Draws of a batch."""

LARGEST_SCORE = 1e37
"""Scores are clipped to this value, so that float32 can add them; it decides a class anyway."""

LIGHT = np.float32
"""Type in which probabilities are computed; functions are float64."""


class Stage(NamedTuple):
    """Draws that share one kernel.

    kernel, lengthscale
        The kernel and its theta.
    kind
        ``"nystrom"`` for kernel values with points, which may be all training rows; ``"fourier"``
        for random features.
    points
        Training rows, landmarks or frequencies, shape (m, p).
    projection
        ``U diag(lambda)^(-1/2)``, shape (n, q), which maps K* to Phi*; q is the rank of K. With a
        basis of low rank, the rotation of its basis map.
    weights
        v of each draw, shape (s, q', k) with q' >= q; only the first q have a part.
    draws
        Indices of the draws, shape (s,).
    """

    kernel: Kernel
    lengthscale: np.ndarray | None
    kind: str
    points: np.ndarray
    projection: np.ndarray
    weights: np.ndarray
    draws: np.ndarray

    def basis(self, rows: np.ndarray, remainder: bool) -> tuple[np.ndarray, np.ndarray]:
        """Phi* of rows (m, p), shape (m, q), and ``sqrt(k** - |Phi*|^2)``, shape (m,).

        The second is zero without ``remainder``, and for a precomputed kernel, whose ``k**`` is
        unknown.
        """
        if isinstance(self.kernel, Precomputed):
            values = np.pad(rows, ((0, 0), (0, len(self.projection) - rows.shape[1])))
            return values @ self.projection, np.zeros(len(rows))
        function = self.kernel.at(self.lengthscale)
        inside = raw_basis(self.kind, function, rows, self.points) @ self.projection
        if not remainder:
            return inside, np.zeros(len(rows))
        own = own_values(self.kernel, self.lengthscale, rows)
        return inside, np.sqrt(np.maximum(own - np.sum(inside**2, axis=1), 0.0))


class Draws(NamedTuple):
    """Parameters of all draws besides the weights.

    intercept
        Of the classes, shape (s, c).
    noise_variance, precision
        sigma2 and tau, shape (s,).
    outside
        Point of the remainder, shape (s, k).
    noise
        Points of the noise of the scores, shape (s, J, k).
    """

    intercept: np.ndarray
    noise_variance: np.ndarray
    precision: np.ndarray
    outside: np.ndarray
    noise: np.ndarray


class _Batch(NamedTuple):
    """Some draws, as many as ``DRAWS``, the last of them repeated.

    weights (q, k D); intercept (c, D); outside, sigma/sqrt(tau) times the point of the remainder,
    (k, D); noise, sigma times the points of the noise, (c, D, J); noise_variance, sigma2, (D,).
    """

    weights: np.ndarray
    intercept: np.ndarray
    outside: np.ndarray
    noise: np.ndarray
    noise_variance: np.ndarray


def projection_of(factor: Factor) -> np.ndarray:
    """Projection in float64, of as many columns as the rank."""
    basis, eigenvalues = (np.asarray(part, np.float64) for part in factor)
    rank = int(np.sum(eigenvalues > 0))  # they decrease
    return projection(Factor(basis[:, :rank], eigenvalues[:rank]))  # type: ignore[arg-type]


def pad_rows(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Pad to ``ROWS`` rows by repeating the last; also return the number of rows before."""
    block = np.asarray(rows, np.float64)
    filled = np.concatenate([block, np.repeat(block[-1:], ROWS - len(block), axis=0)])
    return filled, len(block)


def _batches(stage: Stage, draws: Draws, coupling: str) -> Iterator[tuple[np.ndarray, _Batch]]:
    """Draws of a stage in batches of ``DRAWS``: indices and parameters."""
    to_classes = class_map(coupling, draws.intercept.shape[1])
    rank = stage.projection.shape[1]
    for start in range(0, len(stage.draws), DRAWS):
        places = np.arange(start, min(start + DRAWS, len(stage.draws)))
        filled = np.concatenate([places, np.repeat(places[-1:], DRAWS - len(places))])
        numbers = stage.draws[filled]
        weights = stage.weights[filled, :rank].astype(np.float64)
        scale = np.sqrt(draws.noise_variance[numbers].astype(np.float64))
        scores = scale[:, None, None] * draws.noise[numbers] @ to_classes
        spread = scale / np.sqrt(draws.precision[numbers])
        batch = _Batch(
            weights=weights.transpose(1, 2, 0).reshape(rank, -1),
            intercept=draws.intercept[numbers].T.astype(np.float64),
            outside=(spread[:, None] * draws.outside[numbers]).T,
            noise=_light(np.moveaxis(scores, -1, 0)),
            noise_variance=_light(draws.noise_variance[numbers]),
        )
        yield stage.draws[places], batch


def _light(values: np.ndarray) -> np.ndarray:
    """Values clipped, in the type of probabilities."""
    return np.clip(values, -LARGEST_SCORE, LARGEST_SCORE).astype(LIGHT)


def functions_and_probabilities(
    stages: Iterator[Stage],
    draws: Draws,
    rows: np.ndarray,
    *,
    coupling: str,
    likelihood: str,
    remainder: bool,
    functions: bool = True,
    probabilities: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate all draws at a block of ``ROWS`` rows.

    Returns
    -------
    tuple
        Class functions (m, c, s), float64; and class probabilities p(y | f), with the noise of the
        scores integrated out, (m, c, s), float32. Arrays that were not requested are empty.
    """
    shape = (len(rows), draws.intercept.shape[1], len(draws.precision))
    empty = (len(rows), 0, 0)
    heights = np.empty(shape if functions else empty)
    chances = np.empty(shape if probabilities else empty, LIGHT)
    to_classes = class_map(coupling, shape[1])
    for stage in stages:
        with few_blas_threads(len(stage.points)), np.errstate(over="ignore", invalid="ignore"):
            inside, root = stage.basis(rows, remainder)
            for numbers, batch in _batches(stage, draws, coupling):
                at = _functions(inside, root, batch, to_classes)
                if functions:
                    heights[:, :, numbers] = at[:, :, : len(numbers)]
                if probabilities:
                    p = _probabilities(at, batch, likelihood)
                    chances[:, :, numbers] = p[:, :, : len(numbers)]
    return heights, chances


def _functions(
    inside: np.ndarray, root: np.ndarray, batch: _Batch, to_classes: np.ndarray
) -> np.ndarray:
    """Class functions at rows, for a batch of draws: shape (m, c, D)."""
    columns = (inside @ batch.weights).reshape(len(inside), *batch.outside.shape)
    columns += root[:, None, None] * batch.outside
    return to_classes.T @ columns + batch.intercept


def _probabilities(functions: np.ndarray, batch: _Batch, likelihood: str) -> np.ndarray:
    """``p(y | f)``, noise of the scores integrated out, of functions (m, c, D): the same shape."""
    light = _light(functions)
    if likelihood == "squared":  # the noise is integrated in closed form
        classes = np.moveaxis(light, 1, 0)
        each = probabilities_given_functions(list(classes), [], batch.noise_variance, likelihood)
        return np.stack(each, axis=1)
    return np.asarray(_averaged(light, batch.noise, batch.noise_variance, likelihood=likelihood))


@functools.partial(jax.jit, static_argnames="likelihood")
def _averaged(
    functions: jax.Array, noise: jax.Array, noise_variance: jax.Array, *, likelihood: str
) -> jax.Array:
    """Probabilities of functions (m, c, D), averaged over points of the noise: the same shape."""
    each = probabilities_given_functions(
        jnp.unstack(functions, axis=1), jnp.unstack(noise), noise_variance, likelihood
    )
    return jnp.stack(each, axis=1)
