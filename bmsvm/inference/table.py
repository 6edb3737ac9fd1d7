"""The posterior under the squared pseudo-likelihood as a finite table, and independent draws of it.

Given (theta, tau, sigma2) weights and intercept are Gaussian (:mod:`bmsvm.models.squared`). Their
posterior is a table over theta, fixed or on its grid, and for each theta a lattice of log x and log
tau (:mod:`bmsvm.inference.lattice`). x is the noise of a row's functions, by which the sums over
the rows are grouped (:mod:`bmsvm.models.regression`). At fixed tau, log x is log sigma2 plus a
constant, so that densities of both are the same.

The lattice covers all points whose density is above ``exp(-DEPTH)`` of the largest, and its origin
is random: each draw alone is then a draw of the continuous posterior, though draws of one run share
a lattice.

All of it is NumPy in float64 and compiles nothing. A draw is a function of its key and its number:
longer runs begin with the draws of shorter ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bmsvm.inference.lattice import (
    COARSE,
    DEPTH,
    FEW,
    Density,
    Lattice,
    covered,
    first_lattice,
    refined,
)
from bmsvm.models import squared
from bmsvm.models.couplings import contrast
from bmsvm.models.problem import Problem
from bmsvm.models.regression import RegressionOfCodes, regressions_of

STEP = 0.25
"""Distance of lattice points, in standard deviations of the posterior."""

WIDE_STEP = 1.0
"""Smallest distance along log x if rows have unequal weights: each x then costs a decomposition. A
sum over points so far apart is close to the integral: 5e-9 from that of a normal density."""


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
        self.problem, self.rows = problem, regressions_of(problem)
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
            along_x = step if self.rows[theta].even else max(step, WIDE_STEP)
            logs, log_x, log_tau = covered(density, lattice, (along_x, step), origin)
            self.log_evidence[theta] = np.logaddexp.reduce(logs)
            x, tau = np.exp(log_x), np.exp(log_tau)
            parts.append((logs, np.full(len(x), theta), x, self.rows[theta].sigma2(x, tau), tau))
        logs, *values = (np.concatenate(part) for part in zip(*parts, strict=True))
        weights = np.exp(logs - logs.max())
        self.cells = Cells(weights / weights.sum(), *values)

    # The lattice ----------------------------------------------------------------------------

    def _density(self, rows: RegressionOfCodes, log_prior: float) -> Density:
        """Return the log density of (log x, log tau) at one theta."""
        hyper = self.problem.hyper
        noise_shape, noise_rate = float(hyper.noise_shape) / 2, float(hyper.noise_rate) / 2
        shape, rate = float(hyper.precision_shape) / 2, float(hyper.precision_rate) / 2
        eta = float(hyper.intercept_precision)

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

    def _lattices(self, densities: list[Density], log_prior: np.ndarray) -> list[Lattice]:
        """Find mean, covariance and mass at each theta."""
        if self.rows[0].even:
            return [refined(density, first_lattice(density)) for density in densities]
        # Each x costs a decomposition: begin with equal weights, and leave out values of theta
        # that the exact density at one x says do not matter.
        found = []
        for rows, prior, density in zip(self.rows, log_prior, densities, strict=True):
            approximate = self._density(rows.evened(), float(prior))
            near = refined(approximate, first_lattice(approximate))
            at_mean = density(*near.points(np.zeros(1), COARSE)).max()
            found.append(near._replace(log_mass=at_mean + near.log_volume(1.0, 1.0)))
        top = max(each.log_mass for each in found)
        return [
            refined(density, near, FEW) if near.log_mass > top - 2 * DEPTH else near
            for density, near in zip(densities, found, strict=True)
        ]

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
