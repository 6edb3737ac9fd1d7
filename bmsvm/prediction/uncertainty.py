"""Intervals, entropies, prediction sets and rejection from class probabilities of draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmsvm.prediction.calibration import NONE, Calibration, calibrate

__all__ = ["Uncertainty", "accept", "entropy", "prediction_sets", "summarise"]


class Uncertainty(NamedTuple):
    """Probabilities of the classes of some rows, and their uncertainty.

    A posterior draw is a function f, and gives a row the probabilities p(y | f): the noise of the
    scores is part of them. The entropy that all draws share is chance (aleatoric), the rest is
    ignorance of f (epistemic).

    probabilities
        Predictive probabilities, the mean of p(y | f) over the draws, calibrated, shape (m, c).
    lower, upper
        Ends of the central credible interval of each class's p(y | f), calibrated in the same
        way, shape (m, c).
    entropy
        Entropy of the mean of p(y | f), in nats, shape (m,): the sum of the next two. These three
        are of the posterior as it is, before calibration.
    aleatoric
        Mean entropy of p(y | f) over the draws, shape (m,): what would be left if f were known.
    epistemic
        Mutual information of the label and f, shape (m,): what knowing f would take away.
    exclusion
        Averaged probability of not being in a class, ``E exp(-(f_j + d)_+)`` of eq. (20), shape
        (m, c). It is not one less ``probabilities``.
    """

    probabilities: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    entropy: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray
    exclusion: np.ndarray


def entropy(probabilities: np.ndarray, axis: int = -1) -> np.ndarray:
    """Entropy in nats along an axis; 0 log 0 is 0."""
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    return -np.sum(probabilities * logs, axis=axis)


def summarise(
    draws: np.ndarray, exclusion: np.ndarray, level: float, calibration: Calibration = NONE
) -> Uncertainty:
    """Summarise class probabilities of posterior draws.

    Parameters
    ----------
    draws
        p(y | f), shape (m, c, s).
    exclusion
        p(y != j | f), shape (m, c, s).
    level
        Probability of the credible intervals.
    calibration
        Of the probabilities and of the ends of the intervals.
    """
    draws = draws.astype(np.float64)
    mean = draws.mean(axis=-1)
    tail = (1 - level) / 2
    lower, upper = np.quantile(calibrate(draws, calibration, axis=1), (tail, 1 - tail), axis=-1)
    total, expected = entropy(mean), entropy(draws, axis=1).mean(axis=-1)
    return Uncertainty(
        probabilities=calibrate(mean, calibration),
        lower=lower,
        upper=upper,
        entropy=total,
        aleatoric=expected,
        epistemic=np.maximum(total - expected, 0.0),
        exclusion=exclusion.mean(axis=-1),
    )


def prediction_sets(probabilities: np.ndarray, level: float) -> np.ndarray:
    """Smallest sets of classes of at least a given probability.

    Parameters
    ----------
    probabilities
        Predictive probabilities, shape (m, c).
    level
        Probability that the class is in the set.

    Returns
    -------
    numpy.ndarray
        Whether each class is in the row's set, shape (m, c); the likeliest class always is.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    member = np.empty(probabilities.shape, bool)
    np.put_along_axis(member, order, before < level, axis=1)
    return member


def accept(probabilities: np.ndarray, error: float, *, each_row: bool = False) -> np.ndarray:
    """Choose the rows to classify so that the expected error among them is at most a target.

    Parameters
    ----------
    probabilities
        Predictive probabilities, shape (m, c). A row's expected error is one less the largest.
    error
        The target, a probability.
    each_row
        Whether every accepted row has to meet the target, or their average, which accepts more.

    Returns
    -------
    numpy.ndarray
        Whether each row is accepted, shape (m,).
    """
    risk = 1.0 - probabilities.max(axis=1)
    if each_row:
        return risk <= error
    order = np.argsort(risk, kind="stable")
    average = np.cumsum(risk[order]) / np.arange(1, len(risk) + 1)
    accepted = np.zeros(len(risk), bool)
    accepted[order[average <= error]] = True  # averages of ascending numbers ascend
    return accepted
