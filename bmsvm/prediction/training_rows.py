"""Predictions of training rows, each without its label, and the rows and draws they use."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from bmsvm.models.couplings import check_integrable
from bmsvm.models.problem import Problem, chosen_rows
from bmsvm.prediction.labels_given_others import LabelsGivenOthers, labels_given_others
from bmsvm.prediction.leave_one_out import (
    HeldOutDraws,
    LeaveOneOut,
    held_out_draws,
    leave_one_out,
)
from bmsvm.prediction.leave_one_out_of_table import (
    held_out_draws_of_table,
    leave_one_out_of_table,
)

LOO_DRAWS = 200
"""Largest number of draws, evenly spaced, of :func:`held_out`."""

LOO_ROWS = 2000
"""Largest number of rows, chosen at random, in leave-one-out with a Gram matrix of low rank."""

Samples = Mapping[str, np.ndarray]
"""Draws of each site, shape (chain, draw, ...)."""


def rows_left_out(problem: Problem) -> np.ndarray:
    """Return the indices of the rows that leave-one-out predicts."""
    n = problem.n_rows
    return chosen_rows(n, n if problem.basis_map is None else LOO_ROWS)


def spaced_draws(samples: Samples, count: int | None = None) -> np.ndarray:
    """Return the indices of draws, flat over chains, evenly spaced.

    At most ``count`` of them; by default :data:`LOO_DRAWS`.
    """
    total = samples["precision"].size
    count = LOO_DRAWS if count is None else count
    return np.unique(np.linspace(0, total - 1, min(total, count)).astype(int))


def log_likelihood(
    samples: Samples, problem: Problem, thin: int
) -> tuple[LabelsGivenOthers, np.ndarray]:
    """See :meth:`bmsvm.Posterior.log_likelihood`."""
    check_integrable("log_likelihood", problem.coupling)
    if problem.likelihood != "squared" and "scores" not in samples:
        raise ValueError(
            "log_likelihood needs the scores, which the draws do not have: pass "
            "log_likelihood=False"
        )
    chosen = rows_left_out(problem)
    kept = {
        name: _flat(np.asarray(value)[:, ::thin])
        for name, value in samples.items()
        if name != "coefficients"
    }
    with jax.enable_x64(True):
        return labels_given_others(kept, problem, chosen), chosen


def left_out(
    samples: Samples, problem: Problem, *, max_draws: int | None, num_nodes: int
) -> LeaveOneOut:
    """See :meth:`bmsvm.Posterior.leave_one_out`."""
    rows = rows_left_out(problem)
    if problem.likelihood == "squared":
        return leave_one_out_of_table(problem, rows, num_nodes=num_nodes)
    total = samples["precision"].size
    draws = _some_draws(samples, spaced_draws(samples, total if max_draws is None else max_draws))
    with jax.enable_x64(True):
        return leave_one_out(draws, problem, rows=rows, num_nodes=num_nodes)


def held_out(
    samples: Samples, problem: Problem, *, seed: int, remainder: bool
) -> tuple[HeldOutDraws, np.ndarray]:
    """See :meth:`bmsvm.Posterior.held_out_draws`; ``remainder`` as at new rows."""
    chosen, which = rows_left_out(problem), spaced_draws(samples)
    if problem.likelihood == "squared":
        found = held_out_draws_of_table(
            problem, chosen, seed=seed, num_draws=len(which), remainder=remainder
        )
        return found, chosen
    draws = _some_draws(samples, which)
    with jax.enable_x64(True):
        found = held_out_draws(draws, problem, seed=seed, rows=chosen, remainder=remainder)
    return found, chosen


def _some_draws(samples: Samples, which: np.ndarray) -> dict[str, np.ndarray]:
    """Return the draws with these indices, flat over chains."""
    sites = ("scores", "noise_variance", "precision", "lengthscale")
    return {name: _flat(samples[name])[which] for name in sites if name in samples}


def _flat(draws: np.ndarray) -> np.ndarray:
    """Draws (chain, draw, ...), flat over chains: shape (s, ...)."""
    draws = np.asarray(draws)
    return draws.reshape(-1, *draws.shape[2:])
