"""Losses of the multicategory machines.

A row of class y with scores f, which sum to zero, has the loss ``sum_{j != y} (a_yj . f + m)_+``.
The directions a_yj are projected onto the zero-sum vectors, so that sums of them also sum to zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Loss(NamedTuple):
    """Loss of a machine with c classes.

    directions
        a_yj, shape (c, c, c): class y of the row, rival j, score. Zero where j = y.
    offset
        m, positive. The loss of a pair (y, j) is positive where ``a_yj . f > -m``.
    """

    directions: np.ndarray
    offset: float

    @property
    def n_classes(self) -> int:
        """Number of classes c."""
        return len(self.directions)

    def margins(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """``a_yj . f + m`` for scores (n, c) and class indices (n,), shape (n, c); m at j = y."""
        return np.einsum("ijk,ik->ij", self.directions[labels], scores) + self.offset

    def values(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Loss of each row for scores (n, c) and class indices (n,), shape (n,)."""
        return np.maximum(self.margins(scores, labels), 0).sum(1) - self.offset


def lee(n_classes: int) -> Loss:
    """``sum_{j != y} (f_j + d)_+``, d = 1/(c - 1): Lee, Lin and Wahba, eqs. (2) and (7)."""
    directions = np.tile(np.eye(n_classes) - 1.0 / n_classes, (n_classes, 1, 1))
    directions[np.arange(n_classes), np.arange(n_classes)] = 0.0
    return Loss(directions, 1.0 / (n_classes - 1))


def weston_watkins(n_classes: int) -> Loss:
    """``sum_{j != y} (f_j - f_y + 1 + d)_+``, d = 1/(c - 1): Weston and Watkins, and Guermeur.

    The margin 1 + d is the difference of the ideal scores of :func:`lee`, 1 and -d. It is 2 for
    two classes. A different margin is equivalent to a different gamma.
    """
    unit = np.eye(n_classes)
    return Loss(unit[None, :, :] - unit[:, None, :], 1.0 + 1.0 / (n_classes - 1))
