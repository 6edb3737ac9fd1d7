"""A lattice of log x and log tau that covers their posterior at one theta.

x is the noise of a row's functions (:mod:`bmsvm.models.regression`), tau the precision. The lattice
is regular in the coordinates in which the posterior has unit covariance. Mean and covariance are
found by laying a coarse lattice until they no longer change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

DEPTH = 15.0
"""Log density below its maximum at which the lattice ends."""

REACH = 14.0
"""Largest distance of lattice points from the mean, in standard deviations."""

START = np.linspace(-18.0, 8.0, 27), np.linspace(-20.0, 20.0, 41)
"""Values of log x and log tau among which the search begins."""

COARSE = np.arange(-5.0, 5.5, 1.0)
"""Lattice on which mean and covariance are found, in standard deviations."""

FEW = np.arange(-4.0, 5.0, 2.0)
"""The same for log x, where the density at each x is costly."""

MOST_ROUNDS = 40
"""Largest number of times that lattice is laid."""


class Lattice(NamedTuple):
    """Mean (2,) and lower root (2, 2) of the covariance of (log x, log tau), and the log mass."""

    mean: np.ndarray
    root: np.ndarray
    log_mass: float

    def log_volume(self, first: float, second: float) -> float:
        """Log volume of a cell of a lattice with these steps of the coordinates."""
        return float(np.log(first * second * self.root[0, 0] * self.root[1, 1]))

    def points(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log x and log tau, each (a b,), at all pairs of coordinates (a,) and (b,).

        The first coordinate alone determines log x.
        """
        one, other = (each.ravel() for each in np.meshgrid(first, second, indexing="ij"))
        log_x = self.mean[0] + self.root[0, 0] * one
        return log_x, self.mean[1] + self.root[1, 0] * one + self.root[1, 1] * other


Density = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Log posterior density of log x and log tau, each of shape (m,), up to a constant."""


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


def first_lattice(log_density: Density) -> Lattice:
    """Where the search begins: the moments over a wide lattice, and its steps."""
    log_x, log_tau = np.meshgrid(*START, indexing="ij")
    found = _moments_on(log_density, log_x.ravel(), log_tau.ravel())
    wide = np.diag([START[0][1] - START[0][0], START[1][1] - START[1][0]]) ** 2 / 4
    return Lattice(found.mean, np.linalg.cholesky(found.covariance + wide), found.log_total)


def refined(log_density: Density, lattice: Lattice, first: np.ndarray = COARSE) -> Lattice:
    """Lay a coarse lattice again and again, until it has the covariance of the posterior.

    Its first coordinates are ``first`` (a,), evenly spaced.
    """
    for _ in range(MOST_ROUNDS):
        found = _moments_on(log_density, *lattice.points(first, COARSE))
        white = np.linalg.solve(lattice.root, found.covariance)
        white = np.linalg.solve(lattice.root, white.T)
        shift = np.linalg.solve(lattice.root, found.mean - lattice.mean)
        # A lattice too coarse for the posterior sees one point: it must not collapse on it.
        floor = 0.1 * lattice.root @ lattice.root.T
        mass = found.log_total + lattice.log_volume(first[1] - first[0], COARSE[1] - COARSE[0])
        new = Lattice(found.mean, np.linalg.cholesky(found.covariance + floor), mass)
        if np.all(np.abs(white - np.eye(2)) < 0.3) and np.all(np.abs(shift) < 0.3):
            return new._replace(root=np.linalg.cholesky(found.covariance))
        lattice = new
    return lattice


def covered(
    log_density: Density,
    lattice: Lattice,
    steps: tuple[float, float],
    origin: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lay a fine lattice over the posterior: log mass, log x and log tau of the points that matter.

    Parameters
    ----------
    log_density
        The posterior.
    lattice
        Its mean and covariance.
    steps
        Distance of points in standard deviations, along both coordinates.
    origin
        Origin in steps, two numbers from 0 to 1.

    Returns
    -------
    log_mass, log_x, log_tau : ndarray of shape (m,)
    """
    most, most_second = (int(np.ceil(REACH / step)) for step in steps)
    second = steps[1] * (np.arange(-most_second, most_second) + origin[1])
    at_a_time = max(1, round(1 / steps[0]))  # columns, values of x, in one standard deviation
    parts, top = [], -np.inf
    for columns in (np.arange(0, most), np.arange(-1, -most, -1)):
        for start in range(0, most, at_a_time):
            first = steps[0] * (columns[start : start + at_a_time] + origin[0])
            log_x, log_tau = lattice.points(first, second)
            logs = log_density(log_x, log_tau)
            parts.append((logs, log_x, log_tau))
            top = max(top, logs.max())
            if logs[-len(second) :].max() < top - DEPTH:  # the last column
                break
    logs, log_x, log_tau = (np.concatenate(part) for part in zip(*parts, strict=True))
    kept = logs > top - DEPTH
    return logs[kept] + lattice.log_volume(*steps), log_x[kept], log_tau[kept]
