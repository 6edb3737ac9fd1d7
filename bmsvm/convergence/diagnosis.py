"""R-hat and effective sample size of a fit, their limits, and when draws are enough.

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
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from bmsvm._arviz import arviz
from bmsvm.convergence.watched import watch
from bmsvm.models.hierarchy import holds_precision
from bmsvm.models.problem import Problem

ENOUGH = 100.0
"""Effective sample size of all chains that is enough."""

FALSE_ALARM = 0.001
"""Probability that R-hat of any watched quantity exceeds its limit at this effective size."""

SMALLEST_ESS = 50.0
"""Estimated effective sample size below which there is an alarm."""

FEWEST_DRAWS = 10
"""Fewest draws of a chain from which convergence is judged."""

SOONEST = 50
"""Fewest draws of each chain after which chains may end."""

GOOD_R_HAT, GOOD_ESS, GOOD_ERROR = 1.05, 200.0, 0.015
"""R-hat, effective size, and Monte Carlo error of probabilities before calibration, at which chains
may end."""


class Diagnosis(NamedTuple):
    """R-hat and effective sample size of one quantity, over all chains."""

    r_hat: float
    ess: float


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


def _by_arviz(statistic: Callable[[Any], Any], values: np.ndarray) -> np.ndarray:
    """Compute a statistic of each quantity of (chain, draw, quantity), without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(statistic(arviz.convert_to_dataset({"x": values}))["x"])


def _r_hats(values: np.ndarray) -> np.ndarray:
    """R-hat of quantities (chain, draw, quantity); infinite where all chains are constant."""
    values = _two_chains(values)
    found = _by_arviz(arviz.rhat, values)
    # Constant chains at different values have no variance to divide by, up to rounding.
    still = np.all(np.ptp(values, axis=1) == 0, axis=0)
    return np.where(np.isfinite(found) & ~still, found, np.inf)


def _sizes(values: np.ndarray) -> np.ndarray:
    """Effective sample size by ArviZ of each quantity of (chain, draw, quantity)."""
    if values.shape[-1] == 0:
        return np.zeros(0)
    found = _by_arviz(arviz.ess, _two_chains(values))
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
