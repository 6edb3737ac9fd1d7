"""Intervals of shares that were counted."""

from __future__ import annotations

import numpy as np
import scipy.stats

__all__ = ["share_interval"]


def share_interval(
    successes: np.ndarray, trials: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Find the ends of the central interval of a share under Jeffreys' prior, Beta(1/2, 1/2).

    An end is 0 where nothing succeeded, and 1 where everything did.
    """
    successes, trials = np.asarray(successes, float), np.asarray(trials, float)
    tail = (1 - level) / 2
    posterior = scipy.stats.beta(successes + 0.5, trials - successes + 0.5)
    lower = np.where(successes > 0, posterior.ppf(tail), 0.0)
    return lower, np.where(successes < trials, posterior.ppf(1 - tail), 1.0)
