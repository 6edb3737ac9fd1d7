"""Checks of a fit beside R-hat and effective size: each a number, its limit, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bmsvm.convergence.diagnosis import FEWEST_DRAWS
from bmsvm.inference.run import Run
from bmsvm.models.problem import Problem
from bmsvm.predictive import PredictiveDistribution

SMALLEST_ACCEPTANCE = 0.3
"""Mean acceptance of a chain's trajectories; warm-up tunes the step size to 0.65."""

SHORTEST_TRAJECTORY = 0.5
"""Mean length of a chain's trajectories, in posterior standard deviations. Successive draws then
have correlation cos(0.5) = 0.88, and 16 draws are worth one independent draw."""

LARGEST_BASIS_ERROR = 0.05
"""Mean distance of class probabilities from those of the exact Gram matrix."""

BASIS_ERROR = "basis error"
"""Name of the check of this distance, the only one that is not of chains."""

LARGEST_GRAM = 1.0
"""Gigabytes of an exact Gram matrix up to which it is recommended instead of a basis."""


class Check(NamedTuple):
    """A diagnostic with its limit.

    value, limit
        The number, and its limit; None if it has none, and only informs.
    largest
        Whether the limit is the largest good value, and not the smallest.
    advice
        What is wrong, and what to do; empty if nothing is.
    """

    value: float
    limit: float | None
    largest: bool
    advice: str

    @property
    def passed(self) -> bool:
        """Whether the number is within its limit, if it has one."""
        if self.limit is None:
            return True
        return self.value <= self.limit if self.largest else self.value >= self.limit

    def judged(self) -> Check:
        """Return the check, without advice if it has passed."""
        return self._replace(advice="") if self.passed else self

    def __repr__(self) -> str:
        if self.limit is None:
            return f"Check({self.value:.2g}, without a limit)"
        side = "most" if self.largest else "least"
        verdict = "passed" if self.passed else f"failed: {self.advice}"
        return f"Check({self.value:.2g}, at {side} {self.limit:g}: {verdict})"


def sampler_checks(samples: Mapping[str, np.ndarray]) -> dict[str, Check]:
    """Check the trajectories of each chain, if the sampler has any.

    ``acceptance`` is the smallest mean acceptance probability of a chain, and ``trajectory`` the
    smallest mean length of its trajectories, in posterior standard deviations. The length falls
    if trajectories would need more steps than the sampler allows.

    Parameters
    ----------
    samples
        Draws (chain, draw) of ``accept_prob``, ``step_size`` and ``num_steps``.
    """
    if "num_steps" not in samples or not np.any(samples["num_steps"] > 0):
        return {}
    accepted = np.asarray(samples["accept_prob"]).mean(axis=1)
    length = np.mean(np.asarray(samples["num_steps"]) * samples["step_size"], axis=1)
    return {
        "acceptance": Check(
            float(accepted.min()),
            SMALLEST_ACCEPTANCE,
            False,
            f"chain {accepted.argmin()} accepts {accepted.min():.2f} of its trajectories (should "
            f"be above {SMALLEST_ACCEPTANCE}): its step size is not tuned. Fit again with a larger "
            "num_warmup",
        ).judged(),
        "trajectory": Check(
            float(length.min()),
            SHORTEST_TRAJECTORY,
            False,
            f"chain {length.argmin()} has trajectories of {length.min():.2g} posterior standard "
            f"deviations (should be above {SHORTEST_TRAJECTORY}), so that it moves slowly. Fit "
            "again with a larger num_warmup, or with more thinning",
        ).judged(),
    }


def theta_checks(samples: Mapping[str, np.ndarray], problem: Problem) -> dict[str, Check]:
    """Check that a lengthscale that is sampled has moved; R-hat does not see one that has not.

    ``values of theta`` is the number of its different values in all draws (chain, draw, ...).
    """
    grid = problem.grid
    draws = np.asarray(samples.get("lengthscale", np.zeros((1, 0))))
    if draws.shape[1] < FEWEST_DRAWS or (grid is not None and np.size(grid.values) == 1):
        return {}
    values = np.unique(draws.reshape(-1, *draws.shape[2:]), axis=0)
    advice = (
        "lengthscale is sampled and is the same in all draws, "
        f"{np.array2string(draws[0, 0], precision=3)}: no proposal was accepted, or nearly all "
        "the mass of the posterior is there. To find out, fit again with "
        f"{'' if grid is None else 'a finer grid, or with '}another sampler, such as HMC()"
    )
    return {"values of theta": Check(len(values), 2, False, advice).judged()}


def basis_checks(error: float | None, columns: int, n_rows: int) -> dict[str, Check]:
    """Check how far a basis of low rank moves class probabilities.

    Parameters
    ----------
    error
        ``PredictiveDistribution.basis_error``; None if there is nothing to check.
    columns, n_rows
        Number of columns of the basis, and of rows of the data.
    """
    if error is None:
        return {}
    size, remedies = 8e-9 * n_rows**2, []
    if size < LARGEST_GRAM:
        remedies.append(f'approximation="exact" (a Gram matrix of {size:.2g} GB)')
    if 2 * columns < n_rows or not remedies:
        remedies.append(f"approximation=bmsvm.Nystrom(rank={2 * columns})")
    advice = (
        f"the basis of low rank, of {columns} columns, moves class probabilities by about "
        f"{error:.2g} in the mean: small details of the functions are lost. Fit again with "
        f"{' or '.join(remedies)}, which takes more time"
    )
    return {BASIS_ERROR: Check(error, LARGEST_BASIS_ERROR, True, advice).judged()}


def chain_checks(run: Run) -> dict[str, Check]:
    """Check the chains of a run, if it has any."""
    if run.independent:
        return {}
    return {**sampler_checks(run.samples), **theta_checks(run.samples, run.problem)}


def basis_checks_of(predictive: PredictiveDistribution) -> dict[str, Check]:
    """Check the basis of a fitted model."""
    posterior = predictive.posterior
    columns = posterior.problem.factor.eigenvalues.shape[-1]
    return basis_checks(predictive.basis_error, columns, len(posterior.training_rows))


def checks_of(run: Run, predictive: PredictiveDistribution) -> dict[str, Check]:
    """Check the chains, a basis of low rank and leave-one-out.

    ``large Pareto k`` has no limit, see docs/classifier.md.
    """
    large_k = predictive.large_k
    return {
        **chain_checks(run),
        **basis_checks_of(predictive),
        **({} if large_k is None else {"large Pareto k": Check(large_k, None, True, "")}),
    }
