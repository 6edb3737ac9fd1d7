"""Least squares: class functions in closed form, as a second opinion on every row.

Softmax and hinge saturate: a row that is classified well has no more to say. Squares listen to
every row, as discriminant analysis does beside logistic regression, and predict better where
classes are clean and many. With codes ``C_i = (c e_y - 1)/(c - 1)`` of the labels and weights v of
the rows,

    f(x) = k(x)' A^-1 C / tau + 1' A^-1 C / eta,    A = K/tau + 11'/eta + diag(1/v)

is the mode of the squared likelihood (the least-squares SVM of Suykens and Vandewalle, 1999), and a
row predicted without its own label has ``C_i - [A^-1 C]_i / [A^-1]_ii``. Each pair (theta, tau) of
a grid is scored by the log score of these predictions, sharpened by the best power
(:func:`bmsvm.prediction.calibration.best_power`). The functions, each sharpened by its power, are
averaged with weights proportional to the exponential of the scores (pseudo-Bayesian model averaging
of Geisser and Eddy, 1979).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.special

from bmsvm.kernels.functions import Kernel, Precomputed, Stationary, gram_of, median_distance
from bmsvm.kernels.low_rank import raw_basis
from bmsvm.models.problem import Problem
from bmsvm.prediction.calibration import best_power

__all__ = ["LeastSquares", "Root", "least_squares", "roots_of"]

PRECISIONS = 10.0 ** (np.arange(-7, 3) / 2)
"""Values of tau, as parts of the mean of k(x, x)."""

INTERCEPT_PRECISION = 0.01
"""eta."""

OCTAVES = np.arange(-4, 5) / 2
"""Lengthscales: these powers of two times the median distance between rows."""

SMALLEST_SHARE = 1e-3
"""Pairs of less weight are left out."""

SMALLEST_WEIGHT = 1e-10
"""Weight, as part of the largest, of rows that have none: theirs are predictions all the same."""


class Root(NamedTuple):
    """A root of a Gram matrix, ``K = R R'``, and how it is made at new rows.

    kernel, lengthscale
        The kernel and its theta.
    kind
        ``"nystrom"`` for kernel values with points, which may be all training rows; ``"fourier"``
        for random features.
    points
        Training rows, landmarks or frequencies, shape (q, p).
    rotation
        What makes rows of R of raw features, shape (q, r); None if R R' is given by the Gram
        matrix of the points itself.
    values
        The Gram matrix (n, n) if there is no rotation, else R, shape (n, r).
    """

    kernel: Kernel
    lengthscale: Any
    kind: str
    points: np.ndarray
    rotation: np.ndarray | None
    values: np.ndarray


class LeastSquares(NamedTuple):
    """Averaged functions of least squares, ``b + sum_g features_g(x) @ coefficients_g``.

    kernel, kind, points
        As in :class:`Root`.
    lengthscales
        theta of each term that counts; None where the kernel has none.
    coefficients
        Shape (g, q, c).
    intercept
        b, shape (c,).
    """

    kernel: Kernel
    kind: str
    points: np.ndarray
    lengthscales: tuple[Any, ...]
    coefficients: np.ndarray
    intercept: np.ndarray

    def log_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Log class probabilities at rows (m, p): shape (m, c)."""
        functions = np.tile(self.intercept, (len(rows), 1))
        for theta, coefficients in zip(self.lengthscales, self.coefficients, strict=True):
            features = rows
            if not isinstance(self.kernel, Precomputed):
                features = raw_basis(self.kind, self.kernel.at(theta), rows, self.points)
            functions += features @ coefficients
        return scipy.special.log_softmax(functions, axis=1)


class _Solution(NamedTuple):
    """``[A^-1 C]`` (n, c), predictions without the own label (n, c), and ``1' A^-1 C / eta``."""

    solved: np.ndarray
    held_out: np.ndarray
    intercept: np.ndarray


def _solutions(
    root: Root, codes: np.ndarray, weights: np.ndarray, precisions: np.ndarray
) -> Iterator[_Solution]:
    """Solutions at each tau, from one decomposition of the weighted Gram matrix."""
    scale = np.sqrt(weights)
    if root.rotation is None:
        values, vectors = scipy.linalg.eigh(scale[:, None] * root.values * scale)
    else:
        wide = scale[:, None] * np.asarray(root.values, np.float64)
        values, rotation = scipy.linalg.eigh(wide.T @ wide)
        kept = values > 1e-12 * max(values[-1], 1e-300)
        values = values[kept]
        vectors = wide @ (rotation[:, kept] / np.sqrt(values))
    values = np.maximum(values, 0.0)
    targets = scale[:, None] * codes
    in_targets, in_ones, squares = vectors.T @ targets, vectors.T @ scale, vectors**2
    for tau in precisions:
        shrinkage = values / (tau + values)  # (I + L/tau)^-1 = I - U diag(shrinkage) U'
        plain = targets - vectors @ (shrinkage[:, None] * in_targets)
        ones = scale - vectors @ (shrinkage * in_ones)
        total = INTERCEPT_PRECISION + scale @ ones
        solved = scale[:, None] * (plain - np.outer(ones, (ones @ targets) / total))
        diagonal = weights * (1 - squares @ shrinkage - ones**2 / total)
        yield _Solution(
            solved,
            codes - solved / diagonal[:, None],
            solved.sum(axis=0) / INTERCEPT_PRECISION,
        )


