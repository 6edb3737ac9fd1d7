"""Probabilities made as sharp as the data warrant: one exponent, found by leave-one-out.

Averaged over a posterior whose Gaussian process is rougher than the truth, probabilities are less
sure than they could be. A single number mends that and moves no prediction:

    q_j = p_j^kappa / sum_l p_l^kappa,

with kappa where the log score of the training rows, each predicted without its own label
(:mod:`bmsvm.inference.loo`), is largest. A normal prior of log kappa keeps it near 1 where there
are few rows, or where all of them are right.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.special

__all__ = ["best_power", "sharpen"]

PRIOR_SCALE = 1.0
"""Standard deviation of log kappa before the data."""

LARGEST_LOG_POWER = 3.0


def sharpen(probabilities: np.ndarray, power: float, axis: int = -1) -> np.ndarray:
    """``p^kappa``, normalised along the axis of the classes: the same shape."""
    if power == 1:
        return probabilities
    logs = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return scipy.special.softmax(power * logs, axis=axis)


def best_power(
    probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Find the exponent under which held-out probabilities score best.

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
    float
        kappa, the maximiser of ``sum_i w_i log q_i(y_i) - (log kappa)^2 / (2 s^2)``.
    """
    logs = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    own = logs[np.arange(len(labels)), labels]
    each = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)

    def loss(log_power: float) -> float:
        power = np.exp(log_power)
        scores = power * own - scipy.special.logsumexp(power * logs, axis=1)
        return -float(each @ scores) + 0.5 * (log_power / PRIOR_SCALE) ** 2

    bounds = (-LARGEST_LOG_POWER, LARGEST_LOG_POWER)
    return float(np.exp(scipy.optimize.minimize_scalar(loss, bounds=bounds, method="bounded").x))
