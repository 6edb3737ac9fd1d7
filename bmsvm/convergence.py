"""Convergence diagnostics of a fit, their limits, and advice if a limit is exceeded.

ArviZ computes R-hat and effective sample size of many quantities. The limits are such that chains
which have converged seldom raise an alarm by chance. An effective size s, over m half chains, is
enough if it is at least :data:`ENOUGH`. If all half chains have one distribution, approximately

    R-hat^2 - 1  ~  (m/s) chi2(m - 1)/(m - 1).

In simulated chains R-hat exceeds 1.05 for 23% of quantities at s = 100, and for 0.8% at s = 200.
:func:`largest_r_hat` is the limit that any watched quantity exceeds with probability
:data:`FALSE_ALARM`. Estimates of the effective size vary too: an effective size of 100 is estimated
below :data:`SMALLEST_ESS` with probability 0.04, one of 200 with 0.0003, and one of 400 never in
3000 cases (4 autoregressive chains of 200 draws, ``python benchmarks/limits.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from sklearn.exceptions import ConvergenceWarning

from bmsvm._arviz import arviz
from bmsvm.models.couplings import class_map
from bmsvm.models.hierarchy import holds_precision
from bmsvm.models.likelihoods import margin_offset
from bmsvm.models.problem import Problem
from bmsvm.models.theta import nearest_on_grid

ENOUGH = 100.0
"""Effective sample size of all chains that is enough."""

FALSE_ALARM = 0.001
"""Probability that R-hat of any watched quantity exceeds its limit at this effective size."""

SMALLEST_ESS = 50.0
"""Estimated effective sample size below which there is an alarm."""

FEWEST_DRAWS = 10
"""Fewest draws of a chain from which convergence is judged."""

WATCHED_ROWS = 10
"""Training rows at which the functions are watched."""

FEWEST_ROWS = 3
WATCHED_FUNCTIONS = 60
"""Fewest of these rows, and approximate number of watched functions, with many classes."""

SOONEST = 50
"""Fewest draws of each chain after which chains may end."""

GOOD_R_HAT, GOOD_ESS, GOOD_ERROR = 1.05, 200.0, 0.015
"""R-hat, effective size, and Monte Carlo error of probabilities before calibration, at which chains
may end."""

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


class Diagnosis(NamedTuple):
    """R-hat and effective sample size of one quantity, over all chains."""

    r_hat: float
    ess: float


def _functions_at(
    samples: Mapping[str, np.ndarray], problem: Problem, rows: np.ndarray
) -> np.ndarray:
    """Class functions of draws at training rows, shape (chain, draw, m, c).

    If the kernel is sampled off a grid, the basis differs from draw to draw, and the scores of the
    rows are returned instead.
    """
    if problem.family is not None:
        return np.asarray(samples["scores"])[:, :, rows]
    weights, intercept = np.asarray(samples["weights"]), np.asarray(samples["intercept"])
    to_classes = class_map(problem.coupling, problem.n_classes)
    if problem.grid is None:
        basis, eigenvalues = problem.factor
        design = np.asarray(basis)[rows] * np.sqrt(np.asarray(eigenvalues))
        columns = np.einsum("mr,sdrk->sdmk", design, weights)
    else:
        index = nearest_on_grid(samples["lengthscale"], np.asarray(problem.grid.values))
        bases, each = (np.asarray(part) for part in problem.grid.factors)
        designs = bases[:, rows] * np.sqrt(each)[:, None]
        columns = np.einsum("sdmr,sdrk->sdmk", designs[index], weights)
    return intercept[:, :, None] + columns @ to_classes


class Watched(NamedTuple):
    """Quantities by which convergence is judged.

    quantities
        By name, each of shape (chain, draw): the logarithms of sigma2, tau and theta, and the
        class functions at some training rows.
    probabilities
        Class probabilities (21) of these rows without noise, shape (chain, draw, m c).
    """

    quantities: dict[str, np.ndarray]
    probabilities: np.ndarray


def watch(
    samples: Mapping[str, np.ndarray], problem: Problem, n_rows: int, classes: np.ndarray
) -> Watched:
    """Compute the watched quantities from draws.

    Parameters
    ----------
    samples
        Draws of each site, shape (chain, draw, ...).
    problem
        The prepared data.
    n_rows
        Number of rows without spare ones.
    classes
        Names of the classes, shape (c,).
    """
    found = {
        name: np.log(samples[name])
        for name in ("noise_variance", "precision", "lengthscale")
        if name in samples and samples[name].ndim == 2
    }
    most = max(FEWEST_ROWS, min(WATCHED_ROWS, WATCHED_FUNCTIONS // len(classes)))
    rows = np.unique(np.linspace(0, n_rows - 1, min(n_rows, most)).astype(int))
    functions = _functions_at(samples, problem, rows)
    # The functions sum to zero, so the last is determined by the others.
    for place, row in enumerate(rows):
        for j, name in enumerate(classes[:-1]):
            found[f"f at training row {row}, class {name}"] = functions[:, :, place, j]
    excess = np.maximum(functions + margin_offset(len(classes)), 0.0)
    chances = scipy.special.softmax(excess, axis=-1)
    return Watched(found, chances.reshape(*chances.shape[:2], -1))


def enough_draws(
    samples: Mapping[str, np.ndarray], problem: Problem, n_rows: int, classes: np.ndarray
) -> bool:
    """Whether draws are enough, so that chains may end; arguments as in :func:`watch`.

    They are enough if each chain has at least 50; every watched quantity has an R-hat of at most
    1.05 and an effective size of at least 200; and the Monte Carlo error of the class probabilities
    (21) of watched rows, not calibrated, their standard deviation over the root of their effective
    size, is at most 0.015. tau is left out if its prior outweighs the data (``holds_precision``).
    """
    watched = watch(samples, problem, n_rows, classes)
    held = {"precision"} if holds_precision(problem) else set()
    _, values = _moving({k: v for k, v in watched.quantities.items() if k not in held})
    if values.size == 0 or values.shape[1] < SOONEST:
        return False
    if np.max(_r_hats(values)) > GOOD_R_HAT or np.min(_sizes(values)) < GOOD_ESS:
        return False
    deviations = np.std(watched.probabilities, axis=(0, 1))
    sizes = _sizes(watched.probabilities[:, :, deviations > GOOD_ERROR])
    return bool(np.all(deviations[deviations > GOOD_ERROR] <= GOOD_ERROR * np.sqrt(sizes)))


def diagnose(quantities: dict[str, np.ndarray]) -> dict[str, Diagnosis]:
    """Rank-normalised split R-hat and bulk effective sample size of quantities (chain, draw).

    A constant quantity is left out. The result is empty if there are too few draws.
    """
    names, values = _moving(quantities)
    if not names or values.shape[1] < FEWEST_DRAWS:
        return {}
    return {
        name: Diagnosis(float(r_hat), float(size))
        for name, r_hat, size in zip(names, _r_hats(values), _sizes(values), strict=True)
    }


def _moving(quantities: Mapping[str, np.ndarray]) -> tuple[list[str], np.ndarray]:
    """Names of the quantities that move, and these, shape (chain, draw, quantity)."""
    names = [name for name, value in quantities.items() if np.ptp(value) > 0]
    if not names:
        return names, np.zeros((1, 0, 0))
    return names, np.stack([np.asarray(quantities[name], np.float64) for name in names], axis=-1)


def _two_chains(values: np.ndarray) -> np.ndarray:
    """Return chains (chain, draw, quantity); a single chain is split into its two halves."""
    if values.shape[0] > 1:
        return values
    half = values.shape[1] // 2
    return values[0, : 2 * half].reshape(2, half, -1)


def _r_hats(values: np.ndarray) -> np.ndarray:
    """R-hat of quantities (chain, draw, quantity); infinite where all chains are constant."""
    values = _two_chains(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.asarray(arviz.rhat(arviz.convert_to_dataset({"x": values}))["x"])
    # Constant chains at different values have no variance to divide by, up to rounding.
    still = np.all(np.ptp(values, axis=1) == 0, axis=0)
    return np.where(np.isfinite(found) & ~still, found, np.inf)


def _sizes(values: np.ndarray) -> np.ndarray:
    """Effective sample size by ArviZ of each quantity of (chain, draw, quantity)."""
    if values.shape[-1] == 0:
        return np.zeros(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = arviz.convert_to_dataset({"x": _two_chains(values)})
        found = np.asarray(arviz.ess(data)["x"])
    return np.where(np.isfinite(found), found, 0.0)


def largest_r_hat(num_chains: int, num_quantities: int) -> float:
    """Limit that R-hat seldom exceeds by chance, if the effective size is :data:`ENOUGH`.

    Each quantity is tested twice, by its ranks and by their distances from the median. A single
    chain counts as two.
    """
    m = 2 * max(num_chains, 2)
    level = FALSE_ALARM / (2 * max(num_quantities, 1))
    quantile = scipy.stats.chi2.isf(level, m - 1) / (m - 1)
    return float(np.sqrt(1 + m / ENOUGH * quantile))


def advice(
    diagnoses: Mapping[str, Diagnosis], *, num_chains: int, num_warmup: int, num_samples: int
) -> str | None:
    """Name what failed, its worst quantity and a remedy; None if the chains have converged."""
    if num_samples < FEWEST_DRAWS:
        return (
            f"{num_samples} draws of each chain are too few to judge convergence: increase "
            "num_samples to several hundred, or call fit_more"
        )
    if not diagnoses:
        return None
    limit = largest_r_hat(num_chains, len(diagnoses))
    worst, r_hat = max(((name, each.r_hat) for name, each in diagnoses.items()), key=itemgetter(1))
    least, size = min(((name, each.ess) for name, each in diagnoses.items()), key=itemgetter(1))
    failed, remedies = [], []
    if r_hat > limit:
        failed.append(f"{worst} has R-hat {r_hat:.2f} (should be below {limit:.2f})")
    if size < SMALLEST_ESS:
        whose = "" if failed and least == worst else f"{least} has "
        small = f"an effective sample size of {size:.0f} (should be above {SMALLEST_ESS:.0f})"
        failed.append(whose + small)
        factor = min(max(2, int(np.ceil(ENOUGH / max(size, 1.0)))), 10)
        remedies.append(f"call fit_more({(factor - 1) * num_samples}) for more draws")
    if r_hat > limit:
        remedies.append(f"fit again with a larger num_warmup (it is {num_warmup})")
    if not failed:
        return None
    return (
        f"the chains have not converged: {' and '.join(failed)}. "
        f"To improve this, {' or '.join(remedies)}"
    )


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


def leave_one_out_checks(large_k: float | None) -> dict[str, Check]:
    """Return ``PredictiveDistribution.large_k`` without a limit, see docs/classifier.md."""
    return {} if large_k is None else {"large Pareto k": Check(large_k, None, True, "")}


def warn_of_checks(checks: Mapping[str, Check], category: type[Warning], stacklevel: int) -> None:
    """Give the advice of each check that has not passed as a warning."""
    for check in checks.values():
        if not check.passed:
            warnings.warn(check.advice, category, stacklevel=stacklevel)


def warn_unless_converged(
    diagnoses: Mapping[str, Diagnosis],
    *,
    num_chains: int,
    num_warmup: int,
    num_samples: int,
    stacklevel: int = 3,
) -> None:
    """Give the :func:`advice` as a ``ConvergenceWarning``, if there is any."""
    message = advice(
        diagnoses, num_chains=num_chains, num_warmup=num_warmup, num_samples=num_samples
    )
    if message is not None:
        warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)
