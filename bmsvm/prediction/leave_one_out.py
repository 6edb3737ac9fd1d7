"""Leave-one-out prediction from one posterior run, by Pareto-smoothed importance sampling.

The scores z_i of a row have adapted to its label. Importance weights 1/p(y_i | z_i) would have a
tail too heavy to use. So z_i is integrated out.
Given the other rows' columns, sigma2 and tau, row i is Gaussian (its cavity) with

    mean  t_i - [Q^-1 T]_i / [Q^-1]_ii,      variance  sigma2 / [Q^-1]_ii,

neither of which depends on t_i. Let m_i be the mean of p(y_i | z_i) over the cavity. Draws of all
parameters but those of row i, weighted by 1/m_i, are draws of the posterior without y_i. The mean
of p(y | z_i) over cavities with these weights is the prediction of row i. Means over cavities use
quasi-random normal points.

Calibration needs draws like those at new rows: f_i is then drawn from the cavity, whose variance is
that of f_i plus sigma2, and p(y | f_i) integrates the noise alone. With a basis of low rank f_i
also has a remainder, as at a new row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.typing import ArrayLike

from bmsvm._arviz import arviz
from bmsvm._validation import check_count
from bmsvm.models import likelihoods
from bmsvm.models.couplings import check_integrable, class_vector, to_columns
from bmsvm.models.problem import Problem
from bmsvm.models.quadrature import normal_points
from bmsvm.models.whitening import matrix_function, shrinkage

LARGEST_K = 0.7
"""Pareto's k above which the prediction of a single row should not be trusted."""

FEWEST_SMOOTHED = 30
"""Fewest draws for which the tail, a fifth of them, has the six that every ArviZ can fit."""


class LeaveOneOut(NamedTuple):
    """Predictions of m rows, each by the posterior without its label.

    log_score
        Log predictive probability of the label, shape (m,); of (21) under the hinge.
    probabilities
        Predictive class probabilities, shape (m, c).
    pareto_k
        Shape of the tail of each row's weights, shape (m,); above :data:`LARGEST_K` a row's
        prediction should not be trusted.
    """

    log_score: np.ndarray
    probabilities: np.ndarray
    pareto_k: np.ndarray


class HeldOutDraws(NamedTuple):
    """Class probabilities of m rows by draws given all labels but their own.

    probabilities
        p(y | f_i), shape (m, c, s).
    weights
        Weights of the draws, which sum to one, shape (m, s).
    pareto_k
        As in :class:`LeaveOneOut`.
    """

    probabilities: np.ndarray
    weights: np.ndarray
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
    draws: dict[str, jax.Array],
    nodes: jax.Array,
    points: jax.Array | None,
    rows: jax.Array,
    problem: Problem,
) -> tuple[jax.Array, jax.Array]:
    """``log m_i``, shape (s, m), and class probabilities, shape (s, m, c), of draws at rows (m,).

    These are means over the cavity; with points (s, m, k), those at an f_i drawn from the cavity.
    """
    labels = problem.labels[rows]
    row_weights = None if problem.row_weights is None else problem.row_weights[rows]

    def one(
        given: tuple[dict[str, jax.Array], jax.Array | None],
    ) -> tuple[jax.Array, jax.Array]:
        draw, point = given
        here = problem.at(draw.get("kernel"))
        columns = to_columns(draw["scores"], problem.labels, problem.coupling)
        every = cavity(columns, draw["precision"], draw["noise_variance"], here)
        mean, variance = (part[rows] for part in every)
        around = mean[:, None] + jnp.sqrt(variance)[:, None, None] * nodes
        scores = class_vector(around, problem.coupling)  # (m, nodes, c)
        if problem.likelihood == "squared":  # narrow: in closed form
            log_mean = likelihoods.log_likelihood_given_functions(
                class_vector(mean, problem.coupling),
                scores[0],
                variance,
                labels,
                problem.likelihood,
                row_weights,
            )
        else:
            log_mean = likelihoods.log_mean_likelihood(
                scores, labels, problem.likelihood, row_weights
            )
        if point is not None:
            noise_variance = draw["noise_variance"]
            own = jnp.maximum(variance - noise_variance, 0.0)
            if here.remainder is not None:
                own = own + noise_variance / draw["precision"] * here.remainder[rows]
            function = mean + jnp.sqrt(own)[:, None] * point
            around = function[:, None] + jnp.sqrt(noise_variance) * nodes
            scores = class_vector(around, problem.coupling)
        return log_mean, likelihoods.class_probabilities(scores, problem.likelihood).mean(1)

    return jax.lax.map(one, (draws, points))