def roots_of(
    problem: Problem, kept: np.ndarray, rows: Any, kernel: Kernel, lengthscale: Any
) -> list[Root]:
    """Roots of the Gram matrix of training rows, one for each theta to try.

    Parameters
    ----------
    problem
        The prepared training data. If its basis is of low rank, that is the only root.
    kept
        Indices of the rows to fit; all of them, if the basis is not of low rank.
    rows
        Training rows, shape (n, p), or their Gram matrix if the kernel is precomputed.
    kernel
        The kernel.
    lengthscale
        theta, if it is the only one; None: a grid around the median distance between rows.
    """
    if problem.basis_map is not None:
        found = problem.basis_map
        values = np.asarray(problem.factor.basis)[kept] * np.sqrt(problem.factor.eigenvalues)
        points, rotation = (np.asarray(part, np.float64) for part in (found.points, found.rotation))
        return [Root(kernel, lengthscale, found.kind, points, rotation, values)]
    rows = np.asarray(rows, np.float64)
    if isinstance(kernel, Precomputed):
        return [Root(kernel, None, "nystrom", rows, None, rows)]
    thetas = [lengthscale]
    if lengthscale is None and isinstance(kernel, Stationary):
        thetas = list(median_distance(rows) * 2.0**OCTAVES)
    return [Root(kernel, t, "nystrom", rows, None, gram_of(kernel, rows, t)) for t in thetas]


def least_squares(
    roots: list[Root], labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> tuple[LeastSquares, np.ndarray]:
    """Fit least squares, and predict each row without its own label.

    Parameters
    ----------
    roots
        One for each theta.
    labels
        Class index of each row, shape (n,).
    n_classes
        Number of classes c.
    weights
        Weights of the rows, shape (n,); a row of weight zero has no part in the fit.

    Returns
    -------
    tuple
        The fit, and log probabilities of each row without its label, shape (n, c).
    """
    codes = ((n_classes * np.eye(n_classes) - 1) / (n_classes - 1))[labels]
    positive = np.maximum(weights, SMALLEST_WEIGHT * weights.max())
    powers, scores = (np.empty((len(roots), len(PRECISIONS))) for _ in range(2))
    solutions: dict[tuple[int, int], _Solution] = {}
    taus = np.array([PRECISIONS * max(_mean_variance(root), 1e-300) for root in roots])
    for g, root in enumerate(roots):
        for t, solution in enumerate(_solutions(root, codes, positive, taus[g])):
            powers[g, t], scores[g, t] = best_power(solution.held_out, labels, weights)
            solutions[g, t] = solution
    shares = scipy.special.softmax(scores)
    shares = np.where(shares < SMALLEST_SHARE, 0.0, shares)
    factors = powers * shares / shares.sum()
    held_out, intercept = np.zeros(codes.shape), np.zeros(n_classes)
    coefficients, thetas = [], []
    for g, root in enumerate(roots):
        counted = [t for t in range(len(PRECISIONS)) if factors[g, t] > 0]
        if not counted:
            continue
        solved = np.zeros(codes.shape)
        for t in counted:
            each = solutions[g, t]
            held_out += factors[g, t] * each.held_out
            intercept += factors[g, t] * each.intercept
            solved += factors[g, t] / taus[g, t] * each.solved
        if root.rotation is not None:
            solved = root.rotation @ (np.asarray(root.values, np.float64).T @ solved)
        coefficients.append(solved)
        thetas.append(root.lengthscale)
    first = roots[0]
    fit = LeastSquares(
        first.kernel, first.kind, first.points, tuple(thetas), np.array(coefficients), intercept
    )
    return fit, scipy.special.log_softmax(held_out, axis=1)


def _mean_variance(root: Root) -> float:
    """Mean of k(x, x) over the rows."""
    if root.rotation is None:
        return float(np.mean(np.diagonal(root.values)))
    return float(np.mean(np.sum(np.asarray(root.values, np.float64) ** 2, axis=1)))
