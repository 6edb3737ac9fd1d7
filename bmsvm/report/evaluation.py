"""Predictions of labelled rows, and their scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bmsvm._validation import labels_of_rows
from bmsvm.plots.inputs import codes_of, share_interval
from bmsvm.plots.reliability import reliability_table

__all__ = ["LEVEL", "Evaluation", "Score", "evaluate"]

LEVEL = 0.9
"""Probability of all intervals."""

NORMAL_QUANTILE = 1.645
"""Quantile of the standard normal distribution at (1 + LEVEL) / 2."""


class Score(NamedTuple):
    """A score with its interval; the ends are NaN if it has none."""

    name: str
    value: float
    lower: float = np.nan
    upper: float = np.nan


class Evaluation(NamedTuple):
    """Predictions of labelled rows.

    X, y
        Rows (m, p) as they were given, and their labels (m,).
    codes, predicted
        Index of each label, and of each prediction, in the classes, shape (m,).
    probabilities
        Predictive probabilities, shape (m, c).
    epistemic
        Epistemic uncertainty in nats, shape (m,).
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
    epistemic: np.ndarray
    rows: np.ndarray
    seen: bool

    @property
    def own(self) -> np.ndarray:
        """Probability of each row's label, shape (m,)."""
        return self.probabilities[np.arange(len(self.codes)), self.codes]

    def worst(self, count: int) -> np.ndarray:
        """Return the indices of the rows whose labels have the smallest probabilities."""
        return np.argsort(self.own, kind="stable")[:count]

    def scores(self) -> list[Score]:
        """Error, log-loss, Brier score and expected calibration error."""
        chances, m = self.probabilities, len(self.codes)
        wrong = int(np.sum(self.predicted != self.codes))
        lower, upper = share_interval(np.array(wrong), np.array(m), LEVEL)
        brier = np.sum((chances - np.eye(chances.shape[1])[self.codes]) ** 2, axis=1)
        table = reliability_table(chances.max(axis=1), chances.argmax(axis=1) == self.codes)
        return [
            Score("Error", wrong / m, float(lower), float(upper)),
            _mean("Log-loss", -np.log(np.maximum(self.own, 1e-300))),
            _mean("Brier score", brier),
            Score("Expected calibration error", table.calibration_error),
        ]


def _mean(name: str, values: np.ndarray) -> Score:
    """Return a mean over rows with its normal interval."""
    mean = float(values.mean())
    if len(values) < 2:
        return Score(name, mean)
    error = NORMAL_QUANTILE * float(values.std(ddof=1)) / np.sqrt(len(values))
    return Score(name, mean, mean - error, mean + error)


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
        X, np.asarray(y), codes, predicted, found.probabilities, found.epistemic, names, seen
    )
