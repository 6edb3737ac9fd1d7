"""The posterior under the squared pseudo-likelihood as a finite table, and independent draws of it.

Given (theta, tau, sigma2) weights and intercept are Gaussian (:mod:`bmsvm.models.squared`). Their
posterior is a table over theta, fixed or on its grid, and for each theta a lattice of the two log
variances. The lattice is regular in the coordinates in which the posterior has unit covariance. It
covers all points whose density is above ``exp(-DEPTH)`` of the largest, and its origin is random:
each draw alone is then a draw of the continuous posterior, though draws of one run share a lattice.

The first variance is x, the noise of a row's functions: ``x = sigma2 (1 + h/tau)``, with h the mean
over the rows of the part of k(x, x) that a basis of low rank leaves out, zero of an exact factor.
At fixed tau, log x is log sigma2 plus a constant, so that
densities of both are the same. If rows have unequal weights the sums over them depend on x, and
are made once for each of its values; otherwise once for each theta.

All of it is NumPy in float64 and compiles nothing. A draw is a function of its key and its number:
longer runs begin with the draws of shorter ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bmsvm.models import squared
from bmsvm.models.couplings import contrast
from bmsvm.models.likelihoods import squared_scale
from bmsvm.models.problem import Problem

STEP = 0.25
"""Distance of lattice points, in standard deviations of the posterior."""

DEPTH = 15.0
"""Log density below its maximum at which the lattice ends."""

REACH = 14.0
"""Largest distance of lattice points from the mean, in standard deviations."""

START = np.linspace(-18.0, 8.0, 27), np.linspace(-20.0, 20.0, 41)
"""Values of log x and log tau among which the search begins."""

COARSE = np.arange(-5.0, 5.5, 1.0)
"""Lattice on which mean and covariance are found, in standard deviations."""

MOST_ROUNDS = 40
"""Largest number of times that lattice is laid."""

COLUMNS = 4
"""Columns of the lattice, values of x, whose density is computed at a time."""

GROUPS = 32
"""Most different weights of rows for which sums over the rows of one weight are kept."""

KEPT_BYTES = 2**27
"""Size of the sums over rows of unequal weights that are kept for values of x, for each theta."""

TOLERANCE = 1e-5
"""Departure from ``U'U = I`` at which a basis is not orthonormal; float32 is below it."""


def check_tabled(what: str, problem: Problem) -> None:
    """Raise ``ValueError`` unless the posterior of a problem can be a table.

    ``what`` names, in the message, the setting that needs it.
    """
    if problem.likelihood != "squared":
        raise ValueError(f'{what} needs likelihood="squared"; got {problem.likelihood!r}')
    if problem.coupling != "sum_to_zero":
        raise ValueError(
            f'{what} needs coupling="sum_to_zero", in which all columns observe a row; '
            f"got {problem.coupling!r}"
        )
    if problem.family is not None:
        raise ValueError(
            f"{what} needs a kernel with parameters that are fixed or on a grid; those of the "
            "problem are sampled off it: pass sampler=HMC()"
        )


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
                self._kept.clear()
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


class Cells(NamedTuple):
    """Cells of the table.

    probabilities
        Posterior probability of each, shape (m,).
    theta
        Index of theta, shape (m,).
    x
        Noise of a row's functions, shape (m,).
    noise_variance, precision
        sigma2 and tau, shape (m,).
    """

    probabilities: np.ndarray
    theta: np.ndarray
    x: np.ndarray
    noise_variance: np.ndarray
    precision: np.ndarray


