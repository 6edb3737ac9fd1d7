"""Whether chains have converged: R-hat and effective sample size, by ArviZ."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import arviz
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bmsvm.posterior import Posterior

__all__ = [
    "LARGEST_R_HAT",
    "SMALLEST_ESS",
    "Diagnosis",
    "advice",
    "diagnose",
    "warn_unless_converged",
    "watched_quantities",
]

LARGEST_R_HAT = 1.05
SMALLEST_ESS = 100.0
FEWEST_DRAWS = 10
"""Draws of a chain below which nothing can be said."""

WATCHED_ROWS = 10
"""Training rows at which the functions are watched."""


class Diagnosis(NamedTuple):
    """R-hat and effective sample size of one quantity, over all chains."""

    r_hat: float
    ess: float


def watched_quantities(posterior: Posterior, classes: np.ndarray) -> dict[str, np.ndarray]:
    """Quantities that should have converged, by name, each of shape (chain, draw).

    They are the logarithms of sigma2, tau and theta, and the class functions at some training
    rows.
    """
    samples = posterior.samples
    positive = ("noise_variance", "precision", "lengthscale")
    found = {
        name: np.log(samples[name])
        for name in positive
        if name in samples and samples[name].ndim == 2
    }
    n = len(posterior.training_rows)
    rows = np.unique(np.linspace(0, n - 1, min(n, WATCHED_ROWS)).astype(int))
    parts = posterior.evaluate(
        posterior.training_rows[rows],
        probabilities=False,
        points=1,
        # What a basis of low rank does not determine is not in the chains.
        remainder=posterior.remainder and posterior.problem.basis_map is None,
    )
    for part in parts:
        for row, functions in zip(rows[part.rows], part.functions, strict=True):
            # The functions sum to zero, so the last is determined by the others.
            for name, function in zip(classes[:-1], functions[:-1], strict=True):
                found[f"f at training row {row}, class {name}"] = function.reshape(posterior.shape)
    return found


def diagnose(quantities: dict[str, np.ndarray]) -> dict[str, Diagnosis]:
    """Rank-normalised split R-hat and bulk effective sample size of quantities (chain, draw).

    A quantity that never moves is left out, and so is everything if there are too few draws.
    """
    moving = {name: np.asarray(value, np.float64) for name, value in quantities.items()}
    moving = {name: value for name, value in moving.items() if np.ptp(value) > 0}
    if not moving or next(iter(moving.values())).shape[1] < FEWEST_DRAWS:
        return {}
    values = np.stack(list(moving.values()), axis=-1)
    if values.shape[0] == 1:  # R-hat needs two chains: the halves of the one
        half = values.shape[1] // 2
        values = values[0, : 2 * half].reshape(2, half, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = arviz.convert_to_dataset({"x": values})
        r_hats = np.asarray(arviz.rhat(data)["x"])
        sizes = np.asarray(arviz.ess(data)["x"])
    # Chains that stand still in different places have no variance to divide by, up to rounding.
    still = np.all(np.ptp(values, axis=1) == 0, axis=0)
    r_hats = np.where(np.isfinite(r_hats) & ~still, r_hats, np.inf)
    sizes = np.where(np.isfinite(sizes), sizes, 0.0)
    return {
        name: Diagnosis(float(r_hat), float(size))
        for name, r_hat, size in zip(moving, r_hats, sizes, strict=True)
    }


def advice(diagnoses: dict[str, Diagnosis], *, num_warmup: int, num_samples: int) -> str | None:
    """Name the quantity that mixed worst, and a remedy; None if the chains have converged."""
    if num_samples < FEWEST_DRAWS:
        return (
            f"{num_samples} draws of each chain are too few to judge convergence: increase "
            "num_samples to several hundred, or call fit_more"
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
        f"{SMALLEST_ESS:.0f}). To improve this, {' or '.join(remedies)}"
    )


def warn_unless_converged(
    diagnoses: dict[str, Diagnosis], *, num_warmup: int, num_samples: int, stacklevel: int = 3
) -> None:
    """Give the :func:`advice` as a ``ConvergenceWarning``, if there is any."""
    message = advice(diagnoses, num_warmup=num_warmup, num_samples=num_samples)
    if message is not None:
        warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)
