"""Closed forms of the squared pseudo-likelihood, that of the least-squares SVM.

``L(y | z) = exp(-|z - code_y|^2 / (2 s^2))`` (:func:`bmsvm.models.likelihoods.squared`) is Gaussian
in the scores. In the columns of ``sum_to_zero``, with C the codes of the labels, shape (n, k), and
w the weights of the rows,

    integral of L^w N(t_i | f_i, sigma2)  is proportional to  N(C_i | f_i, sigma2 + s^2/w_i),

so that given (theta, tau, sigma2) the model is a Gaussian regression of the codes in each column:

    C_j ~ N(0, A),    A = sigma2 (K/tau + 11'/eta) + diag(N),    N_i = sigma2 + s^2/w_i.

Factors that do not depend on parameters are left out. A row of weight 0 has information 1/N_i = 0.

Posterior and evidence follow from sums over the rows (:class:`Moments`) with Phi Phi' = K. These
sums are computed once if all rows have the same weight, and otherwise for each sigma2. All
computations are in NumPy, in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from bmsvm.models.couplings import contrast
from bmsvm.models.likelihoods import class_codes

ROWS = 8192
"""Number of rows in each chunk of a sum over rows."""


class Eigen(NamedTuple):
    """Eigendecomposition ``K = U diag(lambda) U'`` of a Gram matrix.

    eigenvalues
        lambda, shape (r,), not negative.
    basis
        U, shape (n, r).
    """

    eigenvalues: np.ndarray
    basis: np.ndarray


def eigen_of(gram_matrix: np.ndarray) -> Eigen:
    """Factor a Gram matrix, shape (n, n); eigenvalues below zero are rounding errors."""
    values, vectors = scipy.linalg.eigh(np.asarray(gram_matrix, np.float64))
    return Eigen(np.maximum(values, 0.0), vectors)


def code_columns(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Codes C of labels (n,) in the columns of ``sum_to_zero``, shape (n, k)."""
    return (class_codes(n_classes) @ contrast(n_classes))[np.asarray(labels)]


class Moments(NamedTuple):
    """Sums over rows with information g (n,), in the eigenbasis V of ``Phi' diag(g) Phi``.

    eigenvalues
        mu of ``Phi' diag(g) Phi = V diag(mu) V'``, shape (r,).
    rotation
        V, shape (r, r); None for the identity.
    codes
        ``V' Phi' diag(g) C``, shape (r, k).
    ones
        ``V' Phi' g``, shape (r,).
    total
        Sum of g.
    code_total
        ``g' C``, shape (k,).
    square
        Sum of ``g_i |C_i|^2``.
    n_rows, log_information
        Number of rows with g > 0, and the sum of log g over them.
    """

    eigenvalues: np.ndarray
    rotation: np.ndarray | None
    codes: np.ndarray
    ones: np.ndarray
    total: float
    code_total: np.ndarray
    square: float
    n_rows: int
    log_information: float


class RowSums(NamedTuple):
    """Sums over some rows, each times its information g; those of several groups can be added.

    gram
        ``U' diag(g) U``, shape (r, r); None for the identity.
    codes, ones
        ``U' diag(g) C``, shape (r, k), and ``U'g``, shape (r,).
    total, code_total, square
        As in :class:`Moments`.
    """

    gram: np.ndarray | None
    codes: np.ndarray
    ones: np.ndarray
    total: float
    code_total: np.ndarray
    square: float


def row_sums(
    basis: np.ndarray, codes: np.ndarray, information: Any = 1.0, *, orthonormal: bool = False
) -> RowSums:
    """Sum over rows of U (n, r) and C (n, k) with information g, a number or shape (n,).

    O(n r^2); O(n r k) if the rows are known to have ``U' diag(g) U = I``. The sum is accumulated in
    chunks of rows, so that the basis is not copied, whatever its type.
    """
    n, size = basis.shape
    g = np.broadcast_to(np.asarray(information, np.float64), (n,))
    gram = np.zeros((size, size))
    found, ones = np.zeros((size, codes.shape[1])), np.zeros(size)
    for start in range(0, n, ROWS):
        rows = slice(start, start + ROWS)
        roots = np.sqrt(g[rows])
        part = np.asarray(basis[rows], np.float64) * roots[:, None]
        if not orthonormal:
            gram += part.T @ part
        found += part.T @ (roots[:, None] * codes[rows])
        ones += part.T @ roots
    square = float(g @ np.sum(codes**2, axis=1))
    return RowSums(None if orthonormal else gram, found, ones, float(g.sum()), g @ codes, square)


def moments_of_sums(
    eigenvalues: np.ndarray, sums: RowSums, n_rows: int, log_information: float = 0.0
) -> Moments:
    """Moments of ``Phi = U diag(sqrt(lambda))`` from sums of U; lambda has shape (r,)."""
    roots = np.sqrt(eigenvalues)
    codes, ones = roots[:, None] * sums.codes, roots * sums.ones
    values, rotation = eigenvalues, None
    if sums.gram is not None:
        values, rotation = scipy.linalg.eigh(roots[:, None] * sums.gram * roots)
        values = np.maximum(values, 0.0)
        codes, ones = rotation.T @ codes, rotation.T @ ones
    return Moments(values, rotation, codes, ones, *sums[3:], n_rows, log_information)


