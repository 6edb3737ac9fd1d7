"""Least squares: class functions with the same kernel, in closed form.

The likelihoods (11) and (21) are flat where a row is classified well: such a row has no influence
on the functions. Squared errors use every row, as discriminant analysis does compared with logistic
regression, and predict better where classes are many and well separated. The functions are the
posterior mean of the regression of the class codes (:mod:`bmsvm.models.squared`) with sigma2 = 1
and noise 1/w_i for a row of weight w_i, the least-squares SVM of Suykens and Vandewalle (1999). The
prediction of a row without its own label has a closed form.

Each pair (theta, tau) of a grid is scored by the log score of these predictions, sharpened by the
best power (:func:`bmsvm.prediction.calibration.best_power`). The functions, each times its power,
are averaged with weights proportional to the exponential of the scores (pseudo-Bayesian model
averaging of Geisser and Eddy, 1979).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from bmsvm.kernels.factor import inverse_root
from bmsvm.kernels.functions import Kernel, Precomputed, Stationary, gram_of, median_distance
from bmsvm.kernels.low_rank import raw_basis
from bmsvm.models import squared
from bmsvm.models.likelihoods import class_codes
from bmsvm.models.problem import Problem
from bmsvm.prediction.calibration import best_power

__all__ = [
    "Functions",
    "LeastSquares",
    "Root",
    "best_functions",
    "exact_roots",
    "judge",
    "least_squares",
    "roots_of",
]

PRECISIONS = 10.0 ** (np.arange(-7, 3) / 2)
"""Values of tau, as parts of the mean of k(x, x)."""

INTERCEPT_PRECISION = 0.01
"""eta."""

OCTAVES = np.arange(-4, 5) / 2
"""Lengthscales: these powers of two times the median distance between rows."""

SMALLEST_SHARE = 1e-3
"""Pairs whose weight is a smaller part of the largest are left out."""

TINY = float(np.finfo(np.float64).tiny)


class Root(NamedTuple):
    """A factor of the Gram matrix of some rows, and the features from which it is computed.

    kernel, lengthscale, kind, points
        As in :class:`bmsvm.prediction.evaluate.Stage`.
    rotation
        Matrix from the features of a low-rank basis to Phi, shape (q, r). None if the features are
        kernel values with all rows.
    factor
        ``Phi = U diag(sqrt(lambda))``; U is orthonormal if there is no rotation.
    """

    kernel: Kernel
    lengthscale: Any
    kind: str
    points: np.ndarray
    rotation: np.ndarray | None
    factor: squared.Eigen

    @property
    def design(self) -> np.ndarray:
        """Phi of the rows, shape (n, r)."""
        return self.factor.basis * np.sqrt(self.factor.eigenvalues)

    @property
    def to_design(self) -> np.ndarray:
        """Matrix from the features to Phi, shape (q, r)."""
        if self.rotation is not None:
            return self.rotation
        return self.factor.basis * inverse_root(self.factor.eigenvalues)


class LeastSquares(NamedTuple):
    """Averaged functions of least squares, ``b + sum_g features_g(x) @ coefficients_g``.

    kernels, lengthscales
        Kernel and theta of each term; None where a kernel has no theta.
    kind, points
        As in :class:`Root`.
    coefficients
        Shape (g, q, c).
    intercept
        b, shape (c,).
    """

    kernels: tuple[Kernel, ...]
    lengthscales: tuple[Any, ...]
    kind: str
    points: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray

    def log_probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Log class probabilities at rows (m, p): shape (m, c)."""
        functions = np.tile(self.intercept, (len(rows), 1))
        terms = zip(self.kernels, self.lengthscales, self.coefficients, strict=True)
        for kernel, theta, coefficients in terms:
            features = rows
            if not isinstance(kernel, Precomputed):
                features = raw_basis(self.kind, kernel.at(theta), rows, self.points)
            functions += features @ coefficients
        return scipy.special.log_softmax(functions, axis=1)


