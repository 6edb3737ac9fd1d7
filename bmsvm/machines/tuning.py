"""Gamma and the lengthscale set from the data.

``"cv"`` counts the errors on rows that were held out, over a grid of both. Every fold begins from
the scores of the machine on all rows, and a fold whose rows have no part in that machine needs no
fit at all: leaving them out changes nothing. ``"gacv"`` makes one fit for each point of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bmsvm.inference.cross_validation import Fold

__all__ = ["CRITERIA", "Fit", "GramMachine", "Tuning", "gacv", "held_out_scores", "tune"]

CRITERIA = ("cv", "gacv")


class Fit(NamedTuple):
    """Functions ``w0 + k(x)'W`` of a machine fitted to a Gram matrix.

    coefficients
        W, shape (n, c); rows of zeros have no part in the machine.
    intercept
        w0, shape (c,).
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
        Shape (L,), or (L, p); NaN where the kernel has none.
    error
        Share of held-out rows that were misclassified, shape (L, G); NaN under ``"gacv"``.
    loss
        Mean loss of held-out rows, or its approximation under ``"gacv"``, shape (L, G).
    """

    gammas: np.ndarray
    lengthscales: np.ndarray
    error: np.ndarray
    loss: np.ndarray

    @property
    def best(self) -> tuple[int, int]:
        """Numbers of the lengthscale and of the gamma of the least error, or the least loss."""
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


def gacv(fit: Fit, gram: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Generalised approximate cross-validation of an MSVM: its leave-one-out loss, about.

    Without row i, the scores there lose at least what the row itself adds to them, ``K_ii w_ij``:

        1/n sum_i sum_{j != y_i} (f_ij + d)_+ - r_ij K_ii w_ij 1[j holds row i],

    with r = 2 where a rival's score is above 1, which a row of the rival would have, and 1
    elsewhere. For two classes this is the GACV of Wahba, Lin and Zhang (2000).
    """
    n_classes = fit.scores.shape[1]
    rival = labels[:, None] != np.arange(n_classes)
    excess = fit.scores + 1.0 / (n_classes - 1)
    holds = rival & (excess > -1e-4) & np.any(fit.coefficients != 0, axis=1)[:, None]
    own = -np.diag(gram)[:, None] * fit.coefficients * np.where(fit.scores > 1, 2.0, 1.0)
    each = np.where(rival, np.maximum(excess, 0), 0.0) + np.where(holds, own, 0.0)
    return float(weights @ each.sum(1) / weights.sum())


def tune(
    machine: GramMachine,
    gram_at: Callable[[Any], np.ndarray],
    labels: np.ndarray,
    weights: np.ndarray,
    *,
    gammas: np.ndarray,
    lengthscales: np.ndarray,
    folds: Sequence[Fold] | None,
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
        Rows to learn from and to test; None for generalised approximate cross-validation.
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
            if folds is None:
                loss[row, column] = gacv(whole, gram, labels, weights)
                continue
            scores = held_out_scores(machine, gram, labels, weights, gamma, folds, whole)
            tested = np.flatnonzero(~np.isnan(scores[:, 0]))
            wrong = np.argmax(scores[tested], axis=1) != labels[tested]
            error[row, column] = np.average(wrong, weights=weights[tested])
            each = machine.losses(scores[tested], labels[tested])
            loss[row, column] = np.average(each, weights=weights[tested])
    return Tuning(gammas, lengthscales, error, loss)