def smoothed_weights(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normalised log weights (n, s), smoothed, and Pareto's k (n,), of log ratios (n, s)."""
    log_weights, pareto_k = np.zeros(log_ratios.shape), np.zeros(len(log_ratios))
    # If all are equal the label has weight 0, and there is no tail.
    differ = np.ptp(log_ratios, axis=1) > 0
    if np.any(differ):
        log_weights[differ], pareto_k[differ] = _pareto_smoothed(log_ratios[differ])
    log_total = scipy.special.logsumexp(log_weights, axis=1, keepdims=True)
    return log_weights - log_total, pareto_k


def _pareto_smoothed(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed log weights and Pareto's k, by ArviZ 0.x or 1.x.

    With fewer than 30 draws, or if all values of the tail are equal, no tail can be fitted: the
    weights are not changed, and k is infinite.
    """
    log_weights, pareto_k = log_ratios.copy(), np.full(len(log_ratios), np.inf)
    fits = _has_tail(log_ratios)
    if np.any(fits):
        log_weights[fits], pareto_k[fits] = _smoothed_by_arviz(log_ratios[fits])
    return log_weights, pareto_k


def _has_tail(log_ratios: np.ndarray) -> np.ndarray:
    """Whether a tail can be fitted to each row of log ratios (n, s): shape (n,)."""
    n, s = log_ratios.shape
    if s < FEWEST_SMOOTHED:
        return np.zeros(n, bool)
    length = int(min(s / 5, 3 * np.sqrt(s)))
    tail = np.partition(log_ratios, s - length, axis=1)[:, s - length :]
    return np.ptp(tail, axis=1) > 0


def _smoothed_by_arviz(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log weights and Pareto's k of log ratios whose tails can be fitted."""
    if hasattr(arviz, "psislw"):  # ArviZ 0.x
        return arviz.psislw(log_ratios)
    from arviz_stats.base import array_stats

    return array_stats.psislw(-log_ratios)  # takes the log likelihood


def leave_one_out(
    draws: Mapping[str, ArrayLike],
    problem: Problem,
    *,
    rows: np.ndarray | None = None,
    num_nodes: int = 128,
) -> LeaveOneOut:
    """Predict rows of the training data as if the label of each had not been seen.

    Parameters
    ----------
    draws
        Posterior draws, flat over chains: ``scores`` (s, n, c), ``noise_variance`` (s,),
        ``precision`` (s,), and ``lengthscale`` (s,) where it was sampled.
    problem
        The prepared data, with theta fixed or on a grid; coupling ``sum_to_zero``, likelihood
        ``hinge`` or ``normalized``.
    rows
        Indices of the rows to predict, shape (m,). Default: all.
    num_nodes
        Quasi-random points at which means over cavities are taken; a power of two.
    """
    rows = np.arange(problem.n_rows) if rows is None else rows
    log_means, each = _evaluate(draws, problem, rows, num_nodes, None)
    log_weights, pareto_k = smoothed_weights(-log_means.T)
    probabilities = np.einsum("is,sic->ic", np.exp(log_weights), each)
    own = probabilities[np.arange(len(rows)), np.asarray(problem.labels)[rows]]
    return LeaveOneOut(np.log(own), probabilities, pareto_k)


def held_out_draws(
    draws: Mapping[str, ArrayLike],
    problem: Problem,
    *,
    seed: int,
    rows: np.ndarray | None = None,
    num_nodes: int = 32,
    remainder: bool = True,
) -> HeldOutDraws:
    """Draw class probabilities of rows as if the label of each had not been seen.

    Parameters
    ----------
    draws, problem, rows, num_nodes
        As in :func:`leave_one_out`.
    seed
        Seed of the points at which f_i is drawn given all other parameters.
    remainder
        Whether f_i is drawn, as functions at new rows are; else it is its conditional mean.
    """
    rows = np.arange(problem.n_rows) if rows is None else rows
    shape = (len(np.asarray(draws["precision"])), len(rows), problem.n_columns)
    points = np.random.default_rng(seed).standard_normal(shape) if remainder else np.zeros(shape)
    log_means, each = _evaluate(draws, problem, rows, num_nodes, points)
    log_weights, pareto_k = smoothed_weights(-log_means.T)
    return HeldOutDraws(np.moveaxis(each, 0, -1), np.exp(log_weights), pareto_k)


def log_mean_likelihoods(
    draws: Mapping[str, ArrayLike], problem: Problem, rows: np.ndarray, *, num_nodes: int = 128
) -> np.ndarray:
    """``log m_i`` of each draw and row, shape (s, m); arguments as in :func:`leave_one_out`."""
    return _evaluate(draws, problem, rows, num_nodes, None)[0]


def _evaluate(
    draws: Mapping[str, ArrayLike],
    problem: Problem,
    rows: np.ndarray,
    num_nodes: int,
    points: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    check_count("num_nodes", num_nodes)
    check_integrable("leave-one-out", problem.coupling)
    if problem.family is not None:
        raise ValueError(
            "leave-one-out needs a kernel with parameters that are fixed or on a grid; those of "
            "the problem are sampled off it"
        )
    dtype = problem.factor.basis.dtype
    kept = {name: draws[name] for name in ("scores", "noise_variance", "precision")}
    if problem.grid is not None:
        kept["kernel"] = problem.grid.index_of(draws["lengthscale"])
    nodes = normal_points(num_nodes, problem.n_columns, seed=0).astype(dtype)
    at = None if points is None else points.astype(dtype)
    log_means, each = _over_cavities(kept, nodes, at, rows, problem)
    return np.asarray(log_means, float), np.asarray(each, float)
