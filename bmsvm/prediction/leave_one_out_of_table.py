"""Leave-one-out prediction under ``squared``: exact, without draws of the posterior.

Given (theta, tau, sigma2) and all labels but that of the row, functions are Gaussian, in closed
form. The posterior of (theta, tau, sigma2) is a table. Without the row's label each cell is
weighted by 1/m_i, with m_i the evidence of the label, also in closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.special

from bmsvm._validation import check_count
from bmsvm.inference.table import PosteriorTable, check_tabled
from bmsvm.models import squared
from bmsvm.models.couplings import contrast
from bmsvm.models.likelihoods import squared_scale
from bmsvm.models.problem import Problem
from bmsvm.models.quadrature import normal_points
from bmsvm.models.regression import RegressionOfCodes
from bmsvm.prediction.leave_one_out import HeldOutDraws, LeaveOneOut

TABLE_STEP = 1.0
"""Distance of points of the table, in standard deviations; see :mod:`bmsvm.inference.table`."""

LEAST_MASS = 1e-4
"""Probability of the cells that are left out of sums over the table."""


class _Cells(NamedTuple):
    """Functions at n rows, each without its label, at each of m cells.

    slopes
        Factor from class functions to logits, ``c/(c - 1)/(sigma2 + s^2)``, shape (m,).
    means, variances
        Of the column functions, shapes (m, n, k) and (m, n).
    weights
        Of the cells without a row's label, which sum to one over them, shape (m, n).
    """

    slopes: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    weights: np.ndarray


def _cells_without_labels(problem: Problem, chosen: np.ndarray) -> _Cells:
    check_tabled("leave-one-out", problem)
    table, c = PosteriorTable(problem, step=TABLE_STEP), problem.n_classes
    heaviest = np.argsort(table.cells.probabilities)[::-1]
    covered = np.cumsum(table.cells.probabilities[heaviest])
    cells = np.sort(heaviest[: int(np.searchsorted(covered, 1 - LEAST_MASS)) + 1])
    means, variances, logs = _without_labels(table, cells, chosen)
    log_weights = np.log(table.cells.probabilities[cells])[:, None] - logs
    weights = scipy.special.softmax(log_weights, axis=0)
    slopes = c / (c - 1) / (table.cells.noise_variance[cells] + squared_scale(c) ** 2)
    return _Cells(slopes, means, variances, weights)


def leave_one_out_of_table(
    problem: Problem, chosen: np.ndarray, *, num_nodes: int = 128
) -> LeaveOneOut:
    """Predict rows, each without its label.

    Parameters
    ----------
    problem
        The prepared data, with theta fixed or on a grid; coupling ``sum_to_zero``.
    chosen
        Indices of the rows to predict.
    num_nodes
        Quasi-random points at which class probabilities are averaged over the functions of a row; a
        power of two.
    """
    check_count("num_nodes", num_nodes)
    cells, c = _cells_without_labels(problem, chosen), problem.n_classes
    nodes, to_classes = normal_points(num_nodes, problem.n_columns, seed=0), contrast(c).T
    probabilities = np.zeros((len(chosen), c))
    for slope, mean, variance, weights in zip(*cells, strict=True):
        around = mean[:, None] + np.sqrt(variance)[:, None, None] * nodes
        shares = scipy.special.softmax(slope * (around @ to_classes), axis=-1)
        probabilities += weights[:, None] * shares.mean(axis=1)
    own = probabilities[np.arange(len(chosen)), np.asarray(problem.labels)[chosen]]
    return LeaveOneOut(np.log(own), probabilities, np.zeros(len(chosen)))


def held_out_draws_of_table(
    problem: Problem, chosen: np.ndarray, *, seed: int, num_draws: int, remainder: bool = True
) -> HeldOutDraws:
    """Draw class probabilities of rows, each without its label.

    Parameters
    ----------
    problem, chosen
        As in :func:`leave_one_out_of_table`.
    seed
        Of the random numbers.
    num_draws
        Number of draws s, which have equal weights.
    remainder
        Whether functions are drawn, as at new rows; else their means are used.
    """
    cells, n = _cells_without_labels(problem, chosen), len(chosen)
    random = np.random.default_rng(seed)
    levels = (np.arange(num_draws) + random.uniform(size=num_draws)) / num_draws
    below = np.cumsum(cells.weights, axis=0)
    place = np.stack([np.searchsorted(below[:, i], levels) for i in range(n)])  # (n, s)
    place = random.permuted(np.minimum(place, len(below) - 1), axis=1)
    rows = np.arange(n)[:, None]
    points = remainder * random.standard_normal((n, num_draws, problem.n_columns))
    spread = np.sqrt(cells.variances[place, rows])[..., None]
    functions = (cells.means[place, rows] + spread * points) @ contrast(problem.n_classes).T
    chances = scipy.special.softmax(cells.slopes[place][..., None] * functions, axis=-1)
    weights = np.full((n, num_draws), 1 / num_draws)
    return HeldOutDraws(np.moveaxis(chances, -1, 1), weights, np.zeros(n))


def _without_labels(
    table: PosteriorTable, cells: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Functions at rows, each without its label, at each of m cells.

    Means (m, n, k), variances (m, n), and the log of m_i, the evidence of the row's label, (m, n).
    """
    k = table.problem.n_columns
    means = np.empty((len(cells), len(chosen), k))
    variances, logs = (np.empty((len(cells), len(chosen))) for _ in range(2))
    for places, rows, moments in table.by_moments(cells):
        design, codes = rows.design(chosen), rows.codes[chosen]
        if moments.rotation is not None:  # once for all cells
            design, moments = design @ moments.rotation, moments._replace(rotation=None)
        for place in places:
            cell = table.cell(cells[place], moments)
            x = table.cells.x[cells[place]]
            information = rows.information(x)[chosen]
            mean, variance = squared.without_own_label(
                *squared.functions_at(design, moments, cell), codes, information
            )
            means[place] = mean
            # What a basis of low rank leaves is part of the functions, and of x.
            variances[place] = variance + x - table.cells.noise_variance[cells[place]]
            logs[place] = _log_evidence(codes, mean, variance, information)
    return means, variances, logs


