"""Cross-validation of modes, which chooses theta and tau.

Where functions of the prior are rougher than the truth, the posterior of tau does not give the best
calibrated probabilities (docs/lengthscale.md). Here calibrated probabilities of held-out rows score
each pair (theta, tau) of a grid. For each fold, f is the mode, given the rows outside the fold, of

    sum_i log softmax_j(f_ij) at y_i  -  tau/2 tr(f' K(theta)^-1 f),

eq. (10) with (21) instead of the hinge, and without the rectifier, at whose kinks a mode would lie.
f predicts the rows of the fold, the predictions are calibrated
(:mod:`bmsvm.prediction.calibration`), and the sum of their log probabilities is the score.

With few rows the scores of many pairs hardly differ, and the best pair is best by chance. So scores
are treated as log likelihoods, with normal priors of log theta and log tau, and the result is the
mean of both logarithms over the grid. Chains keep that tau: its prior is as narrow as if
:data:`STRENGTH` times the rows had determined it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.special
from jax.typing import ArrayLike

from bmsvm._progress import progress
from bmsvm._validation import check_count, positive_numbers
from bmsvm.kernels.factor import check_gram
from bmsvm.kernels.functions import Kernel, gram_of, median_distance
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.models.logistic_mode import STEPS, functions_of, mode_path
from bmsvm.prediction.calibration import best_power
from bmsvm.selection.base import Chosen, Method, Selection, check_stationary
from bmsvm.selection.kernel import best_kernel

OCTAVES = np.arange(-2, 3)
"""Default lengthscales: these powers of two times the median distance between rows."""

PRECISIONS = 10.0 ** (np.arange(2, -8, -1) / 2)
"""Default values of tau, decreasing: each mode starts from the previous one."""

LENGTHSCALE_PRIOR = (0.5, 1.0)
"""Mean and standard deviation of log2(theta / median distance)."""

PRECISION_PRIOR = (-2.0, 1.0)
"""Mean and standard deviation of log10(tau)."""

STRENGTH = 4.0
"""Weight of the chosen tau in its prior, in multiples of the number of rows."""

DEALT_ROWS = 1200
"""Approximate number of rows of all repetitions together."""

NEGLIGIBLE = 20.0
"""Lengthscales beyond one whose largest log weight is this far below the best are not tried: their
weights would be less than 1e-8."""

NEAR_ZERO = 1e-6
"""Eigenvalues below this part of the largest are dropped: modes are computed in float32."""

LARGEST_POWER = 30
"""Largest power of ten of lengthscales and precisions."""

ROW_MULTIPLE = 32
"""Empty rows pad the data to a multiple of this, so that similar sizes share a program."""


@dataclass(frozen=True)
class ModeSelection(Selection):
    """Scores of pairs (theta, tau), and the chosen pair."""

    precision: float
    """tau."""
    grid: np.ndarray
    """Lengthscales, shape (G,)."""
    precisions: np.ndarray
    """Values of tau, shape (T,)."""
    log_loss: np.ndarray
    """Mean log-loss of the calibrated probabilities of held-out labels, shape (G, T).

    Infinite for lengthscales that were not tried.
    """
    weights: np.ndarray
    """Weights of the pairs, which sum to one, shape (G, T)."""


@dataclass(frozen=True, eq=False)
class ModeCV(Method):
    """Choose theta and tau by how well modes predict held-out rows.

    For ``likelihood="normalized"`` and ``coupling="sum_to_zero"``, under which tau has the same
    meaning as in the modes.

    Parameters
    ----------
    grid
        Lengthscales, shape (G,). Default: five values from a quarter of the median distance between
        rows to four times it.
    precisions
        Values of tau, shape (T,).
    folds
        Number of folds, stratified by class.
    repeats
        Number of times that rows are assigned to folds. Default: 2, or 1 if more than 600 rows are
        used, which needs a larger ``max_rows``.
    max_rows
        Largest number of rows to use. If there are more, a stratified random sample is used.
        None: all.
    """

    grid: Any = None
    precisions: Any = None
    folds: int = 5
    repeats: int | None = None
    max_rows: int | None = 512

    def __post_init__(self) -> None:
        check_count("folds", self.folds, smallest=2)
        if self.repeats is not None:
            check_count("repeats", self.repeats)
        if self.max_rows is not None:
            check_count("max_rows", self.max_rows, smallest=2)
        for name in ("grid", "precisions"):
            if getattr(self, name) is not None:
                _values(name, getattr(self, name))

    def check_model(self, kernel: Kernel, coupling: str, likelihood: str) -> None:
        """Raise ``ValueError`` unless the modes are those of this model."""
        check_stationary("ModeCV", kernel)
        for name, value, needed in (
            ("coupling", coupling, "sum_to_zero"),
            ("likelihood", likelihood, "normalized"),
        ):
            if value != needed:
                raise ValueError(
                    f'{name} must be "{needed}" for lengthscale=ModeCV(); got {value!r}: '
                    "use SquaresCV() there"
                )

    def choose(
        self,
        data: Chosen,
        candidates: tuple[Kernel, ...],
        hyperparameters: Hyperparameters,
        rng: np.random.Generator,
    ) -> ModeSelection:
        """Return theta, and hyperparameters with a prior of tau around the chosen value."""
        rows, labels, weights, n_classes = data
        stationary = [check_stationary("ModeCV", each) for each in candidates]
        covariance, _, pairs = best_kernel(stationary, rows, labels, n_classes, weights)
        median = median_distance(rows, covariance)
        thetas = median * 2.0**OCTAVES if self.grid is None else _values("grid", self.grid)
        given = PRECISIONS if self.precisions is None else self.precisions
        taus = np.sort(_values("precisions", given))[::-1]
        repeats = self.repeats or max(1, min(2, DEALT_ROWS // len(rows)))
        folds = min(self.folds, len(rows))
        held = np.stack([_assign(labels, folds, rng) for _ in range(repeats)], axis=1)
        log_loss = np.full((len(thetas), len(taus)), np.inf)
        log_weights = np.full((len(thetas), len(taus)), -np.inf)
        with progress(len(thetas), "choose lengthscale") as bar:
            for side in _outward(thetas / median):
                for number in side:
                    gram, _ = check_gram(gram_of(covariance, rows, thetas[number]))
                    root = _root(gram, weights)
                    scores = _held_out_modes(root, labels, n_classes, weights, held, taus)
                    log_loss[number] = _calibrated_log_loss(scores, labels, weights).mean(axis=1)
                    prior = _log_prior(thetas[number] / median, taus)
                    log_weights[number] = prior - weights.sum() * log_loss[number]
                    bar.update()
                    if log_weights[number].max() < log_weights.max() - NEGLIGIBLE:
                        break
        shares = scipy.special.softmax(log_weights)
        theta = float(np.exp(np.sum(shares * np.log(thetas)[:, None])))
        tau = float(np.exp(np.sum(shares * np.log(taus))))
        shape = STRENGTH * len(rows) * (n_classes - 1)
        held_tau = replace(hyperparameters, precision_shape=shape, precision_rate=shape / tau)
        return ModeSelection(
            kernel=covariance,
            lengthscale=theta,
            hyperparameters=held_tau,
            num_rows=len(rows),
            pairs=pairs,
            precision=tau,
            grid=thetas,
            precisions=taus,
            log_loss=log_loss,
            weights=shares,
        )


def _values(name: str, given: ArrayLike) -> np.ndarray:
    """Return positive numbers as an array of one axis, or raise ``ValueError``."""
    values = positive_numbers(given)
    if values is None or values.ndim != 1 or np.any(np.abs(np.log10(values)) > LARGEST_POWER):
        raise ValueError(
            f"{name} must be a list of positive numbers from 1e-{LARGEST_POWER} to "
            f"1e{LARGEST_POWER}; got {given!r}"
        )
    return values


def _assign(labels: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Fold of each row, one-hot (n, folds): the rows of a class go to the folds in turn."""
    order = np.lexsort((rng.random(len(labels)), labels))
    held = np.zeros((len(labels), folds))
    held[order, np.arange(len(labels)) % folds] = 1
    return held


