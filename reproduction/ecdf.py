"""Whether ranks are uniform: exact simultaneous bands of their distribution function.

After Säilynoja, Bürkner and Vehtari (2022). Of N ranks among ``0, ..., K-1`` let R_i be how many
are below i, for ``i = 1, ..., K-1``: binomial each, and a Markov chain together,

    R_i | R_{i-1} ~ R_{i-1} + Binomial(N - R_{i-1}, 1/(K - i + 1)).

A band that holds each R_i in its central ``1 - gamma`` of the binomial holds all of them with a
probability that a recursion over the chain gives exactly. Gamma is set so that this probability is
the wanted one; or to the least pointwise p-value of given ranks, and one minus it is their p-value.

ArviZ has bands for continuous values at one level, and no p-value for a correction by the number of
tests.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.special
import scipy.stats

__all__ = ["counts_below", "p_value", "simultaneous_band"]


def counts_below(ranks: np.ndarray, n_values: int) -> np.ndarray:
    """How many ranks (N,) among 0, ..., K-1 are below 1, ..., K-1: shape (K-1,)."""
    ranks = np.asarray(ranks)
    if ranks.size and (ranks.min() < 0 or ranks.max() >= n_values):
        raise ValueError(f"ranks must be among 0, ..., {n_values - 1}; got {ranks.max()}")
    return np.cumsum(np.bincount(ranks, minlength=n_values))[:-1]


def _central(n_ranks: int, n_values: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest counts (K-1,) whose two-sided pointwise p-values exceed gamma."""
    share = np.arange(1, n_values) / n_values
    counts = np.arange(n_ranks + 1)
    below = scipy.stats.binom.cdf(counts[None], n_ranks, share[:, None])
    above = scipy.stats.binom.sf(counts[None] - 1, n_ranks, share[:, None])
    inside = 2 * np.minimum(below, above) > gamma
    return inside.argmax(1), n_ranks - inside[:, ::-1].argmax(1)


def _probability_inside(low: np.ndarray, high: np.ndarray, n_ranks: int, n_values: int) -> float:
    """Probability that uniform ranks have all of their counts between low and high, inclusive."""
    log_factorial = scipy.special.gammaln(np.arange(n_ranks + 1) + 1.0)
    states, mass = np.zeros(1, int), np.ones(1)
    for i, (least, most) in enumerate(zip(low, high, strict=True), start=1):
        chance = 1.0 / (n_values - i + 1)
        ahead = np.arange(least, most + 1)
        more = ahead[None] - states[:, None]
        left = n_ranks - states[:, None]
        possible = more >= 0
        more = np.where(possible, more, 0)
        log_mass = log_factorial[left] - log_factorial[more] - log_factorial[left - more]
        log_mass = log_mass + more * np.log(chance) + (left - more) * np.log1p(-chance)
        mass = mass @ np.where(possible, np.exp(log_mass), 0.0)
        states = ahead
    return float(mass.sum())


@functools.cache
def simultaneous_band(
    n_ranks: int, n_values: int, false_alarm: float
) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest counts (K-1,) of a band that uniform ranks leave with this probability.

    At most that probability: counts are whole numbers.
    """
    low, high = np.log(false_alarm) - np.log(2.0 * n_values) - 1, np.log(false_alarm)
    for _ in range(20):
        middle = (low + high) / 2
        band = _central(n_ranks, n_values, float(np.exp(middle)))
        if 1 - _probability_inside(*band, n_ranks, n_values) <= false_alarm:
            low = middle
        else:
            high = middle
    return _central(n_ranks, n_values, float(np.exp(low)))


def p_value(ranks: np.ndarray, n_values: int) -> float:
    """Probability that uniform ranks stray as far somewhere as ranks (N,) among 0, ..., K-1 do."""
    counts, n_ranks = counts_below(ranks, n_values), len(ranks)
    share = np.arange(1, n_values) / n_values
    below = scipy.stats.binom.cdf(counts, n_ranks, share)
    above = scipy.stats.binom.sf(counts - 1, n_ranks, share)
    gamma = float(2 * np.minimum(below, above).min()) * (1 + 1e-9)
    if gamma >= 1:
        return 1.0
    low, high = _central(n_ranks, n_values, gamma)
    return max(0.0, 1 - _probability_inside(low, high, n_ranks, n_values))
