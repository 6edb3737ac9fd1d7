"""Log likelihood of each training row with its scores and functions integrated out.

ArviZ's leave-one-out weights draws by ``1/L_i``, the inverse likelihood of row i. Given the scores
or functions of that row, which have adapted to its label, the weights have a heavy tail. Here

    L_i(phi) = p(y_i | all other labels, phi),    phi = (theta, tau, sigma2),

which does not depend on scores and functions. Under ``squared`` it has a closed form. Otherwise
:mod:`bmsvm.prediction.leave_one_out` computes ``m_i``, the likelihood given the other rows' scores,
for each draw, and ``1/L_i(phi) = E[1/m_i | phi]`` over the posterior. ``log m_i`` is regressed on
``log phi``, and shifted so that the mean of ``1/L_i`` over the draws is that of Pareto-smoothed
``1/m_i``. The leave-one-out prediction by ArviZ is then that of ``leave_one_out``, and the tails of
ArviZ's weights are those of phi alone.

The weights w, ``1/m_i`` normalised, show how well the scores were integrated out: their effective
number of draws is ``1/sum w^2``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from bmsvm.kernels.covariance import gram
from bmsvm.kernels.factor import factorize
from bmsvm.kernels.functions import is_distribution
from bmsvm.models import squared
from bmsvm.models.family import kernels_of_draws, named_parameters
from bmsvm.models.problem import Problem, with_spare_rows
from bmsvm.models.regression import regressions_of
from bmsvm.prediction.leave_one_out import log_mean_likelihoods, smoothed_weights
from bmsvm.prediction.leave_one_out_of_table import label_evidence

NODES = 128
"""Quasi-random points at which scores are integrated."""

DRAWS_PER_TERM = 20
"""Draws for each term of the regression on log phi; with fewer it has only a constant."""


class LabelsGivenOthers(NamedTuple):
    """Log likelihoods of rows, and diagnostics of their accuracy.

    log_likelihood
        ``log p(y_i | other labels, phi)`` of each draw and row, shape (s, n).
    effective_draws
        Effective number of draws by which scores were integrated, shape (n,).
    pareto_k
        Shape of the tail of their weights, shape (n,); 0 under ``squared``.
    """

    log_likelihood: np.ndarray
    effective_draws: np.ndarray
    pareto_k: np.ndarray


def labels_given_others(
    draws: Mapping[str, np.ndarray], problem: Problem, chosen: np.ndarray
) -> LabelsGivenOthers:
    """Log likelihood of rows given all other labels and the draws' theta, tau and sigma2.

    Parameters
    ----------
    draws
        Posterior draws, flat over chains: ``noise_variance`` and ``precision`` (s,), the kernel's
        parameters if they were sampled, and, unless the likelihood is ``squared``, ``scores``
        (s, n, c).
    problem
        The prepared data.
    chosen
        Indices of the rows to return.
    """
    count = len(draws["precision"])
    if problem.likelihood == "squared" and problem.family is None:
        logs = _of_table(draws, problem, chosen)
        return LabelsGivenOthers(logs, np.full(len(chosen), float(count)), np.zeros(len(chosen)))
    log_means = np.concatenate(list(_log_means(draws, problem, chosen)))
    log_weights, pareto_k = smoothed_weights(-log_means.T)
    log_score = scipy.special.logsumexp(log_weights + log_means.T, axis=1)
    logs = _given_parameters(log_means, _log_parameters(draws, problem), log_score)
    effective = np.exp(-scipy.special.logsumexp(2 * log_weights, axis=1))
    return LabelsGivenOthers(logs, effective, pareto_k)


def _of_table(draws: Mapping[str, np.ndarray], problem: Problem, chosen: np.ndarray) -> np.ndarray:
    """``log p(y_i | other labels, phi)`` under ``squared``, in closed form: shape (s, n)."""
    sigma2, tau = (np.asarray(draws[name], float) for name in ("noise_variance", "precision"))
    theta = np.zeros(len(tau), int)
    if problem.grid is not None:
        theta = problem.grid.index_of(draws["lengthscale"])
    eta = float(problem.hyper.intercept_precision)
    cells, where = np.unique(np.stack([theta, sigma2, tau]), axis=1, return_inverse=True)
    logs = np.empty((cells.shape[1], len(chosen)))
    for value, rows in enumerate(regressions_of(problem)):
        mine = np.flatnonzero(cells[0] == value)
        s2, t = cells[1:, mine]
        x = s2 * (1 + rows.remainder / t)
        for group in rows.sharing(x) if len(x) else ():
            moments = rows.moments(float(x[group[0]]))
            for j in group:
                cell = squared.cell_at(moments, t[j], s2[j], eta, rows.noise(x[j]))
                logs[mine[j]] = label_evidence(rows, chosen, x[j], moments, cell)
    return logs[where.ravel()]


def _log_means(
    draws: Mapping[str, np.ndarray], problem: Problem, chosen: np.ndarray
) -> Iterator[np.ndarray]:
    """``log m_i`` of all draws, shape (s, n); off a grid, one draw at a time."""
    if problem.family is None:
        yield log_mean_likelihoods(draws, problem, chosen, num_nodes=NODES)
        return
    family, rows = problem.family, np.asarray(problem.family.rows, np.float64)
    for draw, here in enumerate(kernels_of_draws(draws.__getitem__, family)):
        factor = with_spare_rows(factorize(gram(here, rows)), problem.n_rows - len(rows))
        fixed = replace(problem, factor=jax.tree.map(jnp.asarray, factor), family=None)
        one = {name: value[draw : draw + 1] for name, value in draws.items()}
        yield log_mean_likelihoods(one, fixed, chosen, num_nodes=NODES)


def _log_parameters(draws: Mapping[str, np.ndarray], problem: Problem) -> np.ndarray:
    """Log of sigma2, tau and the kernel's parameters that vary, standardised: shape (s, q)."""
    names = ["noise_variance", "precision"]
    if problem.grid is not None:
        names.append("lengthscale")
    if problem.family is not None:
        names += list(named_parameters(problem.family.prior, is_leaf=is_distribution))
    parts = [np.asarray(draws[name], float).reshape(len(draws["precision"]), -1) for name in names]
    values = np.concatenate(parts, axis=1)
    values = np.where(np.all(values > 0, axis=0), np.log(np.maximum(values, 1e-300)), values)
    values = values - values.mean(axis=0)
    spread = values.std(axis=0)
    kept = spread > 1e-9
    return values[:, kept] / spread[kept]


def _given_parameters(
    log_means: np.ndarray, parameters: np.ndarray, log_score: np.ndarray
) -> np.ndarray:
    """Regress ``log m_i`` (s, n) on parameters (s, q); the mean of ``1/L_i`` is ``1/score``."""
    if len(parameters) < DRAWS_PER_TERM * (parameters.shape[1] + 1):
        parameters = parameters[:, :0]
    design = np.column_stack([np.ones(len(parameters)), parameters])
    fitted = design @ np.linalg.lstsq(design, log_means, rcond=None)[0]
    mean_inverse = scipy.special.logsumexp(-fitted, axis=0) - np.log(len(fitted))
    return fitted + mean_inverse + log_score
