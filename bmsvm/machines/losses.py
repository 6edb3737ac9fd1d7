"""Two multicategory machines, told apart by which differences of scores they look at.

A machine charges row i, of class y, ``sum over j != y of (a_yj . f + m)_+`` at its scores f, which
sum to zero. The directions a_yj are projected onto the zero-sum vectors, where the scores live, so
that sums over pairs (i, j) never leave them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmsvm.models.likelihoods import margin_offset

__all__ = ["Loss", "lee", "weston_watkins"]


class Loss(NamedTuple):
    """Loss of a machine.

    directions
        a_yj, shape (c, c, c): class of the row, rival, score. Zero where j = y.
    offset
        m, what a direction falls short of where a row begins to cost something.
    """

    directions: np.ndarray
    offset: float

    @property
    def n_classes(self) -> int:
        """Number of classes c."""
        return len(self.directions)


def lee(n_classes: int) -> Loss:
    """``sum_{j != y} (f_j + d)_+``, d = 1/(c - 1): Lee, Lin and Wahba, eqs. (2) and (7)."""
    directions = np.tile(np.eye(n_classes) - 1.0 / n_classes, (n_classes, 1, 1))
    directions[np.arange(n_classes), np.arange(n_classes)] = 0.0
    return Loss(directions, margin_offset(n_classes))


def weston_watkins(n_classes: int) -> Loss:
    """``sum_{j != y} (f_j - f_y + 1 + d)_+``: Weston and Watkins, and Guermeur.

    A perfect row has 1 at its own class and -d elsewhere, as above: the margin 1 + d is 2 for two
    classes, as Weston and Watkins have it. Another margin is another gamma.
    """
    unit = np.eye(n_classes)
    return Loss(unit[None, :, :] - unit[:, None, :], 1.0 + margin_offset(n_classes))
