"""Folds of a cross-validation: which rows are trained on, and which are held out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold, check_cv

from bmsvm._validation import check_count

__all__ = ["Fold", "make_folds"]


class Fold(NamedTuple):
    """Indices of the training rows and of the held-out rows."""

    train: np.ndarray
    test: np.ndarray


def _equal_sized(folds: list[Fold], labels: np.ndarray) -> list[Fold]:
    """Drop a few training rows of the largest class, so that all folds have one shape."""
    size = min(len(fold.train) for fold in folds)

    def cut(train: np.ndarray) -> np.ndarray:
        largest = np.bincount(labels[train]).argmax()
        dropped = np.flatnonzero(labels[train] == largest)[: len(train) - size]
        return np.delete(train, dropped)

    return [Fold(cut(fold.train), fold.test) for fold in folds]


def make_folds(folds: Any, labels: np.ndarray, seed: int) -> list[Fold]:
    """Training and held-out rows of each fold.

    Parameters
    ----------
    folds
        Number of folds, a scikit-learn splitter, or pairs (train, test) of row indices.
    labels
        Class index of each row, shape (n,).
    seed
        Of the shuffling, if ``folds`` is a number.
    """
    n = len(labels)
    if isinstance(folds, int | np.integer) and not isinstance(folds, bool):
        check_count("folds", folds, smallest=2, largest=int(np.bincount(labels).max()))
        splitter = StratifiedKFold(int(folds), shuffle=True, random_state=seed)
        return _equal_sized([Fold(*pair) for pair in splitter.split(labels, labels)], labels)
    try:
        pairs = list(check_cv(folds, labels, classifier=True).split(labels, labels))
        made = [Fold(*(np.arange(n)[np.asarray(part)] for part in pair)) for pair in pairs]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(
            "folds must be an integer, a scikit-learn splitter, or pairs (train, test) of row "
            f"indices below {n}; got {folds!r}: {error}"
        ) from error
    small = [i for i, fold in enumerate(made) if len(fold.train) < 2 or len(fold.test) < 1]
    if not made or small:
        raise ValueError(
            "folds must have at least 2 training rows and 1 held-out row each; "
            + (f"fold {small[0]} has not" if small else f"got {folds!r}")
        )
    return made