def moments_of(
    eigen: Eigen, codes: np.ndarray, information: Any = 1.0, *, orthonormal: bool = False
) -> Moments:
    """Sum over the rows: O(n r^2), or O(n r k) of an orthonormal basis and information one.

    Parameters
    ----------
    eigen
        The factor; ``Phi = U diag(sqrt(lambda))``.
    codes
        C, shape (n, k).
    information
        g, a number or shape (n,); relative to the ``noise`` of :func:`cell_at`.
    orthonormal
        Whether ``U'U = I``.
    """
    g = np.broadcast_to(np.asarray(information, np.float64), (len(codes),))
    sums = row_sums(eigen.basis, codes, g, orthonormal=orthonormal and bool(np.all(g == 1)))
    positive = g[g > 0]
    log_information = float(np.sum(np.log(positive)))
    return moments_of_sums(eigen.eigenvalues, sums, len(positive), log_information)


class Cell(NamedTuple):
    """The posterior of weights and intercept at one value, or at m values, of (tau, sigma2).

    The columns are independent. In the eigenbasis of the moments, u = V'v,

        b ~ N(intercept, 1/information),    u | b ~ N(shrink (codes - ones b'), noise shrink).

    shrink
        Shape (..., r).
    noise
        Noise variance of rows of information one, shape (...).
    intercept
        Posterior mean of b, shape (..., k).
    information
        Posterior precision of b, shape (...).
    logdet
        ``log det A``, shape (...).
    quad
        ``tr(C' A^-1 C)``, shape (...).
    """

    shrink: np.ndarray
    noise: np.ndarray
    intercept: np.ndarray
    information: np.ndarray
    logdet: np.ndarray
    quad: np.ndarray


def cell_at(
    moments: Moments,
    precision: Any,
    noise_variance: Any,
    intercept_precision: float,
    noise: Any = 1.0,
) -> Cell:
    """Posterior and evidence at tau and sigma2, numbers or shape (m,): O(r k) each.

    Parameters
    ----------
    moments
        Sums over the rows, with information g.
    precision, noise_variance, intercept_precision
        tau, sigma2, eta.
    noise
        N_i of a row of information one: those of the rows are ``noise / g``.
    """
    tau, sigma2, scale = np.broadcast_arrays(
        *(np.asarray(each, np.float64) for each in (precision, noise_variance, noise))
    )
    prior = (sigma2 / tau)[..., None]
    spread = prior * moments.eigenvalues + scale[..., None]
    shrink = prior / spread
    # C'A0^-1 C, C'A0^-1 1 and 1'A0^-1 1 with A0 = A without the intercept.
    square = (moments.square - shrink @ np.sum(moments.codes**2, axis=1)) / scale
    cross = (moments.code_total - shrink @ (moments.ones[:, None] * moments.codes)) / scale[
        ..., None
    ]
    own = (moments.total - shrink @ moments.ones**2) / scale
    information = intercept_precision / sigma2 + own
    intercept = cross / information[..., None]
    logdet = (
        moments.n_rows * np.log(scale)
        - moments.log_information
        + np.sum(np.log(spread / scale[..., None]), axis=-1)
        + np.log(information * sigma2 / intercept_precision)
    )
    quad = square - np.sum(cross * intercept, axis=-1)
    return Cell(shrink, scale, intercept, information, logdet, quad)


def log_evidence(cell: Cell, n_columns: int) -> np.ndarray:
    """Log of N(C; 0, A) over all k columns without its power of 2 pi, shape (...)."""
    return -0.5 * (n_columns * cell.logdet + cell.quad)


def functions_at(design: np.ndarray, moments: Moments, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean (..., m, k) and variance (..., m) of ``b + Phi v`` at rows of Phi (m, r).

    The variance is that of each column.
    """
    rotated = design if moments.rotation is None else design @ moments.rotation
    by_intercept = 1 - np.matvec(rotated, cell.shrink * moments.ones)
    mean = rotated @ (cell.shrink[..., None] * moments.codes)
    mean += by_intercept[..., None] * cell.intercept[..., None, :]
    variance = cell.noise[..., None] * np.matvec(rotated**2, cell.shrink)
    return mean, variance + by_intercept**2 / cell.information[..., None]


def scores_given_functions(
    functions: Any, codes: Any, noise_variance: Any, information: Any
) -> tuple[Any, Any]:
    """Mean (n, k) and variance (n,) of the columns T given functions (n, k) and labels.

    ``t_i ~ N((f_i/sigma2 + w_i C_i/s^2)/(1/sigma2 + w_i/s^2), 1/(1/sigma2 + w_i/s^2))``. NumPy or
    JAX arrays; ``information`` is ``w_i/s^2``, shape (n,).
    """
    share = noise_variance * information / (1 + noise_variance * information)  # of the label
    return functions + share[:, None] * (codes - functions), noise_variance * (1 - share)


def without_own_label(
    mean: np.ndarray, variance: np.ndarray, codes: np.ndarray, information: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of functions at rows, each without its own label, exactly.

    Parameters
    ----------
    mean, variance
        Of the posterior of all labels, shapes (..., n, k) and (..., n), as those that are returned.
    codes
        C, shape (n, k).
    information
        ``1/N_i`` of each row's label, shape (n,).
    """
    kept = 1 - information * variance  # N_i [A^-1]_ii
    share = (information * variance)[..., None]
    return (mean - share * codes) / kept[..., None], variance / kept
