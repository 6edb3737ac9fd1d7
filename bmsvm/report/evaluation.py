"""Predictions of labelled rows, and their scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bmsvm._validation import labels_of_rows
from bmsvm.plots.inputs import codes_of, share_interval
from bmsvm.plots.reliability import reliability_table

LEVEL = 0.9
"""Probability of all intervals."""

NORMAL_QUANTILE = 1.645
"""Quantile of the standard normal distribution at (1 + LEVEL) / 2."""


class Score(NamedTuple):
    """A score with its interval and its baseline, which are NaN if it has none.

    The baseline is the score of predicting the classes' shares of the training rows for every row.
    """

    name: str
    value: float
    lower: float = np.nan
    upper: float = np.nan
    baseline: float = np.nan


class Evaluation(NamedTuple):
    """Predictions of labelled rows.

    X, y
        Rows (m, p) as they were given, and their labels (m,).
    codes, predicted
        Index of each label, and of each prediction, in the classes, shape (m,).
    probabilities
        Predictive probabilities, shape (m, c).
    entropy, epistemic
        Entropy of these, and the epistemic part of it, in nats, shape (m,).
    rows
        Names of the rows, shape (m,).
    seen
        Whether these are the training rows.
    """

    X: Any
    y: np.ndarray
    codes: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray
    entropy: np.ndarray
    epistemic: np.ndarray
    rows: np.ndarray
    seen: bool

    @property
    def own(self) -> np.ndarray:
        """Probability of each row's label, shape (m,)."""
        return self.probabilities[np.arange(len(self.codes)), self.codes]

    @property
    def wrong(self) -> np.ndarray:
        """Whether each row is predicted wrongly, shape (m,)."""
        return self.predicted != self.codes

    def worst(self, count: int) -> np.ndarray:
        """Return the rows that are predicted worst, by index.

        Wrong ones come first, and those whose label has the smallest probability.
        """
        return np.lexsort((self.own, ~self.wrong))[:count]

    def scores(self, shares: np.ndarray) -> list[Score]:
        """Error, log-loss, Brier score and expected calibration error.

        Parameters
        ----------
        shares
            The classes' shares of the training rows, shape (c,), for the baselines.
        """
        chances, m = self.probabilities, len(self.codes)
        wrong = int(np.sum(self.wrong))
        lower, upper = share_interval(np.array(wrong), np.array(m), LEVEL)
        always = float(np.mean(self.codes != shares.argmax()))
        table = reliability_table(chances.max(axis=1), chances.argmax(axis=1) == self.codes)
        every = np.broadcast_to(shares, chances.shape)
        return [
            Score("Error", wrong / m, float(lower), float(upper), always),
            _mean("Log-loss", *(_log_losses(each, self.codes) for each in (chances, every))),
            _mean("Brier score", *(_brier_scores(each, self.codes) for each in (chances, every))),
            Score("Expected calibration error", table.calibration_error),
        ]


def _log_losses(chances: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Log-loss of each row, shape (m,)."""
    return -np.log(np.maximum(chances[np.arange(len(codes)), codes], 1e-300))


def _brier_scores(chances: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Brier score of each row, shape (m,)."""
    return np.sum((chances - np.eye(chances.shape[1])[codes]) ** 2, axis=1)


def _mean(name: str, values: np.ndarray, baseline: np.ndarray) -> Score:
    """Return a mean over rows with its normal interval, cut at 0, which no score is below."""
    mean, other = float(values.mean()), float(baseline.mean())
    if len(values) < 2:
        return Score(name, mean, baseline=other)
    error = NORMAL_QUANTILE * float(values.std(ddof=1)) / np.sqrt(len(values))
    return Score(name, mean, max(mean - error, 0.0), mean + error, other)


def evaluate(model: Any, X: Any, y: Any, *, rows: Any = None, seen: bool = False) -> Evaluation:
    """Predict labelled rows with a fitted classifier."""
    m = len(model.standardized_rows(X))
    codes = codes_of(y, model.classes_, m)
    names = labels_of_rows(X, m) if rows is None else np.asarray(rows)
    if names.shape != (m,):
        raise ValueError(f"rows must have one name for each of {m} rows; got shape {names.shape}")
    predicted = codes_of(model.predict(X), model.classes_, m)
    found = model.predict_uncertainty(X)
    return Evaluation(
        X,
        np.asarray(y),
        codes,
        predicted,
        found.probabilities,
        found.entropy,
        found.epistemic,
        names,
        seen,
    )
