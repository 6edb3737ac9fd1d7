"""Choice of gamma and the lengthscale by cross-validation over a grid.

All folds share one Gram matrix per lengthscale. Each fit starts from the scores of the fit on all
rows. A fold whose test rows have zero coefficients in that fit needs no refit: the machine without
them is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from sklearn.model_selection import StratifiedKFold, check_cv

from bmsvm._validation import check_count, positive_numbers
from bmsvm.machines.solver import Solution

GAMMA_RANGE = (1e-6, 1e6)
"""Allowed values of gamma: outside them solvers lose accuracy or take hours."""

Fold = tuple[np.ndarray, np.ndarray]
"""Row numbers of the training rows and of the test rows."""


Fit = Callable[..., Solution]
"""``fit(gram, labels, weights, gamma, start=None)``: fit a machine to a Gram matrix (n, n), class
indices and weights (n,), optionally from approximate scores (n, c)."""


@dataclass(frozen=True)
class Grid:
    """Values that cross-validation compares, and its folds.

    Parameters
    ----------
    gamma
        Values of gamma, shape (G,). Default: nine values from 0.001 to 10.
    lengthscale
        Lengthscales, shape (L,). Default: seven values from 1/8 of the median distance between
        rows to 8 times it.
    folds
        Number of stratified folds, shuffled with a fixed seed; a scikit-learn splitter, such as
        ``LeaveOneOut()``; or pairs (train, test) of row numbers.
    """

    gamma: ArrayLike | None = None
    lengthscale: ArrayLike | None = None
    folds: Any = 5

    def __post_init__(self) -> None:
        for name in ("gamma", "lengthscale"):
            given = getattr(self, name)
            values = None if given is None else positive_numbers(given)
            if given is not None and (values is None or values.ndim != 1):
                raise ValueError(
                    f"Grid: {name} must be positive numbers, such as "
                    f"numpy.geomspace(0.001, 10, 9); got {given!r}"
                )
        if self.gamma is not None:
            check_gamma_range("Grid: gamma", np.asarray(self.gamma, np.float64))
        if isinstance(self.folds, int | np.integer):
            check_count("Grid: folds", self.folds, smallest=2)


def check_gamma_range(name: str, gammas: np.ndarray) -> None:
    """Raise ``ValueError`` unless all values of gamma are within ``GAMMA_RANGE``."""
    lowest, highest = GAMMA_RANGE
    outside = gammas[(gammas < lowest) | (gammas > highest)]
    if outside.size:
        raise ValueError(f"{name} must be from {lowest:g} to {highest:g}; got {outside[0]!r}")


def make_folds(folds: Any, rows: np.ndarray, labels: np.ndarray) -> list[Fold]:
    """Training and test rows of each fold, from :attr:`Grid.folds`, rows (n, p) and labels (n,)."""
    if isinstance(folds, int | np.integer):
        folds = StratifiedKFold(int(folds), shuffle=True, random_state=0)
    numbers = np.arange(len(rows))
    try:
        pairs = check_cv(folds, labels, classifier=True).split(rows, labels)
        made = [(numbers[np.asarray(train)], numbers[np.asarray(test)]) for train, test in pairs]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(
            "Grid: folds must be an integer, a scikit-learn splitter, or pairs (train, test) of "
            f"row numbers below {len(rows)}; got {folds!r}: {error}"
        ) from error
    if not made or min(min(len(train) - 1, len(test)) for train, test in made) < 1:
        raise ValueError(
            "Grid: folds must be at least one fold, each with at least 2 rows for training and 1 "
            f"for testing; got sizes {[(len(train), len(test)) for train, test in made]}"
        )
    return made


class Tuning(NamedTuple):
    """Result of a cross-validation.

    gammas
        Shape (G,).
    lengthscales
        Shape (L,), or (1, p) for one fixed lengthscale per feature; 1 for kernels without one.
    error
        Proportion of held-out rows that were misclassified, shape (L, G).
    loss
        Mean loss of held-out rows, shape (L, G).
    """

    gammas: np.ndarray
    lengthscales: np.ndarray
    error: np.ndarray
    loss: np.ndarray

    @property
    def best(self) -> tuple[int, int]:
        """Indices of lengthscale and gamma with the smallest error; ties by the smallest loss."""
        order = np.lexsort([self.loss.ravel(), self.error.ravel()])
        return np.unravel_index(order[0], self.loss.shape)

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
    fit: Fit,
    gram: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    gamma: float,
    folds: Sequence[Fold],
    whole: Solution | None = None,
) -> np.ndarray:
    """Scores of test rows by machines that were fitted without them.

    Parameters
    ----------
    fit
        Function that fits a machine, such as :meth:`bmsvm.MSVMClassifier.fit_gram`.
    gram, labels, weights
        K, shape (n, n); class indices and weights, shape (n,).
    gamma
        Regularisation.
    folds
        Pairs (train, test) of row numbers. Leave-one-out has n of them.
    whole
        The machine fitted to all rows, if known.

    Returns
    -------
    numpy.ndarray
        Shape (n, c), NaN for rows that no fold tests.
    """
    if whole is None:
        whole = fit(gram, labels, weights, gamma)
    scores = np.full_like(whole.scores, np.nan)
    for train, test in folds:
        complete = len(train) + len(test) == len(labels)
        if complete and not np.any(whole.coefficients[test]):
            scores[test] = whole.scores[test]
            continue
        kernel, start = gram[np.ix_(train, train)], whole.scores[train]
        part = fit(kernel, labels[train], weights[train], gamma, start)
        scores[test] = part.intercept + gram[np.ix_(test, train)] @ part.coefficients
    return scores


def tune(
    fit: Fit,
    losses: Callable[[np.ndarray, np.ndarray], np.ndarray],
    gram_at: Callable[[Any], np.ndarray],
    labels: np.ndarray,
    weights: np.ndarray,
    *,
    gammas: np.ndarray,
    lengthscales: np.ndarray,
    folds: Sequence[Fold],
) -> Tuning:
    """Cross-validate every gamma (G,) at every lengthscale (L,).

    ``losses`` is a function from scores (n, c) and class indices (n,) to the loss of each row, and
    ``gram_at`` one from a lengthscale to the Gram matrix of all rows, shape (n, n). The other
    arguments are those of :func:`held_out_scores`.
    """
    error = np.full((len(lengthscales), len(gammas)), np.nan)
    loss = np.full_like(error, np.nan)
    for row, lengthscale in enumerate(lengthscales):
        gram, start = gram_at(lengthscale), None
        for column in np.argsort(-gammas):
            gamma = float(gammas[column])
            whole = fit(gram, labels, weights, gamma, start)
            start = whole.scores
            scores = held_out_scores(fit, gram, labels, weights, gamma, folds, whole)
            tested = np.flatnonzero(~np.isnan(scores[:, 0]))
            wrong = np.argmax(scores[tested], axis=1) != labels[tested]
            error[row, column] = np.average(wrong, weights=weights[tested])
            each = losses(scores[tested], labels[tested])
            loss[row, column] = np.average(each, weights=weights[tested])
    return Tuning(gammas, lengthscales, error, loss)
