"""Gamma and the lengthscale by the errors on rows held out, over a grid of both.

Every fold begins from the scores of the machine on all rows, and a fold whose rows have no part in
that machine needs no fit at all: leaving them out changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bmsvm.inference.cross_validation import Fold

__all__ = ["Fit", "GramMachine", "Tuning", "held_out_scores", "tune"]


class Fit(NamedTuple):
    """Functions ``w0 + k(x)'W`` of a machine fitted to a Gram matrix.

    coefficients, intercept
        W, shape (n, c), in which rows of zeros have no part in the machine; and w0, shape (c,).
    scores
        At the rows themselves, shape (n, c).
    objective
        What was minimised.
    gap
        Duality gap.
    steps
        Steps of the solver.
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    scores: np.ndarray
    objective: float
    gap: float
    steps: int


class GramMachine(Protocol):
    """A machine that is fitted to a Gram matrix, its settings given."""

    def fit(
        self,
        gram: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        gamma: float,
        start: np.ndarray | None = None,
    ) -> Fit:
        """Fit to a Gram matrix (n, n), labels and weights (n,); ``start`` are scores (n, c)."""
        ...

    def losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Loss of each row, shape (n,), at scores (n, c)."""
        ...


class Tuning(NamedTuple):
    """What was tried.

    gammas
        Shape (G,).
    lengthscales
        Shape (L,), or (1, p) where one per feature was given; 1 where the kernel has none.
    error
        Share of held-out rows that were misclassified, shape (L, G).
    loss
        Mean loss of held-out rows, shape (L, G).
    """

    gammas: np.ndarray
    lengthscales: np.ndarray
    error: np.ndarray
    loss: np.ndarray

    @property
    def best(self) -> tuple[int, int]:
        """Numbers of lengthscale and gamma of the least error; of equals, of the least loss."""
        order = np.lexsort([self.loss.ravel(), self.error.ravel()])
        return np.unravel_index(order[0], self.loss.shape)  # type: ignore[return-value]

    @property
    def gamma(self) -> float:
        """The best gamma."""
        return float(self.gammas[self.best[1]])

    @property
    def lengthscale(self) -> Any:
        """The best lengthscale: a number, or one per feature."""
        value = self.lengthscales[self.best[0]]
        return float(value) if value.ndim == 0 else value


def held_out_scores(
    machine: GramMachine,
    gram: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    gamma: float,
    folds: Sequence[Fold],
    whole: Fit | None = None,
) -> np.ndarray:
    """Scores of rows by the machines that did not see them.

    Parameters
    ----------
    machine
        What is fitted.
    gram, labels, weights
        K, shape (n, n); class indices and weights, shape (n,).
    gamma
        Regularisation.
    folds
        Rows to learn from and rows to test. Leave-one-out has n of them.
    whole
        The machine on all rows, if it is there already.

    Returns
    -------
    numpy.ndarray
        Shape (n, c): of the last fold that tested the row, NaN where none did.
    """
    if whole is None:
        whole = machine.fit(gram, labels, weights, gamma)
    scores = np.full_like(whole.scores, np.nan)
    for train, test in folds:
        rest = len(train) + len(test) == len(labels)
        if rest and not np.any(whole.coefficients[test]):
            scores[test] = whole.scores[test]
            continue
        part = machine.fit(
            gram[np.ix_(train, train)], labels[train], weights[train], gamma, whole.scores[train]
        )
        scores[test] = part.intercept + gram[np.ix_(test, train)] @ part.coefficients
    return scores


def tune(
    machine: GramMachine,
    gram_at: Callable[[Any], np.ndarray],
    labels: np.ndarray,
    weights: np.ndarray,
    *,
    gammas: np.ndarray,
    lengthscales: np.ndarray,
    folds: Sequence[Fold],
) -> Tuning:
    """Try every gamma at every lengthscale.

    Parameters
    ----------
    machine
        What is fitted.
    gram_at
        Function from a lengthscale to the Gram matrix of all rows, shape (n, n).
    labels, weights
        Class indices and weights of the rows, shape (n,).
    gammas, lengthscales
        Values to try, shapes (G,) and (L,).
    folds
        Rows to learn from and rows to test.
    """
    error = np.full((len(lengthscales), len(gammas)), np.nan)
    loss = np.full_like(error, np.nan)
    for row, lengthscale in enumerate(lengthscales):
        gram = gram_at(lengthscale)
        start = None
        for column in np.argsort(-gammas):  # from the simplest machine to the most complex
            gamma = float(gammas[column])
            whole = machine.fit(gram, labels, weights, gamma, start)
            start = whole.scores
            scores = held_out_scores(machine, gram, labels, weights, gamma, folds, whole)
            tested = np.flatnonzero(~np.isnan(scores[:, 0]))
            wrong = np.argmax(scores[tested], axis=1) != labels[tested]
            error[row, column] = np.average(wrong, weights=weights[tested])
            each = machine.losses(scores[tested], labels[tested])
            loss[row, column] = np.average(each, weights=weights[tested])
    return Tuning(gammas, lengthscales, error, loss)
