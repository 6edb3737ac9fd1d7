"""The rows of a problem at one theta under the squared pseudo-likelihood: sums over them by x.

x is the noise of a row's functions: ``x = sigma2 (1 + h/tau)``, with h the mean over the rows of
the part of k(x, x) that a basis of low rank leaves out, zero of an exact factor. If rows have
unequal weights the sums over them (:mod:`bmsvm.models.squared`) depend on x, and are made once for
each of its values; otherwise once for each theta.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bmsvm.models import squared
from bmsvm.models.likelihoods import squared_scale
from bmsvm.models.problem import Problem

GROUPS = 32
"""Most different weights of rows for which sums over the rows of one weight are kept."""

KEPT_BYTES = 2**28
"""Size of the sums over rows of unequal weights that are kept at each theta: those of the values of
x that were added last."""

TOLERANCE = 1e-5
"""Departure from ``U'U = I`` at which a basis is not orthonormal; float32 is below it."""


class RegressionOfCodes:
    """The rows of a problem at one theta: moments as a function of x.

    Parameters
    ----------
    basis, eigenvalues
        U, shape (n, r), and lambda, shape (r,).
    codes
        C, shape (n, k).
    weights
        Weights of the rows, shape (n,).
    scale
        s, of the pseudo-likelihood.
    remainder
        h, the mean of what the basis leaves.
    """

    def __init__(
        self,
        basis: np.ndarray,
        eigenvalues: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        scale: float,
        remainder: float,
    ) -> None:
        self.rank = int(np.flatnonzero(eigenvalues > 0)[-1]) + 1
        self.eigen = squared.Eigen(
            np.asarray(eigenvalues[: self.rank], np.float64), basis[:, : self.rank]
        )
        self.codes, self.weights = codes, weights
        self.scale2, self.remainder = scale**2, remainder
        self.known, self.counts = np.unique(weights[weights > 0], return_counts=True)
        self.even = len(self.known) == 1
        self._kept: dict[float, squared.Moments] = {}
        self._sums: list[squared.RowSums] | None = None

    def evened(self) -> RegressionOfCodes:
        """Return the rows with their mean weight each: an approximation that needs fewer sums."""
        mean = self.weights[self.weights > 0].mean()
        return RegressionOfCodes(
            self.eigen.basis,
            self.eigen.eigenvalues,
            self.codes,
            np.where(self.weights > 0, mean, 0.0),
            np.sqrt(self.scale2),
            self.remainder,
        )

    @property
    def n_columns(self) -> int:
        """Number of columns k."""
        return self.codes.shape[1]

    def sigma2(self, x: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """Noise variance sigma2 at x and tau."""
        return x / (1 + self.remainder / tau)

    def sharing(self, x: np.ndarray) -> list[np.ndarray]:
        """Group values of x (m,) whose sums over the rows are the same: their indices."""
        if self.even:
            return [np.arange(len(x))]
        values, group = np.unique(x, return_inverse=True)
        return [np.flatnonzero(group == number) for number in range(len(values))]

    def noise(self, x: np.ndarray) -> np.ndarray:
        """Noise at x (...) of a row of information one."""
        return x + self.scale2 / self.known[0] if self.even else np.ones_like(x)

    def moments(self, x: float) -> squared.Moments:
        """Return the sums over the rows at x."""
        key = 0.0 if self.even else x
        if key not in self._kept:
            if len(self._kept) * 8 * self.rank**2 > KEPT_BYTES:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = self._even_moments() if self.even else self._uneven_moments(x)
        return self._kept[key]

    def _even_moments(self) -> squared.Moments:
        sums = self._sum(self.known[0])
        return squared.moments_of_sums(self.eigen.eigenvalues, sums, int(self.counts[0]))

    def _uneven_moments(self, x: float) -> squared.Moments:
        """Sum over rows of unequal weights, with their information at x."""
        noise = x + self.scale2 / self.known
        log_information = -float(self.counts @ np.log(noise))
        if len(self.known) <= GROUPS:
            if self._sums is None:
                self._sums = [self._sum(weight) for weight in self.known]
            each = zip(*self._sums, strict=True)
            sums = squared.RowSums(
                *(sum(part / n for part, n in zip(parts, noise, strict=True)) for parts in each)
            )
        else:
            sums = squared.row_sums(self.eigen.basis, self.codes, self.information(x))
        return squared.moments_of_sums(
            self.eigen.eigenvalues, sums, int(self.counts.sum()), log_information
        )

    def _sum(self, weight: float) -> squared.RowSums:
        """Sum over the rows of one weight."""
        which: Any = np.flatnonzero(self.weights == weight)
        if which[-1] + 1 == len(which):  # a view
            which = slice(0, len(which))
        basis, codes = self.eigen.basis[which], self.codes[which]
        return squared.row_sums(basis, codes, orthonormal=self.even and _is_orthonormal(basis))

    def information(self, x: float) -> np.ndarray:
        """Information 1/N_i of the labels of the rows at x, shape (n,)."""
        return self.weights / (self.weights * x + self.scale2)

    def design(self, rows: slice | np.ndarray) -> np.ndarray:
        """Phi at some rows, shape (m, rank)."""
        basis = np.asarray(self.eigen.basis[rows], np.float64)
        return basis * np.sqrt(self.eigen.eigenvalues)


def _is_orthonormal(basis: np.ndarray) -> bool:
    """Whether ``U'U = I``, judged by one random vector in O(n r)."""
    probe = np.random.default_rng(0).standard_normal(basis.shape[1])
    image = np.zeros_like(probe)
    for start in range(0, len(basis), squared.ROWS):
        part = np.asarray(basis[start : start + squared.ROWS], np.float64)
        image += part.T @ (part @ probe)
    return bool(np.linalg.norm(image - probe) <= TOLERANCE * np.linalg.norm(probe))


def regressions_of(problem: Problem) -> list[RegressionOfCodes]:
    """Return the rows of a problem at each value of theta."""
    labels = np.asarray(problem.labels)
    weights = (
        np.ones(len(labels)) if problem.row_weights is None else np.asarray(problem.row_weights)
    )
    if not np.any(weights > 0):
        raise ValueError("row_weights: at least one row must have a positive weight")
    codes = squared.code_columns(labels, problem.n_classes)

    def at(basis, eigenvalues, remainder):
        left = 0.0
        if remainder is not None:
            left = float(np.average(remainder, weights=weights > 0))
        return RegressionOfCodes(
            np.asarray(basis),
            np.asarray(eigenvalues),
            codes,
            weights.astype(np.float64),
            squared_scale(problem.n_classes),
            left,
        )

    if problem.grid is None:
        return [at(*problem.factor, problem.remainder)]
    bases, eigenvalues = (np.asarray(part) for part in problem.grid.factors)
    left = problem.grid.remainder
    remainders = [None] * len(bases) if left is None else np.asarray(left)
    return [at(*each) for each in zip(bases, eigenvalues, remainders, strict=True)]