class _Lattice(NamedTuple):
    """Mean (2,) and lower root (2, 2) of the covariance of (log x, log tau), and the log mass."""

    mean: np.ndarray
    root: np.ndarray
    log_mass: float

    def points(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log x and log tau, each (a b,), at all pairs of coordinates (a,) and (b,).

        The first coordinate alone determines log x.
        """
        one, other = (each.ravel() for each in np.meshgrid(first, second, indexing="ij"))
        log_x = self.mean[0] + self.root[0, 0] * one
        return log_x, self.mean[1] + self.root[1, 0] * one + self.root[1, 1] * other


Density = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Log posterior density of log x and log tau, each of shape (m,), up to a constant."""


class PosteriorTable:
    """The posterior of a problem with the squared pseudo-likelihood.

    Parameters
    ----------
    problem
        Coupling ``sum_to_zero``, theta fixed or on a grid.
    step
        Distance of lattice points in standard deviations.
    origin
        Origin of the lattice in steps, two numbers from 0 to 1.

    Attributes
    ----------
    cells
        The table.
    rows
        The rows of the problem at each theta.
    log_evidence
        Log marginal likelihood of the labels at each theta, its prior included, up to one constant
        for all; minus infinity where it was not worth a lattice.
    """

    def __init__(
        self, problem: Problem, *, step: float = STEP, origin: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        check_tabled('sampler="table"', problem)
        self.problem, self.step, self.origin = problem, step, origin
        self.rows = regressions_of(problem)
        log_prior = np.zeros(1) if problem.grid is None else np.asarray(problem.grid.log_prior)
        densities = [
            self._density(rows, float(prior))
            for rows, prior in zip(self.rows, log_prior, strict=True)
        ]
        lattices = self._lattices(densities, log_prior)
        top = max(each.log_mass for each in lattices)
        parts, self.log_evidence = [], np.full(len(lattices), -np.inf)
        for theta, (lattice, density) in enumerate(zip(lattices, densities, strict=True)):
            if lattice.log_mass < top - DEPTH:
                continue
            logs, log_x, log_tau = self._covered(density, lattice)
            self.log_evidence[theta] = np.logaddexp.reduce(logs)
            x, tau = np.exp(log_x), np.exp(log_tau)
            parts.append((logs, np.full(len(x), theta), x, self.rows[theta].sigma2(x, tau), tau))
        logs, *values = (np.concatenate(part) for part in zip(*parts, strict=True))
        weights = np.exp(logs - logs.max())
        self.cells = Cells(weights / weights.sum(), *values)

    # The lattice ----------------------------------------------------------------------------

    def _density(self, rows: RegressionOfCodes, log_prior: float, even: bool = False) -> Density:
        """Return the log density of (log x, log tau) at one theta.

        ``even`` is an approximation to begin with, in which all rows have their mean weight.
        """
        hyper = self.problem.hyper
        noise_shape, noise_rate = float(hyper.noise_shape) / 2, float(hyper.noise_rate) / 2
        shape, rate = float(hyper.precision_shape) / 2, float(hyper.precision_rate) / 2
        eta = float(hyper.intercept_precision)
        if even:
            mean = np.where(rows.weights > 0, rows.weights[rows.weights > 0].mean(), 0.0)
            rows = RegressionOfCodes(
                rows.eigen.basis,
                rows.eigen.eigenvalues,
                rows.codes,
                mean,
                np.sqrt(rows.scale2),
                rows.remainder,
            )

        def log_density(log_x, log_tau):
            x, tau = np.exp(log_x), np.exp(log_tau)
            sigma2 = rows.sigma2(x, tau)
            evidence = np.empty(len(x))
            for places in rows.sharing(x):
                moments = rows.moments(float(x[places[0]]))
                noise = rows.noise(x[places])
                cell = squared.cell_at(moments, tau[places], sigma2[places], eta, noise)
                evidence[places] = squared.log_evidence(cell, rows.n_columns)
            return (
                log_prior
                + evidence
                - noise_shape * np.log(sigma2)  # d log sigma2
                - noise_rate / sigma2
                + shape * log_tau  # d log tau
                - rate * tau
            )

        return log_density

    def _lattices(self, densities: list[Density], log_prior: np.ndarray) -> list[_Lattice]:
        """Find mean, covariance and mass at each theta."""
        if self.rows[0].even:
            return [_refined(density, _first(density)) for density in densities]
        # Each x costs a decomposition: begin with equal weights, and leave out values of theta
        # that the exact density at one x says do not matter.
        found = []
        for rows, prior, density in zip(self.rows, log_prior, densities, strict=True):
            approximate = self._density(rows, float(prior), even=True)
            near = _refined(approximate, _first(approximate))
            at_mean = density(*near.points(np.zeros(1), COARSE)).max()
            volume = np.log(near.root[0, 0] * near.root[1, 1])
            found.append(near._replace(log_mass=at_mean + volume))
        top = max(each.log_mass for each in found)
        return [
            _refined(density, near) if near.log_mass > top - 2 * DEPTH else near
            for density, near in zip(densities, found, strict=True)
        ]

    def _covered(
        self, log_density: Density, lattice: _Lattice
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log mass, log x and log tau of the lattice points that matter, each of shape (m,)."""
        volume = np.log(self.step**2 * lattice.root[0, 0] * lattice.root[1, 1])
        most = int(np.ceil(REACH / self.step))
        second = self.step * (np.arange(-most, most) + self.origin[1])
        parts, top = [], -np.inf
        for columns in (np.arange(0, most), np.arange(-1, -most, -1)):
            for start in range(0, most, COLUMNS):
                first = self.step * (columns[start : start + COLUMNS] + self.origin[0])
                log_x, log_tau = lattice.points(first, second)
                logs = log_density(log_x, log_tau)
                parts.append((logs, log_x, log_tau))
                top = max(top, logs.max())
                if logs[-len(second) :].max() < top - DEPTH:  # the last column
                    break
        logs, log_x, log_tau = (np.concatenate(part) for part in zip(*parts, strict=True))
        kept = logs > top - DEPTH
        return logs[kept] + volume, log_x[kept], log_tau[kept]

    # Draws ----------------------------------------------------------------------------------

    def by_moments(
        self, cells: np.ndarray
    ) -> Iterator[tuple[np.ndarray, RegressionOfCodes, squared.Moments]]:
        """Group cells, given by their indices (m,), that share sums over the rows.

        Yields places in ``cells``, the rows and their moments.
        """
        theta = self.cells.theta[cells]
        for value in np.unique(theta):
            rows, mine = self.rows[value], np.flatnonzero(theta == value)
            for group in rows.sharing(self.cells.x[cells[mine]]):
                places = mine[group]
                yield places, rows, rows.moments(float(self.cells.x[cells[places[0]]]))

    def cell(self, number: int, moments: squared.Moments) -> squared.Cell:
        """Return the posterior of weights and intercept at one cell, from its moments.

        One at a time: its rounding errors do not depend on other cells, nor do draws.
        """
        at = self.cells
        return squared.cell_at(
            moments,
            at.precision[number],
            at.noise_variance[number],
            float(self.problem.hyper.intercept_precision),
            self.rows[at.theta[number]].noise(at.x[number]),
        )

    def draw(
        self, keys: np.ndarray, numbers: np.ndarray, *, scores: bool = True
    ) -> dict[str, np.ndarray]:
        """Draw from the posterior, independently.

        Parameters
        ----------
        keys, numbers
            Key, shape (s, 2), and number, shape (s,), of each draw, which determine it.
        scores
            Whether to draw the scores of the rows.

        Returns
        -------
        dict
            ``noise_variance`` and ``precision`` (s,), ``intercept`` (s, c), ``weights`` (s, r, k),
            ``lengthscale`` (s,) if it is on a grid, and ``scores`` (s, n, c).
        """
        problem, size = self.problem, len(numbers)
        n, k, rank = problem.n_rows, problem.n_columns, problem.factor.eigenvalues.shape[0]
        streams = [
            np.random.default_rng([*map(int, key), int(number)])
            for key, number in zip(keys, numbers, strict=True)
        ]
        below = np.cumsum(self.cells.probabilities)
        chosen = np.searchsorted(below, [each.random() * below[-1] for each in streams], "right")
        weights, intercept = np.zeros((size, rank, k)), np.zeros((size, k))
        columns = np.zeros((size, n, k)) if scores else np.zeros((size, 0, k))
        for places, rows, moments in self.by_moments(chosen):
            for place in places:
                cell = self.cell(chosen[place], moments)
                b, v = _draw_coefficients(streams[place], moments, cell)
                intercept[place], weights[place, : rows.rank] = b, v
            if scores:
                self._draw_scores(columns, places, rows, intercept, weights, chosen, streams)
        found = {
            "noise_variance": self.cells.noise_variance[chosen],
            "precision": self.cells.precision[chosen],
            # Not a matrix product, whose rounding depends on the number of draws.
            "intercept": (intercept[:, None, :] * contrast(problem.n_classes)).sum(axis=-1),
            "weights": weights,
        }
        if problem.grid is not None:
            found["lengthscale"] = np.asarray(problem.grid.values)[self.cells.theta[chosen]]
        if scores:
            found["scores"] = columns @ contrast(problem.n_classes).T
        return found

    def _draw_scores(self, columns, places, rows, intercept, weights, chosen, streams) -> None:
        """Fill in columns of scores (s, n, k) of the draws at ``places``, given their functions."""
        design = rows.design(slice(None))
        for place in places:
            functions = intercept[place] + design @ weights[place, : rows.rank]
            mean, variance = squared.scores_given_functions(
                functions,
                rows.codes,
                self.cells.noise_variance[chosen[place]],
                rows.weights / rows.scale2,
            )
            noise = streams[place].standard_normal(mean.shape)
            columns[place] = mean + np.sqrt(variance)[:, None] * noise


def _draw_coefficients(
    stream: np.random.Generator, moments: squared.Moments, cell: squared.Cell
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the intercept (k,) and the weights (r, k) at one cell."""
    intercept = cell.intercept + stream.standard_normal(cell.intercept.shape) / np.sqrt(
        cell.information
    )
    mean = cell.shrink[:, None] * (moments.codes - moments.ones[:, None] * intercept)
    noise = stream.standard_normal(mean.shape)
    weights = mean + np.sqrt(cell.noise * cell.shrink)[:, None] * noise
    return intercept, weights if moments.rotation is None else moments.rotation @ weights


class _Moments(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    log_total: float


def _moments_on(log_density: Density, log_x: np.ndarray, log_tau: np.ndarray) -> _Moments:
    """Mean and covariance of points (log x, log tau), each (m,), and the log of their sum."""
    logs = log_density(log_x, log_tau)
    logs = np.where(np.isnan(logs), -np.inf, logs)
    top = logs.max()
    weights = np.exp(logs - top)
    total = weights.sum()
    points = np.stack([log_x, log_tau], axis=-1)
    mean = weights @ points / total
    centred = points - mean
    covariance = (weights[:, None] * centred).T @ centred / total
    return _Moments(mean, covariance, float(top + np.log(total)))


def _first(log_density: Density) -> _Lattice:
    """Where the search begins: the moments over a wide lattice, and its steps."""
    log_x, log_tau = np.meshgrid(*START, indexing="ij")
    found = _moments_on(log_density, log_x.ravel(), log_tau.ravel())
    wide = np.diag([START[0][1] - START[0][0], START[1][1] - START[1][0]]) ** 2 / 4
    return _Lattice(found.mean, _root(found.covariance + wide), found.log_total)


def _root(covariance: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(covariance)


def _refined(log_density: Density, lattice: _Lattice) -> _Lattice:
    """Lay the coarse lattice again and again, until it has the covariance of the posterior."""
    for _ in range(MOST_ROUNDS):
        found = _moments_on(log_density, *lattice.points(COARSE, COARSE))
        white = np.linalg.solve(lattice.root, found.covariance)
        white = np.linalg.solve(lattice.root, white.T)
        shift = np.linalg.solve(lattice.root, found.mean - lattice.mean)
        volume = np.log(lattice.root[0, 0] * lattice.root[1, 1])
        # A lattice too coarse for the posterior sees one point: it must not collapse on it.
        floor = 0.1 * lattice.root @ lattice.root.T
        new = _Lattice(found.mean, _root(found.covariance + floor), found.log_total + volume)
        if np.all(np.abs(white - np.eye(2)) < 0.3) and np.all(np.abs(shift) < 0.3):
            return new._replace(root=_root(found.covariance))
        lattice = new
    return lattice
