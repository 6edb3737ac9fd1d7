"""Calibration of class probabilities by leave-one-out.

Averaged over a posterior whose Gaussian process is rougher than the truth, probabilities are less
confident than the data allow; far from the boundary they may be more confident than so few rows can
justify. Both are corrected without changing a prediction:

    q_j = (1 - eps) p_j^kappa / sum_l p_l^kappa + eps / c.

kappa maximises the log score of the training rows, each predicted without its own label
(:mod:`bmsvm.prediction.leave_one_out`), under a standard normal prior of log kappa. eps is the
probability of a row whose label is pure chance; it is counted as half such a row beside n rows, as
Krichevsky and Trofimov do: ``eps = 0.5 / (n + 0.5)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special

__all__ = ["NONE", "Calibration", "best_calibration", "calibrate"]

CHANCE_ROWS = 0.5
"""Rows of mere chance beside the data."""

LARGEST_LOG_POWER = 3.0


class Calibration(NamedTuple):
    """What makes posterior mean probabilities calibrated ones.

    power
        kappa.
    chance
        eps.
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
        With the maximiser of ``sum_i w_i log q_i(y_i) - (log kappa)^2 / 2``.
    """
    each = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    chance = CHANCE_ROWS / (np.sum(each > 0) + CHANCE_ROWS)

    def of(log_power: float) -> Calibration:
        return Calibration(float(np.exp(log_power)), float(chance))

    def loss(log_power: float) -> float:
        own = calibrate(probabilities, of(log_power))[np.arange(len(labels)), labels]
        return 0.5 * log_power**2 - float(each @ np.log(own))

    bounds = (-LARGEST_LOG_POWER, LARGEST_LOG_POWER)
    return of(scipy.optimize.minimize_scalar(loss, bounds=bounds, method="bounded").x)
