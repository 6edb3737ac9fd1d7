"""Predictions of labelled rows, and what they are worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bmsvm._validation import labels_of_rows
from bmsvm.estimators import BMSVMClassifier
from bmsvm.plots.inputs import codes_of
from bmsvm.plots.intervals import share_interval
from bmsvm.plots.reliability import reliability_table

__all__ = ["Evaluation", "Score", "evaluate"]

LEVEL = 0.9


class Score(NamedTuple):
    """A number with its interval, (nan, nan) where it has none."""

    name: str
    value: float
    lower: float = np.nan
    upper: float = np.nan


class Evaluation(NamedTuple):
    """Predictions of labelled rows.

    X, y
        Rows (m, p) as they were given, and their labels (m,).
    codes, predicted
        Place of each label, and of each prediction, among the classes, shape (m,).
    probabilities
        Predictive probabilities, shape (m, c).
    epistemic
        What is not known for want of data, in nats, shape (m,).
    rows
        What the rows are called, shape (m,).
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
        """Return the places of the rows whose label was given the least probability."""
        return np.argsort(self.own, kind="stable")[:count]

    def scores(self) -> list[Score]:
        """Error, log-loss, Brier score and calibration error."""
        m = len(self.codes)
        wrong = int(np.sum(self.predicted != self.codes))
        lower, upper = share_interval(np.array([wrong]), np.array([m]), LEVEL)
        truth = np.eye(self.probabilities.shape[1])[self.codes]
        brier = np.sum((self.probabilities - truth) ** 2, axis=1)
        best = self.probabilities.max(axis=1)
        table = reliability_table(best, self.probabilities.argmax(axis=1) == self.codes)
        return [
            Score("Error", wrong / m, lower[0], upper[0]),
            _mean("Log-loss", -np.log(np.maximum(self.own, 1e-300))),
            _mean("Brier score", brier),
            Score("Expected calibration error", table.calibration_error),
        ]


def _mean(name: str, values: np.ndarray) -> Score:
    """Return a mean over rows, with a normal interval of it."""
    mean = float(values.mean())
    if len(values) < 2:
        return Score(name, mean)
    error = 1.645 * float(values.std(ddof=1)) / np.sqrt(len(values))
    return Score(name, mean, mean - error, mean + error)


def evaluate(
    model: BMSVMClassifier, X: Any, y: Any, *, rows: Any = None, seen: bool = False
) -> Evaluation:
    """Predict labelled rows."""
    codes = codes_of(y, model.classes_)
    found = model.predict_uncertainty(X)
    m = len(found.probabilities)
    if len(codes) != m:
        raise ValueError(f"X and y must have the same number of rows; got {m} and {len(codes)}")
    names = labels_of_rows(X, m) if rows is None else np.asarray(rows)
    if names.shape != (m,):
        raise ValueError(f"rows must have one label for each of {m} rows; got shape {names.shape}")
    predicted = (
        found.probabilities.argmax(axis=1)
        if model.decision == "probability"
        else codes_of(model.predict(X), model.classes_)
    )
    return Evaluation(
        X, np.asarray(y), codes, predicted, found.probabilities, found.epistemic, names, seen
    )