def label_evidence(
    rows: RegressionOfCodes,
    chosen: np.ndarray,
    x: float,
    moments: squared.Moments,
    cell: squared.Cell,
) -> np.ndarray:
    """``log p(y_i | other labels, theta, tau, sigma2)`` of rows, of the pseudo-likelihood: (n,).

    Parameters
    ----------
    rows, x, moments, cell
        The rows at one theta, and the posterior at one cell; see :mod:`bmsvm.inference.table`.
    chosen
        Indices of the rows.
    """
    codes, information = rows.codes[chosen], rows.information(x)[chosen]
    mean, variance = squared.without_own_label(
        *squared.functions_at(rows.design(chosen), moments, cell), codes, information
    )
    # N(code; f, N_i) over its value at the code for scores without noise, (2 pi s^2/w)^(-k/2).
    constant = 0.5 * codes.shape[1] * _log(rows.weights[chosen] / rows.scale2)
    return _log_evidence(codes, mean, variance, information) - constant


def _log_evidence(
    codes: np.ndarray, mean: np.ndarray, variance: np.ndarray, information: np.ndarray
) -> np.ndarray:
    """Log of N(code; mean, variance + 1/information) without its power of 2 pi, shape (n,)."""
    spread = 1 + information * variance  # of the code, over that of its noise
    distance = np.sum((codes - mean) ** 2, axis=1)
    k = codes.shape[1]
    return -0.5 * (information * distance / spread + k * (np.log(spread) - _log(information)))


def _log(information: np.ndarray) -> np.ndarray:
    """Log of information; zero for rows of information zero, whose label has no evidence."""
    return np.log(np.where(information > 0, information, 1.0))
