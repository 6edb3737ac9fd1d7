"""Relevance of the features: how much the class functions change along each of them.

A kernel with one lengthscale treats all features alike, but some say more about the class than
others. Least squares (:mod:`bmsvm.prediction.squares`) on standardised features find class
functions ``f_k``, whose derivatives have a closed form. With

    m_j = mean over rows and classes of (df_k / dx_j)^2,

the diagonal of the average outer product of gradients (Hristache et al., 2001), feature j is
multiplied by ``r_j``, proportional to ``m_j^(1/4)``. Squared distances are then weighted by the
root mean square of the derivatives, as in the recursive feature machines of Radhakrishnan et al.
(2024). The mean of ``r_j^2`` is one.

With many features and few rows m_j is mostly chance, which predicts nothing. So its logarithm is
shrunk to the mean over the features by its reliability, the part of its variance that is not
chance. It follows from the correlation of what two halves of the rows say, by the formula of
Spearman and Brown.
"""

from __future__ import annotations

import numpy as np

from bmsvm.kernels.functions import Kernel, gram_of, median_distance
from bmsvm.prediction.squares import best_functions, exact_roots
from bmsvm.selection.base import representative_rows
from bmsvm.selection.kernel import CANDIDATES

__all__ = ["factors_of", "mean_squared_slopes", "relevance", "reliability"]

OCTAVES = (0.0, 1.0)
"""Lengthscales that are tried: these powers of two times the median distance between rows."""

CONSTANT = 1e-6
"""Range of a standardised feature that is constant up to rounding errors; that of others is above
one."""

POWER = 0.25
"""Power of m_j. With 1/2 features of little relevance would nearly be left out, which overfits."""

SMALLEST = 1e-3
"""Part of the mean of m_j that is added to each: no feature is left out altogether."""

SPLITS = 3
"""Number of times that the rows are split into halves."""

ROWS = (256, 1024)
"""Smallest and largest number of rows from which relevance is learned, if there are more."""

SLOPES = 2**27
"""Largest number of derivatives of kernel values, n^2 p, unless that leaves fewer rows than the
smaller limit."""


def relevance(
    rows: np.ndarray, labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> np.ndarray:
    """Factors ``r_j`` of standardised features, shape (p,).

    That of a constant feature is one, and the others do not depend on it: both halves of the rows
    agree that it has no slope, which would make chance in the others look reliable.

    Parameters
    ----------
    rows
        Standardised rows, shape (n, p). If there are many, a stratified sample is used.
    labels
        Class index of each row, shape (n,).
    n_classes
        Number of classes c.
    weights
        Positive weights of the rows, shape (n,).
    """
    factors = np.ones(rows.shape[1])
    moving = np.ptp(rows, axis=0) > CONSTANT
    if moving.sum() < 2:
        return factors
    factors[moving] = _of_moving(rows[:, moving], labels, n_classes, weights)
    return factors


def _of_moving(
    rows: np.ndarray, labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> np.ndarray:
    """Return the factors of features none of which is constant; as :func:`relevance`."""
    p = rows.shape[1]
    count = max(int(np.clip(np.sqrt(SLOPES / p), *ROWS)), n_classes)
    if count < len(rows):
        used = representative_rows(labels, count, np.random.default_rng(0))
        rows, labels, weights = rows[used], labels[used], weights[used]
    whole, pairs = np.arange(len(rows)), halves(labels)

    def logs(used: np.ndarray) -> np.ndarray:
        return log_slopes(rows[used], labels[used], n_classes, weights[used])

    return factors_of(logs(whole), reliability([(logs(one), logs(other)) for one, other in pairs]))


def halves(labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return indices of the rows in two halves with equal shares of the classes, several times."""
    ties = np.random.default_rng(0).random((SPLITS, len(labels)))
    orders = [np.lexsort((each, labels)) for each in ties]
    return [(np.sort(order[::2]), np.sort(order[1::2])) for order in orders]


def log_slopes(
    rows: np.ndarray, labels: np.ndarray, n_classes: int, weights: np.ndarray
) -> np.ndarray:
    """Return logarithms of ``m_j``, less their mean over the features, shape (p,).

    Of the kernels of :data:`bmsvm.selection.kernel.CANDIDATES`, the lengthscales of
    :data:`OCTAVES` and the values of tau of least squares, those are taken that predict each row
    best without its own label.
    """
    roots = (
        root
        for kernel in CANDIDATES
        for octave in OCTAVES
        for root in exact_roots(rows, kernel, 2.0**octave * median_distance(rows, kernel))
    )
    best = best_functions(roots, labels, n_classes, weights)
    slopes = mean_squared_slopes(best.kernel, best.lengthscale, rows, best.coefficients, weights)
    mean = slopes.mean()
    if not (mean > 0 and np.isfinite(mean)):  # nothing depends on any feature
        return np.zeros(len(slopes))
    logs = np.log(slopes / mean + SMALLEST)
    return logs - logs.mean()


def reliability(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the part of the variance of numbers (p,) that is not chance.

    Each pair has these numbers as one half of the rows and the other give them. With rho the
    correlation of the halves, whose means are zero, it is ``2 rho / (1 + rho)``, and zero if rho is
    negative.
    """
    together = 2 * sum(float(one @ other) for one, other in pairs)
    alone = sum(float(one @ one + other @ other) for one, other in pairs)
    rho = together / alone if alone > 0 else 0.0
    return max(0.0, 2 * rho / (1 + rho)) if rho > -1 else 0.0


def factors_of(logs: np.ndarray, reliable: float) -> np.ndarray:
    """Return factors of features from logarithms of ``m_j`` (p,) and their reliability: (p,)."""
    factors = np.exp(POWER * reliable * logs)
    return factors / np.sqrt(np.mean(factors**2))


def mean_squared_slopes(
    kernel: Kernel,
    lengthscale: float,
    rows: np.ndarray,
    coefficients: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Mean squared derivative ``m_j`` of functions along each feature, shape (p,).

    Parameters
    ----------
    kernel, lengthscale
        A kernel that is a product over the features, and theta.
    rows
        Shape (n, p).
    coefficients
        Of the functions ``f_k(x) = b_k + sum_i k(x, x_i) coefficients_ik``, shape (n, c).
    weights
        Weights of the rows in the mean, shape (n,).
    """
    gram = gram_of(kernel, rows, lengthscale)
    share = weights / weights.sum()

    def of_feature(values: np.ndarray) -> float:
        slope = kernel.log_slope((values[:, None] - values) / lengthscale) / lengthscale
        return float(share @ np.mean(((gram * slope) @ coefficients) ** 2, axis=1))

    return np.array([of_feature(values) for values in rows.T])
