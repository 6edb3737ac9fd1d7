"""Some of many rows, with the classes in proportion."""

from __future__ import annotations

import numpy as np

__all__ = ["representative_rows"]


def representative_rows(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Choose rows at random, so many of each class as its share, and at least one.

    Parameters
    ----------
    labels
        Class of each row, shape (n,).
    count
        How many rows, from the number of classes to n.
    rng
        Source of randomness.

    Returns
    -------
    ndarray of int, shape (count,)
        Numbers of the rows, increasing.
    """
    # A row's place among those of its class, in a random order: each class has one at 0.
    place = np.empty(len(labels))
    for label in np.unique(labels):
        mine = rng.permutation(np.flatnonzero(labels == label))
        place[mine] = np.arange(len(mine)) / len(mine)
    return np.sort(np.argsort(place, kind="stable")[:count])
