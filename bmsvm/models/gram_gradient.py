"""How the density of the columns, b and B integrated out, changes with the Gram matrix.

The columns of a group are independent with covariance ``sigma2 Q``, ``Q = I + K/tau + 11'/eta`` on
the rows that the group observes, so that

    d log N(T | 0, sigma2 Q) / dK = (Q^-1 T T' Q^-1 / sigma2 - k Q^-1) / (2 tau).

Contracted with dK/dtheta this is the gradient in any parameter of the kernel, and averaged over
posterior draws it is, by Fisher's identity, the gradient of the log marginal likelihood.
"""

from __future__ import annotations

import numpy as np

from bmsvm.models.problem import Problem


def gram_gradient(
    columns: np.ndarray, precision: np.ndarray, noise_precision: np.ndarray, problem: Problem
) -> np.ndarray:
    """Gradient of ``log N(T | 0, sigma2 Q)``, eq. (19), in the Gram matrix: the mean over draws.

    Parameters
    ----------
    columns
        T, shape (s, n, k).
    precision
        tau, shape (s,).
    noise_precision
        1/sigma2, or its conditional mean where sigma2 is integrated out, shape (s,).
    problem
        The prepared data.

    Returns
    -------
    numpy.ndarray
        Symmetric, shape (n, n), float64: entry (i, j) is the derivative in K_ij, all entries taken
        as free.
    """
    design, (s, n, _) = problem.design, columns.shape
    eta = float(problem.hyper.intercept_precision)
    tau = np.asarray(precision, np.float64)
    total = np.zeros((n, n))
    # Of each group: rows first, then draws, so that products with the basis are single ones.
    grouped = np.asarray(columns, np.float64).reshape(s, n, design.mask.shape[0], -1)
    for group, (basis, eigenvalues, seen) in enumerate(
        zip(
            *(np.asarray(part, np.float64) for part in (design.basis, design.eigenvalues)),
            np.asarray(design.mask, np.float64),
            strict=True,
        )
    ):
        own = np.moveaxis(grouped[:, :, group], 0, 1)  # (n, s, k/g)
        k = own.shape[2]
        ones = np.broadcast_to(seen[:, None, None], (n, s, 1))
        both = np.concatenate([own, ones], axis=2)
        shrink = eigenvalues[:, None] / (eigenvalues[:, None] + tau)  # (r, s)
        coordinates = np.tensordot(basis, both, (0, 0)) * shrink[:, :, None]
        solved = both - np.tensordot(basis, coordinates, (1, 0))  # R^-1 (T, 1)
        solved_ones = solved[:, :, k:]
        information = eta + np.sum(seen[:, None, None] * solved_ones, axis=0)  # (s, 1)
        projected = np.sum(own * solved_ones, axis=0) / information  # (s, k/g)
        solved_columns = solved[:, :, :k] - solved_ones * projected  # Q^-1 T
        root = np.sqrt(noise_precision / tau)[:, None]
        parts = np.concatenate(
            [solved_columns * root, solved_ones * np.sqrt(k / (information * tau[:, None]))], axis=2
        ).reshape(n, -1)
        mean_inverse = np.diag(seen * np.mean(1 / tau))
        mean_inverse -= (basis * np.mean(shrink / tau, axis=1)) @ basis.T  # of R^-1 / tau
        total += 0.5 * (parts @ parts.T / s - k * mean_inverse)
    return total
