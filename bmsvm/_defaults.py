"""What the settings of the classifier mean where they say "auto" or None.

Pure functions of the settings and of the number of rows. What ``sampler="auto"`` means is
:func:`bmsvm.inference.samplers.as_sampler`; the names of the other choices stand for objects in
the modules of these objects.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from bmsvm._inputs import is_precomputed
from bmsvm._predicting import as_predictive
from bmsvm._validation import check_choice
from bmsvm.inference.samplers import Table, as_sampler
from bmsvm.kernels.functions import Gaussian, Kernel, Parametric, Stationary, as_kernel
from bmsvm.kernels.low_rank import Approximation, Fourier, Nystrom
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.models.problem import Problem
from bmsvm.models.theta import Sampled, is_sampled
from bmsvm.prediction.squares import PRECISIONS
from bmsvm.selection import Method, ModeCV, SquaresCV, as_method

__all__ = [
    "Settings",
    "approximation_of",
    "calibrates",
    "draws_independently",
    "hyperparameters_of",
    "lengthscale_of",
    "method_of",
    "rows_to_choose_by",
    "settings_of",
    "warmup_of",
]

SELECTION_ROWS = 1024
"""Rows by which a lengthscale is chosen if the Gram matrix is of low rank."""

WARMUP = 150
"""Default number of warm-up sweeps."""

WARMUP_IF_TAU_KNOWN = 75
"""The same if tau was chosen with the lengthscale, which leaves less to be tuned."""

CHAIN_SIZE = 2_000_000
"""Largest n^2 (c - 1) for which ``likelihood="auto"`` runs chains of (21): the products of one
gradient. Of more rows or classes, the closed form and a mode predict nearly as well in a fraction
of the time (docs/benchmarks.md).
"""

EXACT_ROWS = 2000
"""Rows up to which ``approximation="auto"`` is exact."""

BASIS_SIZE = 2**24
"""Size of a basis that may have more columns than the default of :class:`Nystrom`."""

LARGEST_RANK = 1536
"""Largest number of columns of such a basis."""

SMALL_TOLERANCE = 0.01 * float(PRECISIONS.min())
"""Tolerance of such a basis for least squares: what it leaves of k(x, x) is to be small beside the
smallest tau. With 0.01 there are too few columns where the lengthscale is long."""


@dataclass(frozen=True)
class Settings:
    """The parameters of :class:`bmsvm.BMSVMClassifier` that have defaults of this kind.

    The likelihood is never ``"auto"`` here; nor is the kernel, which is Gaussian until another is
    chosen.
    """

    likelihood: str
    coupling: str
    kernel: Kernel
    lengthscale: Any
    hyperparameters: Hyperparameters | None
    approximation: Any
    sampler: Any
    num_warmup: int | None
    predictive: Any


def settings_of(classifier: Any, n_rows: int, n_classes: int) -> Settings:
    """Return the settings of a classifier for so many rows and classes."""
    given = Settings(**{each.name: getattr(classifier, each.name) for each in fields(Settings)})
    given = replace(given, kernel=Gaussian() if _is_auto(given.kernel) else as_kernel(given.kernel))
    if given.likelihood != "auto":
        return given
    squares = n_rows**2 * (n_classes - 1) > CHAIN_SIZE and _suits_squares(given)
    return replace(given, likelihood="squared" if squares else "normalized")


def _suits_squares(settings: Settings) -> bool:
    """Whether nothing was said that needs chains of (21)."""
    theta = settings.lengthscale
    return (
        _is_auto(settings.sampler)
        and settings.hyperparameters is None
        and settings.coupling == "sum_to_zero"
        and (_is_auto(theta) or (as_method(theta) is None and not is_sampled(theta)))
        and not isinstance(settings.kernel, Parametric)
        and as_predictive(settings.predictive).decision == "probability"
    )


def hyperparameters_of(settings: Settings) -> Hyperparameters:
    """Return the hyperparameters as given, or the default ones."""
    return DEFAULT if settings.hyperparameters is None else settings.hyperparameters


# The lengthscale ------------------------------------------------------------------------------


def lengthscale_of(settings: Settings) -> Any:
    """Return the lengthscale as given, or the default of this model."""
    if not _is_auto(settings.lengthscale):
        return settings.lengthscale
    if not isinstance(settings.kernel, Stationary):
        return None
    if _is_closed_form(settings):
        return SquaresCV()
    plain = (settings.likelihood, settings.coupling) == ("normalized", "sum_to_zero")
    return ModeCV() if plain and settings.hyperparameters is None else SquaresCV()


def method_of(settings: Settings) -> Method | None:
    """Return how the lengthscale is chosen from the data; None if it is given or sampled."""
    return as_method(lengthscale_of(settings))


def rows_to_choose_by(method: Method) -> int:
    """Return how many rows choose the lengthscale if the Gram matrix is of low rank."""
    return getattr(method, "max_rows", None) or SELECTION_ROWS


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_closed_form(settings: Settings) -> bool:
    """Whether the posterior given theta, tau and sigma2 is known."""
    return (settings.likelihood, settings.coupling) == ("squared", "sum_to_zero")


# The Gram matrix ------------------------------------------------------------------------------


def approximation_of(settings: Settings, n_rows: int) -> Approximation | None:
    """Return how the Gram matrix of so many rows is approximated; None if it is exact."""
    how = settings.approximation
    if not isinstance(how, Approximation):
        check_choice("approximation", how, ("auto", "exact", "nystrom", "fourier"))
        if how == "exact" or (how == "auto" and not _suits_low_rank(settings, n_rows)):
            return None
        largest = max(Nystrom.max_rank, min(LARGEST_RANK, BASIS_SIZE // n_rows))
        tolerance = SMALL_TOLERANCE if _is_closed_form(settings) else Nystrom.tolerance
        how = Fourier() if how == "fourier" else Nystrom(tolerance=tolerance, max_rank=largest)
    light = how.dtype is None and draws_independently(settings)
    return replace(how, dtype="float32") if light else how


def _suits_low_rank(settings: Settings, n_rows: int) -> bool:
    """Whether ``approximation="auto"`` is a Gram matrix of low rank."""
    theta = lengthscale_of(settings)
    on_given_grid = isinstance(theta, Sampled) and theta.given_grid is not None
    return (
        n_rows > EXACT_ROWS
        and settings.coupling == "sum_to_zero"
        and not is_precomputed(settings.kernel)
        and not isinstance(settings.kernel, Parametric)
        and (on_given_grid or not is_sampled(theta))
    )


# Chains and predictions -----------------------------------------------------------------------


def warmup_of(settings: Settings, *, low_rank: bool) -> int:
    """Return the number of warm-up sweeps."""
    if settings.num_warmup is not None:
        return settings.num_warmup
    tau_known = isinstance(as_method(lengthscale_of(settings)), ModeCV) and not low_rank
    return WARMUP_IF_TAU_KNOWN if tau_known else WARMUP


def draws_independently(settings: Settings) -> bool:
    """Whether draws are independent, from a table of the posterior, and there are no chains."""
    likelihood, coupling = settings.likelihood, settings.coupling
    sampler = as_sampler(settings.sampler, likelihood=likelihood, coupling=coupling)
    return isinstance(sampler, Table)


def calibrates(settings: Settings, problem: Problem) -> bool:
    """Whether the draws of a problem are calibrated."""
    wanted = as_predictive(settings.predictive).calibrate
    possible = problem.coupling == "sum_to_zero" and problem.family is None
    return possible if wanted is None else wanted
