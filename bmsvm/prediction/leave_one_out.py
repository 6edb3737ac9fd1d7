"""Leave-one-out prediction from one posterior run, by Pareto-smoothed importance sampling.

Each row has scores of its own, which fit its own label. Weights 1/p(y_i | z_i) would have to undo
that fit, and would be too heavy-tailed to use. So z_i is integrated out.
Given the other rows' columns, sigma2 and tau, row i is Gaussian (its cavity) with

    mean  t_i - [Q^-1 T]_i / [Q^-1]_ii,      variance  sigma2 / [Q^-1]_ii,

whatever t_i is. With m_i the mean of p(y_i | z_i) over the cavity, draws of everything but row i
weighted by 1/m_i are draws of the posterior without y_i, and the mean of p(y | z_i) over cavities
with these weights is its prediction. Means over cavities use quasi-random normal points.

Under ``squared`` nothing is sampled. Given (theta, tau, sigma2) functions without a row's label are
Gaussian in closed form, the posterior of (theta, tau, sigma2) is a table, and without the row's
label each of its cells is weighted by 1/m_i, known too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.typing import ArrayLike

from bmsvm._validation import check_count
from bmsvm.inference.table import PosteriorTable, check_tabled
from bmsvm.models import likelihoods, squared
from bmsvm.models.couplings import class_vector, contrast, to_columns
from bmsvm.models.hierarchy import latent
from bmsvm.models.integrated import check_integrable
from bmsvm.models.problem import Problem, some_rows
from bmsvm.models.quadrature import normal_points
from bmsvm.models.theta import nearest_on_grid
from bmsvm.models.whitening import matrix_function, shrinkage

__all__ = ["LeaveOneOut", "cavity", "leave_one_out", "leave_one_out_of_table"]

TABLE_STEP = 1.0
"""Distance of points of the table, in standard deviations; see :mod:`bmsvm.inference.table`."""

LEAST_MASS = 1e-4
"""Probability of the cells that are left out of sums over the table."""


class LeaveOneOut(NamedTuple):
    """Predictions of each row by the posterior without its label.

    log_score
        Log predictive probability of the label, shape (n,); of (21) under the hinge.
    probabilities
        Predictive class probabilities, shape (n, c).
    pareto_k
        Shape of the tail of each row's weights, shape (n,); above 0.7 a row's prediction should
        not be trusted.
    """

    log_score: np.ndarray
    probabilities: np.ndarray
    pareto_k: np.ndarray


def cavity(
    columns: jax.Array, precision: jax.Array, noise_variance: jax.Array, problem: Problem
) -> tuple[jax.Array, jax.Array]:
    """Mean (n, k) and variance (n,) of each row's columns given all other rows'."""
    basis, eigenvalues = problem.factor
    rows = jnp.append(columns, jnp.ones_like(columns[:, :1]), axis=1)
    solved = matrix_function(rows, lambda r: 1 / r, precision, problem)  # R^-1
    solved, ones = solved[:, :-1], solved[:, -1:]
    diagonal = 1 - basis**2 @ shrinkage(eigenvalues, precision)[0]
    information = problem.hyper.intercept_precision + jnp.sum(ones)
    solved = solved - ones * (ones.T @ columns) / information
    diagonal = diagonal - ones[:, 0] ** 2 / information
    return columns - solved / diagonal[:, None], noise_variance / diagonal


@jax.jit
def _over_cavities(
    draws: dict[str, jax.Array], nodes: jax.Array, problem: Problem
) -> tuple[jax.Array, jax.Array]:
    """``log m_i``, shape (s, n), and mean class probabilities, shape (s, n, c), of each draw."""

    def one(draw):
        here = problem.at(draw.get("kernel"))
        if "weights" in draw:  # far more rows than weights: one row changes them little
            mean = latent(draw["intercept"], draw["weights"], here)
            left = 0.0 if here.remainder is None else here.remainder
            variance = draw["noise_variance"] * (1 + left / draw["precision"])
            variance = jnp.broadcast_to(variance, (problem.n_rows,))
        else:
            columns = to_columns(draw["scores"], problem.labels, problem.coupling)
            mean, variance = cavity(columns, draw["precision"], draw["noise_variance"], here)
        around = mean[:, None] + jnp.sqrt(variance)[:, None, None] * nodes
        scores = class_vector(around, problem.coupling)  # (n, nodes, c)
        log_mean = likelihoods.log_mean_likelihood(
            scores, problem.labels, problem.likelihood, problem.row_weights
        )
        return log_mean, likelihoods.class_probabilities(scores, problem.likelihood).mean(1)

    return jax.lax.map(one, draws)


def _smooth(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normalised log weights (n, s), smoothed, and Pareto's k (n,), of log ratios (n, s)."""
    log_weights, pareto_k = np.zeros(log_ratios.shape), np.zeros(len(log_ratios))
    # If all are equal the label had no weight, and there is no tail.
    differ = np.ptp(log_ratios, axis=1) > 0
    if np.any(differ):
        log_weights[differ], pareto_k[differ] = _pareto_smoothed(log_ratios[differ])
    log_total = scipy.special.logsumexp(log_weights, axis=1, keepdims=True)
    return log_weights - log_total, pareto_k