class _Solution(NamedTuple):
    """Least squares at each tau, or averaged over them.

    coefficients
        Of the features, shape (T, q, c) or (q, c).
    intercept
        Shape (T, c) or (c,).
    held_out
        Functions at the rows, each without its own label, shape (T, n, c) or (n, c).
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    held_out: np.ndarray


def _solutions(
    root: Root, codes: np.ndarray, weights: np.ndarray, precisions: np.ndarray
) -> _Solution:
    """Solve at each tau (T,), from one decomposition of the weighted Gram matrix."""
    exact, design = root.rotation is None, root.design
    moments = squared.moments_of(root.factor, codes, weights, orthonormal=exact)
    rotated = design if moments.rotation is None else design @ moments.rotation
    cells = squared.cell_at(moments, precisions, 1.0, INTERCEPT_PRECISION)
    mean, variance = squared.functions_at(rotated, moments._replace(rotation=None), cells)
    coefficients = weights[:, None] * (codes - mean) / precisions[:, None, None]  # A^-1 C / tau
    if not exact:
        coefficients = root.rotation @ (design.T @ coefficients)
    held_out, _ = squared.without_own_label(mean, variance, codes, weights)
    return _Solution(coefficients, cells.intercept, held_out)


def roots_of(
    problem: Problem, kept: np.ndarray, rows: Any, kernel: Kernel, lengthscale: Any
) -> Iterator[Root]:
    """Yield factors of the Gram matrix of training rows, one for each theta to try.

    Parameters
    ----------
    problem
        The prepared training data. If its basis is of low rank, there is no other root.
    kept
        Indices of the rows to fit; all of them, if the basis is not of low rank.
    rows
        Training rows, shape (n, p), or their Gram matrix if the kernel is precomputed.
    kernel
        The kernel.
    lengthscale
        theta; None: a grid around the median distance between rows.
    """
    if problem.basis_map is not None:
        found = problem.basis_map
        points, rotation, basis, eigenvalues = (
            np.asarray(part, np.float64)
            for part in (
                found.points,
                found.rotation,
                np.asarray(problem.factor.basis)[kept],
                problem.factor.eigenvalues,
            )
        )
        factor = squared.Eigen(eigenvalues, basis)
        yield Root(kernel, lengthscale, found.kind, points, rotation, factor)
        return
    yield from exact_roots(np.asarray(rows, np.float64), kernel, lengthscale)


def exact_roots(rows: np.ndarray, kernel: Kernel, lengthscale: Any = None) -> Iterator[Root]:
    """Yield factors of the exact Gram matrix of rows; arguments as in :func:`roots_of`."""
    thetas = [lengthscale]
    if lengthscale is None and isinstance(kernel, Stationary):
        thetas = list(median_distance(rows, kernel) * 2.0**OCTAVES)
    for theta in thetas:
        gram = gram_of(kernel, rows, theta)
        yield Root(kernel, theta, "nystrom", rows, None, squared.eigen_of(gram))


class _Scored(NamedTuple):
    """Solutions of each root (G,).

    kernels, lengthscales
        Of the roots.
    kind, points
        The same of all roots.
    solutions
        At each tau (T,).
    powers, scores
        Best power of each, and its log score at left-out rows; shape (G, T).
    """

    kernels: list[Kernel]
    lengthscales: list[Any]
    kind: str
    points: np.ndarray
    solutions: list[_Solution]
    powers: np.ndarray
    scores: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Weights of the pairs (theta, tau), which sum to one, shape (G, T)."""
        return scipy.special.softmax(self.scores)


def _scored(
    roots: Iterable[Root], labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> _Scored:
    """Solve at each theta and tau, and score the predictions of rows without their labels."""
    codes = class_codes(n_classes)[labels]
    kernels, thetas, found, scored = [], [], [], []
    for root in roots:
        scale = np.mean(root.factor.basis**2 @ root.factor.eigenvalues)  # mean of k(x, x)
        found.append(_solutions(root, codes, weights, PRECISIONS * max(scale, TINY)))
        scored.append(best_power(found[-1].held_out, labels, weights))
        kernels.append(root.kernel)
        thetas.append(root.lengthscale)
    powers, scores = np.moveaxis(np.array(scored), 1, 0)  # (G, T) each
    return _Scored(kernels, thetas, root.kind, root.points, found, powers, scores)


class Functions(NamedTuple):
    """Class functions ``b + sum_i k(x, x_i) coefficients_i``, coefficients of shape (n, c)."""

    kernel: Kernel
    lengthscale: Any
    coefficients: np.ndarray


def best_functions(
    roots: Iterable[Root], labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> Functions:
    """Return the functions that predict left-out rows best, of exact Gram matrices.

    Parameters are those of :func:`least_squares`.
    """
    found = _scored(roots, labels, n_classes, weights)
    g, t = np.unravel_index(found.scores.argmax(), found.scores.shape)
    coefficients = found.solutions[g].coefficients[t]
    return Functions(found.kernels[g], found.lengthscales[g], coefficients)


class Judged(NamedTuple):
    """Lengthscale and score of a stationary kernel, by least squares.

    lengthscale
        exp of the weighted mean of log theta over the pairs (theta, tau).
    score
        Log of the sum over these pairs of the exponentials of their log scores.
    grid, scores
        Each theta, and the same sum over its pairs alone, shape (G,).
    """

    lengthscale: float
    score: float
    grid: np.ndarray
    scores: np.ndarray


def judge(
    rows: np.ndarray, kernel: Stationary, labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> Judged:
    """Score a kernel by how least squares predict rows without their labels.

    Parameters
    ----------
    rows
        Training rows, shape (n, p).
    kernel
        The kernel.
    labels, n_classes, weights
        As in :func:`least_squares`.
    """
    found = _scored(exact_roots(rows, kernel), labels, n_classes, weights)
    grid = np.array(found.lengthscales)
    theta = float(np.exp(found.shares.sum(axis=1) @ np.log(grid)))
    scores = scipy.special.logsumexp(found.scores, axis=1)
    return Judged(theta, float(scipy.special.logsumexp(scores)), grid, scores)


def least_squares(
    roots: Iterable[Root], labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> tuple[LeastSquares, np.ndarray]:
    """Fit least squares, and predict each row without its own label.

    Parameters
    ----------
    roots
        One for each kernel and theta, of the same rows.
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
    found = _scored(roots, labels, n_classes, weights)
    negligible = found.shares < SMALLEST_SHARE * found.shares.max()
    shares = np.where(negligible, 0.0, found.shares)
    factors = found.powers * shares / shares.sum()

    def averaged(g: int) -> _Solution:
        """Sum of the solutions of one root, times their factors."""
        return _Solution(*(np.tensordot(factors[g], part, 1) for part in found.solutions[g]))

    counted = [g for g in range(len(factors)) if np.any(factors[g] > 0)]
    terms = [averaged(g) for g in counted]
    fit = LeastSquares(
        tuple(found.kernels[g] for g in counted),
        tuple(found.lengthscales[g] for g in counted),
        found.kind,
        found.points,
        np.array([term.coefficients for term in terms]),
        np.sum([term.intercept for term in terms], axis=0),
    )
    held_out = np.sum([term.held_out for term in terms], axis=0)
    return fit, scipy.special.log_softmax(held_out, axis=1)
