"""What draws say of the training rows: which rows and draws are used, and each row left out."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from bmsvm.models.integrated import check_integrable
from bmsvm.models.problem import Problem, chosen_rows, rows_of
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
"""Largest number of rows, chosen at random, in leave-one-out where scores are integrated out."""

Samples = Mapping[str, np.ndarray]
"""Draws of each site, shape (chain, draw, ...)."""


def rows_left_out(samples: Samples, problem: Problem) -> np.ndarray:
    """Return the indices of the rows that leave-one-out predicts."""
    n = problem.n_rows
    return chosen_rows(n, n if "scores" in samples else LOO_ROWS)


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
    chosen = rows_left_out(samples, problem)
    unused = {"coefficients"} if "scores" in samples else {"scores"}
    kept = {
        name: _flat(np.asarray(value)[:, ::thin])
        for name, value in samples.items()
        if name not in unused
    }
    if problem.likelihood != "squared":
        # Weights of an exact Gram matrix, as many as rows, have adapted to each label.
        if "scores" not in kept and (problem.basis_map is None or "weights" not in kept):
            raise ValueError(
                "log_likelihood needs the scores, or, with a Gram matrix of low rank, the "
                "weights, which the draws do not have: pass log_likelihood=False"
            )
        if "scores" not in kept:
            problem = rows_of(problem, chosen)
    with jax.enable_x64(True):
        return labels_given_others(kept, problem, chosen), chosen


def left_out(
    samples: Samples, problem: Problem, *, max_draws: int | None, num_nodes: int
) -> LeaveOneOut:
    """See :meth:`bmsvm.Posterior.leave_one_out`."""
    if problem.likelihood == "squared":
        rows = rows_left_out(samples, problem)
        return leave_one_out_of_table(problem, rows, num_nodes=num_nodes)
    total = samples["precision"].size
    which = spaced_draws(samples, total if max_draws is None else max_draws)
    draws, problem = _draws_and_rows(samples, problem, which)
    with jax.enable_x64(True):
        return leave_one_out(draws, problem, num_nodes=num_nodes)


def held_out(
    samples: Samples, problem: Problem, *, seed: int, remainder: bool
) -> tuple[HeldOutDraws, np.ndarray]:
    """See :meth:`bmsvm.Posterior.held_out_draws`; ``remainder`` as at new rows."""
    chosen, which = rows_left_out(samples, problem), spaced_draws(samples)
    if problem.likelihood == "squared":
        found = held_out_draws_of_table(
            problem, chosen, seed=seed, num_draws=len(which), remainder=remainder
        )
        return found, chosen
    draws, problem = _draws_and_rows(samples, problem, which)
    with jax.enable_x64(True):
        found = held_out_draws(draws, problem, seed=seed, remainder=remainder)
    return found, chosen


def _draws_and_rows(
    samples: Samples, problem: Problem, which: np.ndarray
) -> tuple[dict[str, np.ndarray], Problem]:
    """Return some draws, flat over chains, and the rows that are predicted."""
    sites = ["scores"] if "scores" in samples else ["weights", "intercept"]
    if "scores" not in samples:
        problem = rows_of(problem, rows_left_out(samples, problem))
    sites += [name for name in ("noise_variance", "precision", "lengthscale") if name in samples]
    return {name: _flat(samples[name])[which] for name in sites}, problem


def _flat(draws: np.ndarray) -> np.ndarray:
    """Draws (chain, draw, ...), flat over chains: shape (s, ...)."""
    draws = np.asarray(draws)
    return draws.reshape(-1, *draws.shape[2:])
