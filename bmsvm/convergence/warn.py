"""What is said of a finished fit: advice, and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from operator import itemgetter

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bmsvm.convergence.checks import Check, basis_checks_of, chain_checks
from bmsvm.convergence.diagnosis import (
    ENOUGH,
    FEWEST_DRAWS,
    SMALLEST_ESS,
    Diagnosis,
    largest_r_hat,
)
from bmsvm.inference.run import Run
from bmsvm.predictive import PredictiveDistribution


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


def warn_of_fit(
    run: Run,
    predictive: PredictiveDistribution,
    diagnoses: Mapping[str, Diagnosis],
    *,
    asked: int,
    basis_by_default: bool,
    stacklevel: int,
) -> None:
    """Warn of a run that ended too early, of a basis that is too small, and of its chains.

    Parameters
    ----------
    run, predictive, diagnoses
        The chains, what is predicted from them, and their :func:`bmsvm.convergence.diagnose`.
    asked
        Draws of each chain that were asked for.
    basis_by_default
        Whether the basis is not the user's own choice, so that its error is worth a warning.
    stacklevel
        As that of ``warnings.warn``.
    """
    below = stacklevel + 1
    if run.interrupted:
        why = "max_time is over" if run.ended == "time" else "interrupted"
        missing = asked - run.num_samples
        warnings.warn(
            f"{why}: {run.num_samples} of at most {asked} draws of each chain were made; the "
            f"model uses them, and fit_more({missing}) makes the rest",
            stacklevel=stacklevel,
        )
    if basis_by_default:
        warn_of_checks(basis_checks_of(predictive), UserWarning, below)
    if run.independent:
        return
    warn_of_checks(chain_checks(run), ConvergenceWarning, below)
    warn_unless_converged(
        diagnoses,
        num_chains=predictive.posterior.shape[0],
        num_warmup=int(run.state.n_warmup),
        num_samples=run.num_samples,
        stacklevel=below,
    )
