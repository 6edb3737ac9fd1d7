"""A fitted model in a few numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bmsvm.convergence import FEWEST_DRAWS, LARGEST_R_HAT, SMALLEST_ESS
from bmsvm.kernels.functions import as_kernel
from bmsvm.models.theta import nearest_on_grid

__all__ = ["Lengthscale", "Summary", "Worst", "summarise_model"]


class Worst(NamedTuple):
    """The quantity that is worst by some measure."""

    name: str
    value: float


class Lengthscale(NamedTuple):
    """Posterior of theta.

    median, lower, upper
        Median and ends of the central 90% interval.
    values, shares
        Values that theta could take, and the share of the draws at each.
    """

    median: float
    lower: float
    upper: float
    values: np.ndarray
    shares: np.ndarray


class Summary(NamedTuple):
    """What is to be said of a fitted model.

    model
        Likelihood, coupling, kernel and sampler, by name.
    classes
        Each class and its number of training rows.
    num_rows, num_features
        Training rows of positive weight, and their features.
    num_chains, num_warmup, num_samples, thinning
        Chains, and sweeps and draws of each.
    seconds
        Time the chains took.
    interrupted
        Whether fewer draws were made than asked for.
    r_hat, ess
        The largest R-hat and the smallest effective sample size of what is watched; None if there
        were too few draws to tell.
    lengthscale
        Posterior of theta, the value that it was fixed at, or None where the kernel has none.
    """

    model: dict[str, str]
    classes: tuple[tuple[Any, int], ...]
    num_rows: int
    num_features: int
    num_chains: int
    num_warmup: int
    num_samples: int
    thinning: int
    seconds: float
    interrupted: bool
    r_hat: Worst | None
    ess: Worst | None
    lengthscale: Lengthscale | np.ndarray | None

    @property
    def converged(self) -> bool | None:
        """Whether the chains have converged; None if there were too few draws to tell."""
        if self.r_hat is None or self.ess is None:
            return None
        return self.r_hat.value <= LARGEST_R_HAT and self.ess.value >= SMALLEST_ESS

    @property
    def verdict(self) -> str:
        """Whether the chains have converged, in words."""
        if self.converged is None:
            return "too few draws to judge whether the chains have converged"
        return f"the chains have {'' if self.converged else 'not '}converged"

    @property
    def sampling(self) -> str:
        """The chains in words."""
        thinned = f", {self.thinning} sweeps each" if self.thinning > 1 else ""
        stopped = ", interrupted" if self.interrupted else ""
        return (
            f"{_counted(self.num_chains, 'chain')} of {_counted(self.num_samples, 'draw')}"
            f"{thinned} after {_counted(self.num_warmup, 'sweep')} of warm-up, "
            f"{self.seconds:.1f} s{stopped}"
        )

    @property
    def lengthscale_text(self) -> str | None:
        """The lengthscale in words."""
        theta = self.lengthscale
        if theta is None:
            return None
        if isinstance(theta, Lengthscale):
            return f"{theta.median:.3g}, 90% between {theta.lower:.3g} and {theta.upper:.3g}"
        return ", ".join(f"{value:.3g}" for value in np.atleast_1d(theta)[:10]) + (
            ", …" if theta.size > 10 else ""
        )


def summarise_model(model: Any) -> Summary:
    """Summarise a fitted :class:`bmsvm.BMSVMClassifier`."""
    run, posterior, problem = model.run_, model.posterior_, model.posterior_.problem
    n = len(posterior.training_rows)  # the problem may have spare rows beyond these
    counts = np.bincount(np.asarray(problem.labels)[:n], minlength=problem.n_classes)
    chains, draws = posterior.shape
    found = model.diagnostics_
    judged = bool(found) and draws >= FEWEST_DRAWS
    worst = max(found, key=lambda name: found[name].r_hat) if judged else None
    least = min(found, key=lambda name: found[name].ess) if judged else None
    return Summary(
        model={
            "likelihood": problem.likelihood,
            "coupling": problem.coupling,
            "kernel": str(as_kernel(model.kernel)),
            "sampler": str(run.kernel.sampler_of(problem)),
        },
        classes=tuple(zip(model.classes_.tolist(), counts.tolist(), strict=True)),
        num_rows=n,
        num_features=model.n_features_in_,
        num_chains=chains,
        num_warmup=int(run.state.n_warmup),
        num_samples=draws,
        thinning=int(run.thinning),
        seconds=run.seconds,
        interrupted=run.interrupted,
        r_hat=None if worst is None else Worst(worst, found[worst].r_hat),
        ess=None if least is None else Worst(least, found[least].ess),
        lengthscale=_lengthscale(model),
    )


def _lengthscale(model: Any) -> Lengthscale | np.ndarray | None:
    draws, grid = model.posterior_.samples.get("lengthscale"), model.posterior_.problem.grid
    if draws is None or grid is None:
        fixed = model.lengthscale_
        return None if fixed is None else np.asarray(fixed, np.float64)
    values = np.asarray(grid.values)
    indices = nearest_on_grid(np.asarray(draws), values)
    shares = np.bincount(indices.ravel(), minlength=len(values)) / draws.size
    lower, median, upper = np.quantile(draws, (0.05, 0.5, 0.95))
    return Lengthscale(float(median), float(lower), float(upper), values, shares)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
