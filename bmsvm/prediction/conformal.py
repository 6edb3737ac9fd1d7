"""Prediction sets with a guarantee that does not rest on the model: jackknife+.

Barber, Candès, Ramdas and Tibshirani (2021). Each training row i is predicted without its label,
and has the score ``R_i = 1 - q_-i(y_i | x_i)``. A new row is predicted by the same model without
row i, and class y is in its set unless too many rows have a smaller score than it:

    #{i : R_i < 1 - q_-i(y | x)} < level (n + 1).

If rows are exchangeable, sets hold the class with probability at least ``2 level - 1``, whatever
the model, and in practice about ``level``. With classes apart, each class is compared with the rows
of that class, and the bound holds within each class.

The model without row i is that of the same draws, weighted as in leave-one-out
(:mod:`bmsvm.prediction.leave_one_out`); its calibration and least squares are those of all rows.
The bound is that of exact refits. Under ``squared`` held-out rows have draws of their own, with
equal weights, so that new rows are predicted by all rows: the jackknife, which has no such bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class HeldOutRows(NamedTuple):
    """Training rows, each predicted without its label.

    labels
        Class index of each row, shape (n,).
    probabilities
        Predictive probabilities without the label, shape (n, c).
    draws
        Indices of the draws by which they were predicted, shape (s,).
    weights
        Weights of these without the label, which sum to one, shape (n, s).
    """

    labels: np.ndarray
    probabilities: np.ndarray
    draws: np.ndarray
    weights: np.ndarray


def conformal_sets(
    held_out: HeldOutRows, draws: np.ndarray, level: float, *, by_class: bool = False
) -> np.ndarray:
    """Return sets of classes of new rows: membership, shape (m, c).

    Parameters
    ----------
    held_out
        The training rows.
    draws
        Class probabilities of new rows by those draws, shape (m, c, s).
    level
        Share of rows whose set should hold their class.
    by_class
        Whether each class is compared with the rows of that class only.
    """
    m, c, s = draws.shape
    own = held_out.probabilities[np.arange(len(held_out.labels)), held_out.labels]
    at_new = (held_out.weights @ draws.reshape(m * c, s).T).reshape(-1, m, c)
    smaller = own[:, None, None] > at_new  # R_i < 1 - q_-i(y | x)
    if not by_class:
        return smaller.sum(axis=0) < level * (len(own) + 1)
    member = np.empty((m, c), bool)
    for j in range(c):
        rows = held_out.labels == j
        member[:, j] = smaller[rows, :, j].sum(axis=0) < level * (rows.sum() + 1)
    return member
