"""The regularised problem of a multicategory machine, its dual, and what lies between them.

With K the Gram matrix, s the weights of the rows, directions a_ij = a_{y_i j} and offset m of the
loss, and F = 1 w0' + K W:

    primal   P = sum_i s_i sum_{j != y_i} (a_ij . f_i + m)_+ + gamma/2 tr(W'KW) + kappa/2 |w0|^2
    dual     D = m sum_ij alpha_ij - tr(A'KA)/(2 gamma) - |A'1|^2/(2 kappa),  0 <= alpha_ij <= s_i

where row i of A is sum_j alpha_ij a_ij, W = -A/gamma, and w0 = -A'1/kappa. With kappa = 0 the
intercept is free, as in (2), and A'1 = 0 takes the place of the last term. Any alpha that is
feasible has D <= min P <= P: the difference certifies both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bmsvm.machines.losses import Loss

__all__ = ["MachineProblem"]


@dataclass(frozen=True)
class MachineProblem:
    """What a machine is fitted to."""

    gram: np.ndarray
    """K, shape (n, n)."""
    labels: np.ndarray
    """Class index of each row, shape (n,)."""
    loss: Loss
    gamma: float
    intercept_precision: float
    """kappa; 0 for a free intercept."""
    weights: np.ndarray
    """s, shape (n,), positive."""

    @property
    def free_intercept(self) -> bool:
        """Whether the intercept is not penalised."""
        return self.intercept_precision == 0

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
        """``a_ij . f_i + m`` of scores (n, c), the same shape; m at the row's own class."""
        return np.einsum("ijk,ik->ij", self.directions, scores) + self.loss.offset

    def gathered(self, dual: np.ndarray) -> np.ndarray:
        """Gather alpha, shape (n, c), along the directions: A, shape (n, c)."""
        return np.einsum("ij,ijk->ik", dual, self.directions)

    def expansion(self, gathered: np.ndarray) -> np.ndarray:
        """``K W`` with W = -A/gamma, shape (n, c)."""
        used = np.flatnonzero(np.any(gathered != 0, axis=1))
        if 2 * len(used) < len(gathered):  # rows of K are contiguous, its columns are not
            return -(self.gram[used].T @ gathered[used]) / self.gamma
        return -(self.gram @ gathered) / self.gamma

    def objectives(
        self, dual: np.ndarray, gathered: np.ndarray, expansion: np.ndarray, intercept: np.ndarray
    ) -> tuple[float, float]:
        """P at the functions of alpha with an intercept, and D at alpha."""
        norm = -np.sum(gathered * expansion) / 2  # gamma/2 tr(W'KW)
        lost = self.upper * np.maximum(self.margins(expansion + intercept), 0)
        primal, lower = lost.sum() + norm, self.loss.offset * dual.sum() - norm
        if not self.free_intercept:
            primal += self.intercept_precision / 2 * np.sum(intercept**2)
            lower -= np.sum(gathered.sum(0) ** 2) / (2 * self.intercept_precision)
        return float(primal), float(lower)

    def balanced(self, dual: np.ndarray) -> np.ndarray:
        """Alpha, moved a little so that A'1 = 0 holds where the intercept is free.

        Each entry is multiplied by a factor near 1 that depends on its two classes, none above 1.
        """
        if not self.free_intercept or not np.any(dual):
            return dual
        directions = self.directions
        excess = self.gathered(dual).sum(0)
        curvature = np.einsum("ij,ijk,ijl->kl", dual, directions, directions, optimize=True)
        shift = np.linalg.lstsq(curvature, excess, rcond=None)[0]
        factors = 1 - directions @ shift
        factors = factors / max(1.0, float(factors[dual > 0].max()))
        return dual * np.maximum(factors, 0.0)

    def part(self, rows: np.ndarray, gamma: float | None = None) -> MachineProblem:
        """Return the problem of some of the rows."""
        return MachineProblem(
            self.gram[np.ix_(rows, rows)],
            self.labels[rows],
            self.loss,
            self.gamma if gamma is None else gamma,
            self.intercept_precision,
            self.weights[rows],
        )
