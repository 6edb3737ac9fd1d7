"""Prediction sets by jackknife+, with a bound on coverage that does not depend on the model.

Barber, Candès, Ramdas and Tibshirani (2021). Each training row i is predicted without its label,
and has the score ``R_i = 1 - q_-i(y_i | x_i)``. The same model without row i predicts a new row x.
Class y is in the set of x unless too many training rows have a smaller score:

    #{i : R_i < 1 - q_-i(y | x)} < level (n + 1).

If rows are exchangeable, sets contain the class with probability at least ``2 level - 1``, whatever
the model, and in practice about ``level``. With ``by_class`` each class is compared with the
training rows of that class, and the bound holds within each class.

The model without row i is approximated by the same draws, weighted as in leave-one-out
(:mod:`bmsvm.prediction.leave_one_out`); its calibration and least squares are those of all rows.
The bound holds for exact refits. Under ``squared`` held-out rows have draws of their own, with
equal weights, and the model of all rows predicts new rows: the jackknife, which has no such bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TIE = 1e-9
"""Probabilities that differ by less are equal: one does not have the smaller score."""


class HeldOutRows(NamedTuple):
    """Training rows, each predicted without its label.

    labels
        Class index of each row, shape (n,).
    probabilities
        Predictive probabilities without the label, shape (n, c).
    draws
        Indices of the draws that predict them, shape (s,).
    weights
        Weights of these draws for each row, which sum to one, shape (n, s).
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
        Share of rows whose set should contain their class.
    by_class
        Whether each class is compared with the rows of that class only.
    """
    m, c, s = draws.shape
    own = held_out.probabilities[np.arange(len(held_out.labels)), held_out.labels]
    at_new = (held_out.weights @ draws.reshape(m * c, s).T).reshape(-1, m, c)
    smaller = own[:, None, None] > at_new + TIE  # R_i < 1 - q_-i(y | x)
    if not by_class:
        return smaller.sum(axis=0) < level * (len(own) + 1)
    member = np.empty((m, c), bool)
    for j in range(c):
        rows = held_out.labels == j
        member[:, j] = smaller[rows, :, j].sum(axis=0) < level * (rows.sum() + 1)
    return member
