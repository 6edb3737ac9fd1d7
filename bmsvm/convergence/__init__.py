"""Convergence of a fit: R-hat, effective sample size, other checks, and advice if one fails."""

from bmsvm.convergence.checks import (
    BASIS_ERROR,
    Check,
    basis_checks,
    checks_of,
    sampler_checks,
    theta_checks,
)
from bmsvm.convergence.diagnosis import (
    SMALLEST_ESS,
    Diagnosis,
    diagnose,
    enough_draws,
    largest_r_hat,
)
from bmsvm.convergence.warn import advice, warn_of_checks, warn_of_fit, warn_unless_converged
from bmsvm.convergence.watched import Watched, watch

__all__ = [
    "BASIS_ERROR",
    "SMALLEST_ESS",
    "Check",
    "Diagnosis",
    "Watched",
    "advice",
    "basis_checks",
    "checks_of",
    "diagnose",
    "enough_draws",
    "largest_r_hat",
    "sampler_checks",
    "theta_checks",
    "warn_of_checks",
    "warn_of_fit",
    "warn_unless_converged",
    "watch",
]