def _root(gram: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Root R of a Gram matrix, ``K = R R'``, with R'WR diagonal: float32, shape (m, r).

    W has the weights of the rows, and the diagonal then bounds the curvature in each coordinate.
    m is n rounded up, and r is m or a quarter of it, padded with zeros, so that data and
    lengthscales share a few compiled programs.
    """
    scale = np.sqrt(weights / weights.max())
    values, vectors = scipy.linalg.eigh(scale[:, None] * gram * scale)
    least = max(NEAR_ZERO * scale.min() ** 2, 1e-12)  # that of a light row is small, and counts
    kept = np.flatnonzero(values > least * values[-1])
    m = len(values) + -len(values) % ROW_MULTIPLE
    root = np.zeros((m, next(m // part for part in (4, 1) if m // part >= len(kept))))
    root[: len(values), : len(kept)] = vectors[:, kept] * np.sqrt(values[kept]) / scale[:, None]
    return root.astype(np.float32)


def _held_out_modes(
    root: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    weights: np.ndarray,
    held: np.ndarray,
    taus: np.ndarray,
    steps: int = STEPS,
) -> np.ndarray:
    """Mode of each row's scores without the labels of its fold, at each tau: (T, repeats, n, c)."""
    n, repeats, folds = held.shape
    flat = held.reshape(n, repeats * folds)
    empty = ((0, len(root) - n), (0, 0))
    largest = weights.max()  # weights and taus over one number have the same modes
    parts = (np.eye(n_classes)[labels], weights[:, None] / largest * (1 - flat), flat)
    padded = [np.pad(part, empty).astype(np.float32) for part in parts]
    scores = _path(root, *padded, (taus / largest).astype(np.float32), repeats=repeats, steps=steps)
    return np.asarray(scores, np.float64)[:, :, :n]


@functools.partial(jax.jit, static_argnames=("repeats", "steps"))
def _path(
    root: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    held: jax.Array,
    taus: jax.Array,
    *,
    repeats: int,
    steps: int,
) -> jax.Array:
    """Scores of held-out rows (T, repeats, n, c) at modes of all folds, for decreasing taus (T,).

    root is (n, r), targets (n, c), weights and held (n, m); the folds of a repetition are adjacent.
    """
    n, c = targets.shape

    def held_out(x: jax.Array) -> jax.Array:
        own = (functions_of(root, x) * held[:, :, None]).reshape(n, repeats, -1, c)
        return jnp.moveaxis(own.sum(axis=2), 1, 0)

    return mode_path(root, targets, weights, taus, held_out, steps)


def _calibrated_log_loss(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean log-loss (weighted), shape (...), of calibrated probabilities of scores (..., n, c)."""
    return -best_power(scores, labels, weights)[1] / weights.sum()


def _outward(ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return indices of lengthscales below and above their prior mean, each nearest first."""
    steps = np.log2(ratios) - LENGTHSCALE_PRIOR[0]
    nearest = np.argsort(np.abs(steps), kind="stable")
    return nearest[steps[nearest] <= 0], nearest[steps[nearest] > 0]


def _log_prior(ratio: float, taus: np.ndarray) -> np.ndarray:
    """Log prior density of a lengthscale over the median distance with each tau, up to a constant.

    Shape (T,).
    """
    of_theta = (np.log2(ratio) - LENGTHSCALE_PRIOR[0]) / LENGTHSCALE_PRIOR[1]
    of_tau = (np.log10(taus) - PRECISION_PRIOR[0]) / PRECISION_PRIOR[1]
    return -0.5 * (of_theta**2 + of_tau**2)
