"""Whether chains have converged, said in words."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from sklearn.exceptions import ConvergenceWarning

__all__ = ["Diagnosis", "advice", "diagnose", "warn_unless_converged"]

LARGEST_R_HAT = 1.05
SMALLEST_ESS = 100.0
FEWEST_DRAWS = 10
"""Draws of a chain below which nothing can be said."""


class Diagnosis(NamedTuple):
    """R-hat and effective sample size of one quantity, over all chains."""

    r_hat: float
    ess: float


def diagnose(quantities: dict[str, np.ndarray]) -> dict[str, Diagnosis]:
    """Split R-hat and effective sample size of quantities of shape (chain, draw).

    What never moves in any chain is left out, and so is everything if there are too few draws.
    """
    found = {}
    for name, values in quantities.items():
        values = np.asarray(values, np.float64)
        if values.shape[1] < FEWEST_DRAWS or np.ptp(values) == 0:
            continue
        with np.errstate(all="ignore"):
            r_hat = float(split_gelman_rubin(values))
            ess = float(effective_sample_size(values))
        # A chain that stands still where others stand elsewhere has no variance to divide by.
        found[name] = Diagnosis(
            r_hat if np.isfinite(r_hat) else np.inf, ess if np.isfinite(ess) else 0.0
        )
    return found


def advice(diagnoses: dict[str, Diagnosis], *, num_warmup: int, num_samples: int) -> str | None:
    """Name what has mixed worst, and what to do about it; None if there is nothing to mend."""
    if num_samples < FEWEST_DRAWS:
        return (
            f"{num_samples} draws of each chain are too few to tell whether the chains have "
            "converged: set num_samples, or call fit_more, for several hundred"
        )
    if not diagnoses:
        return None
    name, worst = max(diagnoses.items(), key=lambda item: item[1].r_hat)
    least = min(each.ess for each in diagnoses.values())
    remedies = []
    if least < SMALLEST_ESS:
        factor = min(max(2, int(np.ceil(SMALLEST_ESS / max(least, 1.0)))), 10)
        remedies.append(f"call fit_more({(factor - 1) * num_samples}) for more draws")
    if worst.r_hat > LARGEST_R_HAT:
        remedies.append(f"fit again with a larger num_warmup (it is {num_warmup})")
    else:
        name, worst = min(diagnoses.items(), key=lambda item: item[1].ess)
    if not remedies:
        return None
    return (
        f"the chains have not converged: {name} has R-hat {worst.r_hat:.2f} (should be below "
        f"{LARGEST_R_HAT}) and an effective sample size of {worst.ess:.0f} (should be above "
        f"{SMALLEST_ESS:.0f}). To mend it, {' or '.join(remedies)}"
    )


def warn_unless_converged(
    diagnoses: dict[str, Diagnosis], *, num_warmup: int, num_samples: int, stacklevel: int = 3
) -> None:
    """Give the :func:`advice` in a ``ConvergenceWarning``, if there is any."""
    message = advice(diagnoses, num_warmup=num_warmup, num_samples=num_samples)
    if message is not None:
        warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)
