"""Intervals, entropies, prediction sets and rejection from class probabilities of draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Uncertainty(NamedTuple):
    """Probabilities of the classes of some rows, and their uncertainty.

    All fields but ``exclusion`` summarise draws q of class probabilities, which include the noise
    of the scores and the calibration. The mean entropy of the draws is aleatoric uncertainty
    (chance), the rest of the entropy is epistemic (the functions are not known).

    probabilities
        Predictive probabilities, the mean of q over the draws, shape (m, c).
    lower, upper
        Ends of the central credible interval of each class's q, shape (m, c): quantiles of the
        draws, widened where needed to contain their mean.
    entropy
        Entropy of ``probabilities``, in nats, shape (m,): the sum of the next two.
    aleatoric
        Mean entropy of q over the draws, shape (m,): the entropy that would remain if the functions
        were known.
    epistemic
        Mutual information of the label and the functions, shape (m,): the entropy that knowing the
        functions would remove.
    exclusion
        Averaged probability of not being in a class, ``E exp(-(f_j + d)_+)`` of eq. (20), shape
        (m, c). It is of the posterior, not calibrated, and is not ``1 - probabilities``.
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


def summarise(draws: np.ndarray, exclusion: np.ndarray, level: float) -> Uncertainty:
    """Summarise class probabilities of draws.

    Parameters
    ----------
    draws
        q, shape (m, c, s).
    exclusion
        Averaged probabilities of not being in a class, shape (m, c).
    level
        Probability of the credible intervals.
    """
    mean, tail = draws.mean(axis=-1), (1 - level) / 2
    lower, upper = np.quantile(draws, (tail, 1 - tail), axis=-1)
    lower, upper = np.minimum(lower, mean), np.maximum(upper, mean)  # draws may be very skewed
    total = entropy(mean)
    aleatoric = np.minimum(entropy(draws, axis=1).mean(axis=-1), total)  # up to rounding
    return Uncertainty(mean, lower, upper, total, aleatoric, total - aleatoric, exclusion)


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
        Predictive probabilities, shape (m, c). A row's expected error is one minus the largest.
    error
        The target, a probability.
    each_row
        Whether every accepted row has to meet the target. If not, their average has to.

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


def check_loss(loss: Any, classes: np.ndarray) -> np.ndarray:
    """Check that a loss is a finite matrix (c, c), or raise ``ValueError``.

    The rows and columns of a DataFrame whose labels are the classes, in any order, are put in the
    order of ``classes`` (c,). A DataFrame that is labelled by numbers 0, ..., c - 1 is in this
    order already.
    """
    n_classes = len(classes)
    if hasattr(loss, "index") and hasattr(loss, "columns"):
        labels = [list(loss.index), list(loss.columns)]
        wanted = classes.tolist()
        if all(len(each) == n_classes and set(each) == set(wanted) for each in labels):
            loss = loss.loc[wanted, wanted]
        elif any(each != list(range(n_classes)) for each in labels):
            raise ValueError(
                f"loss must have the classes {wanted} as labels of its rows and of its columns; it "
                f"has {labels[0]} and {labels[1]}"
            )
    try:
        matrix = np.asarray(loss, np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (n_classes, n_classes) or not np.all(np.isfinite(matrix)):
        raise ValueError(
            f"loss must be a matrix of finite numbers of shape ({n_classes}, {n_classes}), the "
            f"true class in the row and the predicted one in the column; got {loss!r}"
        )
    return matrix


def decide(probabilities: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """Class index of the smallest expected loss ``sum_j p_j loss[j, k]``: shape (m,).

    Parameters
    ----------
    probabilities
        Predictive probabilities, shape (m, c).
    loss
        Loss of predicting class k where class j is true, shape (c, c).
    """
    return np.argmin(probabilities @ loss, axis=1)
