"""Modes of kernel logistic regression, averaged with least squares where there are no chains.

With many rows chains of (21) take long. Least squares alone predict worse where classes overlap:
their functions follow the probabilities, which are rougher than their logarithms. The mode of (21),
without the rectifier, at whose kinks a mode would lie, takes seconds,

    f = b + Phi v,  (v, b) maximising  sum_i w_i log softmax(f_i)_{y_i} - tau/2 (|v|^2 + eta |b|^2),

and is linear in the same features as least squares. Both are sharpened by the best power and
averaged with weights proportional to the exponential of their log scores at held-out rows, as
values of tau are (:mod:`bmsvm.prediction.squares`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import scipy.linalg
import scipy.special

from bmsvm.models.logistic_mode import mode_path
from bmsvm.prediction.calibration import best_power
from bmsvm.prediction.squares import INTERCEPT_PRECISION, LeastSquares, Root

PRECISIONS = 10.0 ** (np.arange(2, -8, -1) / 2)
"""Values of tau, as parts of the mean of k(x, x), decreasing."""

NEAR_ZERO = 1e-6
"""Axes with less than this part of the sum of squares of all features are left out: modes are
computed in float32."""

COLUMN_MULTIPLE = 32
"""The number of axes is rounded up to a multiple of this, so that similar sizes share a program."""

LARGEST_FOLD = 0.2
"""Largest share of the rows that a fold leaves out."""


class Modes(NamedTuple):
    """Functions at the mode, averaged over tau, each times its power.

    coefficients
        Of the features of the root, shape (q, c).
    intercept
        Shape (c,).
    held_out
        Functions at some rows, by modes without these rows, shape (h, c).
    score
        Log score of these functions.
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    held_out: np.ndarray
    score: float


def logistic_modes(
    root: Root, labels: np.ndarray, n_classes: int, weights: np.ndarray, held: np.ndarray
) -> Modes:
    """Find modes of all rows, and modes without each fold of the rows ``held``.

    Parameters
    ----------
    root
        Features of n rows.
    labels, weights
        Classes and weights of these rows, shape (n,).
    n_classes
        Number of classes c.
    held
        Indices of the rows to predict without their labels, shape (h,).
    """
    n, largest = len(labels), float(weights.max())
    design = root.design
    scale = float(np.mean(np.sum(design**2, axis=1)))
    constant = np.full((n, 1), INTERCEPT_PRECISION**-0.5)
    features = np.concatenate([design, constant], axis=1)
    # The penalty is the same in all directions, so that the intercept may be rotated with the rest.
    sizes, axes = scipy.linalg.eigh(features.T @ (weights[:, None] * features))
    counted = int(np.sum(sizes > NEAR_ZERO * scale * weights.sum()))
    axes = axes[:, -(counted + -counted % COLUMN_MULTIPLE) :]
    turned = features @ axes
    folds = max(1, int(np.ceil(len(held) / (LARGEST_FOLD * n))))
    fold_of = np.arange(len(held)) % folds
    seen = np.ones((n, folds + 1))
    seen[held, fold_of] = 0.0  # the last set has all rows
    modes = _modes(
        turned.astype(np.float32),
        np.eye(n_classes, dtype=np.float32)[labels],
        (weights[:, None] / largest * seen).astype(np.float32),
        (PRECISIONS * scale / largest).astype(np.float32),
    )
    found = np.asarray(modes, np.float64)  # (T, axes, folds + 1, c)
    own = np.stack([turned[held] @ found[:, :, fold] for fold in range(folds)])  # (folds, T, h, c)
    left_out = own[fold_of, :, np.arange(len(held))].swapaxes(0, 1)  # (T, h, c)
    powers, scores = best_power(left_out, labels[held], weights[held])
    factors = powers * scipy.special.softmax(scores)
    held_out = np.tensordot(factors, left_out, 1)
    *slopes, level = axes @ np.tensordot(factors, found[:, :, -1], 1)
    return Modes(
        root.to_design @ np.array(slopes),
        constant[0] * level,
        held_out,
        float(best_power(held_out, labels[held], weights[held])[1]),
    )


@jax.jit
def _modes(root: jax.Array, targets: jax.Array, weights: jax.Array, taus: jax.Array) -> jax.Array:
    return mode_path(root, targets, weights, taus, lambda x: x)


def averaged(
    fit: LeastSquares,
    logs: np.ndarray,
    modes: Modes,
    labels: np.ndarray,
    weights: np.ndarray,
) -> tuple[LeastSquares, np.ndarray]:
    """Average least squares with modes on the same features, by their scores at held-out rows.

    Parameters
    ----------
    fit, logs
        Least squares, and their log probabilities of the rows that were held out, shape (h, c).
    modes
        The modes, of the same features.
    labels, weights
        Of the held-out rows, shape (h,).

    Returns
    -------
    tuple
        The average, and its log probabilities of the held-out rows.
    """
    share = float(scipy.special.expit(modes.score - best_power(logs, labels, weights)[1]))
    mixed = fit._replace(
        coefficients=(1 - share) * fit.coefficients + share * modes.coefficients,
        intercept=(1 - share) * fit.intercept + share * modes.intercept,
    )
    held_out = (1 - share) * logs + share * modes.held_out
    return mixed, scipy.special.log_softmax(held_out, axis=1)