def _pareto_smoothed(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed log weights and Pareto's k by ArviZ, of whichever version."""
    if hasattr(arviz, "psislw"):  # ArviZ 0.x
        return arviz.psislw(log_ratios)
    from arviz_stats.base import array_stats

    return array_stats.psislw(-log_ratios)  # takes the log likelihood


def leave_one_out(
    draws: Mapping[str, ArrayLike], problem: Problem, *, num_nodes: int = 128
) -> LeaveOneOut:
    """Predict each row of the training data as if its label had not been seen.

    Parameters
    ----------
    draws
        Posterior draws, flat over chains: ``scores`` (s, n, c), ``noise_variance`` (s,),
        ``precision`` (s,), and ``lengthscale`` (s,) where it was sampled. Or, where rows are many
        more than the rank, ``weights`` (s, r, k) and ``intercept`` (s, c) instead of scores:
        then z_i given the functions is integrated out, and draws of these are weighted.
    problem
        The prepared data, with theta fixed or on a grid; coupling ``sum_to_zero``, likelihood
        ``hinge``, ``normalized`` or ``squared``, which needs no draws.
    num_nodes
        Quasi-random points at which means over cavities are taken; a power of two.
    """
    check_count("num_nodes", num_nodes)
    check_integrable("leave-one-out", problem.coupling, problem.likelihood)
    if problem.family is not None:
        raise ValueError(
            "leave-one-out needs a kernel with parameters that are fixed or on a grid; those of "
            "the problem are sampled off it"
        )
    if problem.likelihood == "squared":
        return leave_one_out_of_table(problem, num_nodes=num_nodes)[0]
    dtype = problem.factor.basis.dtype
    sites = ("scores",) if "scores" in draws else ("weights", "intercept")
    names = (*sites, "noise_variance", "precision")
    kept = {name: jnp.asarray(draws[name]) for name in names}
    if "intercept" in kept:  # of the columns, as the weights
        kept["intercept"] = kept["intercept"] @ jnp.asarray(contrast(problem.n_classes), dtype)
    if problem.grid is not None:
        theta = np.asarray(draws["lengthscale"])
        kept["kernel"] = jnp.asarray(nearest_on_grid(theta, np.asarray(problem.grid.values)))
    nodes = jnp.asarray(normal_points(num_nodes, problem.n_columns, seed=0), dtype)
    log_means, each = (np.asarray(part, float) for part in _over_cavities(kept, nodes, problem))
    log_weights, pareto_k = _smooth(-log_means.T)
    probabilities = np.einsum("is,sic->ic", np.exp(log_weights), each)
    own = probabilities[np.arange(problem.n_rows), np.asarray(problem.labels)]
    return LeaveOneOut(np.log(own), probabilities, pareto_k)


def leave_one_out_of_table(
    problem: Problem, *, num_nodes: int = 128, max_rows: int | None = None
) -> tuple[LeaveOneOut, Problem]:
    """Predict each row without its label under ``squared``: exact, whatever was drawn.

    Parameters
    ----------
    problem
        The prepared data, with theta fixed or on a grid; coupling ``sum_to_zero``.
    num_nodes
        Quasi-random points at which class probabilities are averaged over the functions of a row; a
        power of two.
    max_rows
        Largest number of rows to predict, evenly spaced. Default: all.

    Returns
    -------
    tuple
        The predictions, and the problem of the rows that were predicted.
    """
    check_count("num_nodes", num_nodes)
    check_tabled("leave-one-out", problem)
    table = PosteriorTable(problem, step=TABLE_STEP)
    n, c, k = problem.n_rows, problem.n_classes, problem.n_columns
    chosen = np.arange(n)
    if max_rows is not None and max_rows < n:
        chosen = np.unique(np.linspace(0, n - 1, max_rows).astype(int))
        problem = some_rows(problem, max_rows)
    heaviest = np.argsort(table.cells.probabilities)[::-1]
    covered = np.cumsum(table.cells.probabilities[heaviest])
    cells = np.sort(heaviest[: int(np.searchsorted(covered, 1 - LEAST_MASS)) + 1])
    means, variances, logs = _without_labels(table, cells, chosen)
    log_weights = np.log(table.cells.probabilities[cells])[:, None] - logs
    log_weights -= scipy.special.logsumexp(log_weights, axis=0)
    nodes = normal_points(num_nodes, k, seed=0)
    to_classes = contrast(c).T
    probabilities = np.zeros((len(chosen), c))
    for cell, mean, variance, weights in zip(
        cells, means, variances, np.exp(log_weights), strict=True
    ):
        noise = table.cells.noise_variance[cell] + likelihoods.squared_scale(c) ** 2
        slope = c / (c - 1) / noise
        around = mean[:, None] + np.sqrt(variance)[:, None, None] * nodes
        shares = scipy.special.softmax(slope * (around @ to_classes), axis=-1)
        probabilities += weights[:, None] * shares.mean(axis=1)
    own = probabilities[np.arange(len(chosen)), np.asarray(problem.labels)]
    found = LeaveOneOut(np.log(own), probabilities, np.zeros(len(chosen)))
    return found, problem


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
            spread = 1 + information * variance  # of the code, over that of its noise
            distance = np.sum((codes - mean) ** 2, axis=1)
            means[place] = mean
            # What a basis of low rank leaves is part of the functions, and of x.
            variances[place] = variance + x - table.cells.noise_variance[cells[place]]
            logs[place] = -0.5 * (
                information * distance / spread + k * (np.log(spread) - _log(information))
            )
    return means, variances, logs


def _log(information: np.ndarray) -> np.ndarray:
    """Log of information; zero for rows without any, whose label has no evidence."""
    return np.log(np.where(information > 0, information, 1.0))
