"""Probabilities made as sure as the data warrant: two numbers, found by leave-one-out.

Averaged over a posterior whose Gaussian process is rougher than the truth, probabilities are less
sure than they could be; and where no row of the training data was wrong, surer than so few rows can
show. Both are mended without moving a prediction:

    q_j = (1 - eps) p_j^kappa / sum_l p_l^kappa + eps / c,

with kappa and eps where the log score of the training rows, each predicted without its own label
(:mod:`bmsvm.inference.loo`), is largest. Two weak priors stand behind them: a standard normal one
of log kappa, and for eps half a row whose label is mere chance (as Krichevsky and Trofimov
estimate), so that eps is about 1/(2n) where every row is right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special

__all__ = ["NONE", "Calibration", "best_calibration", "calibrate"]

CHANCE_ROWS = 0.5
"""Rows of mere chance before the data."""


class Calibration(NamedTuple):
    """What makes posterior mean probabilities calibrated ones.

    power
        kappa.
    chance
        eps, the share of rows whose label is mere chance.
    """

    power: float
    chance: float


NONE = Calibration(1.0, 0.0)
"""Probabilities as they are."""


def calibrate(probabilities: np.ndarray, by: Calibration, axis: int = -1) -> np.ndarray:
    """Calibrate probabilities that have the classes along an axis: the same shape."""
    if by == NONE:
        return probabilities
    logs = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    sharp = scipy.special.softmax(by.power * logs, axis=axis)
    return (1 - by.chance) * sharp + by.chance / probabilities.shape[axis]


def best_calibration(
    probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> Calibration:
    """Find the calibration under which held-out probabilities score best.

    Parameters
    ----------
    probabilities
        Probabilities of rows by predictions that have not seen their labels, shape (n, c).
    labels
        Class index of each row, shape (n,).
    weights
        Weight of each row, shape (n,).

    Returns
    -------
    Calibration
        The maximiser of ``sum_i w_i log q_i(y_i) - (log kappa)^2 / 2 + log(eps) / 2``.
    """
    each = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)

    def of(point: np.ndarray) -> Calibration:
        return Calibration(float(np.exp(point[0])), float(scipy.special.expit(point[1])))

    def loss(point: np.ndarray) -> float:
        own = calibrate(probabilities, of(point))[np.arange(len(labels)), labels]
        prior = -0.5 * point[0] ** 2 + CHANCE_ROWS * scipy.special.log_expit(point[1])
        return -float(each @ np.log(own) + prior)

    start = np.array([0.0, -np.log(2 * len(labels))])
    settings = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 1000}
    found = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options=settings)
    return of(found.x)
