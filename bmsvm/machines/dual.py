"""Primal and dual problem of a multicategory machine.

K is the Gram matrix, s the weights of the rows, F = 1 w0' + K W. The loss gives the directions
a_ij = a_{y_i j} and the offset m:

    primal   P = sum_i s_i sum_{j != y_i} (a_ij . f_i + m)_+ + gamma/2 tr(W'KW) + kappa/2 |w0|^2
    dual     D = m sum_ij alpha_ij - tr(A'KA)/(2 gamma) - |A'1|^2/(2 kappa),  0 <= alpha_ij <= s_i

Row i of A is sum_j alpha_ij a_ij, and W = -A/gamma, w0 = -A'1/kappa at the solution. With kappa = 0
the intercept is not penalised, as in (2), and the constraint A'1 = 0 replaces the last term of D.
Every feasible alpha has D <= min P <= P, so the duality gap P - D bounds the suboptimality of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bmsvm.machines.losses import Loss


@dataclass(frozen=True)
class MachineProblem:
    """Data, loss and regularisation of a machine."""

    gram: np.ndarray
    """K, shape (n, n)."""
    labels: np.ndarray
    """Class index of each row, shape (n,)."""
    loss: Loss
    gamma: float
    intercept_precision: float
    """kappa; 0 for an intercept without a penalty."""
    weights: np.ndarray
    """s, shape (n,), positive."""

    @property
    def n_pairs(self) -> int:
        """Number of dual variables, n(c - 1)."""
        return len(self.labels) * (self.loss.n_classes - 1)

    @property
    def upper(self) -> np.ndarray:
        """Upper bounds of alpha, shape (n, c): s_i, and zero at the row's own class."""
        own = self.labels[:, None] == np.arange(self.loss.n_classes)
        return np.where(own, 0.0, self.weights[:, None])

    @property
    def directions(self) -> np.ndarray:
        """Directions a_ij, shape (n, c, c)."""
        return self.loss.directions[self.labels]

    def margins(self, scores: np.ndarray) -> np.ndarray:
        """``a_ij . f_i + m`` for scores (n, c), shape (n, c); m at the row's own class."""
        return self.loss.margins(scores, self.labels)

    def gathered(self, dual: np.ndarray) -> np.ndarray:
        """Compute A from alpha (n, c), shape (n, c)."""
        return np.einsum("ij,ijk->ik", dual, self.directions)

    def expansion(self, gathered: np.ndarray) -> np.ndarray:
        """``K W`` with W = -A/gamma, shape (n, c)."""
        used = np.flatnonzero(np.any(gathered != 0, axis=1))
        if 2 * len(used) < len(gathered):
            return -(self.gram[used].T @ gathered[used]) / self.gamma
        return -(self.gram @ gathered) / self.gamma

    def balanced(self, dual: np.ndarray) -> np.ndarray:
        """Make alpha (n, c) satisfy A'1 = 0 where kappa = 0, by a change of the size of rounding.

        Each entry is multiplied by a factor close to 1 that depends on its pair of classes. The
        factors are at most 1, so that alpha stays within its bounds.
        """
        if self.intercept_precision > 0 or not np.any(dual):
            return dual
        directions = self.directions
        excess = self.gathered(dual).sum(0)
        curvature = np.einsum("ij,ijk,ijl->kl", dual, directions, directions, optimize=True)
        factors = 1 - directions @ np.linalg.lstsq(curvature, excess, rcond=None)[0]
        factors = factors / max(1.0, float(factors[dual > 0].max()))
        return dual * np.maximum(factors, 0.0)

    def part(self, rows: np.ndarray, gamma: float) -> MachineProblem:
        """Return the problem for a subset of the rows, with another gamma."""
        return replace(
            self,
            gram=self.gram[np.ix_(rows, rows)],
            labels=self.labels[rows],
            gamma=gamma,
            weights=self.weights[rows],
        )
