"""The steps of a fit, as functions of a plan and data: choose, prepare, sample, calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bmsvm._arrays import key_of
from bmsvm._arviz import load_arviz
from bmsvm._defaults import (
    Settings,
    approximation_of,
    calibrates,
    hyperparameters_of,
    lengthscale_of,
    method_of,
    rows_to_choose_by,
    settings_of,
    warmup_of,
)
from bmsvm._predicting import as_predictive
from bmsvm._threads import few_blas_threads
from bmsvm.convergence import enough_draws
from bmsvm.inference.ahead import Ahead, compile_chains
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.run import Run, run_chains
from bmsvm.inference.samplers import Paper, as_sampler
from bmsvm.kernels.functions import Kernel, median_distance
from bmsvm.kernels.low_rank import Approximation
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.models.prepare import as_lengthscale, prepare
from bmsvm.models.problem import Problem
from bmsvm.posterior import Posterior
from bmsvm.predictive import PredictiveDistribution
from bmsvm.selection import Selection
from bmsvm.selection.base import representative_rows


class Data(NamedTuple):
    """Rows (n, p) as the kernel sees them, labels (n,) and weights (n,)."""

    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Plan:
    """What a fit does with so many rows and classes.

    settings
        The classifier's settings. The kernel is the chosen one, as soon as it is chosen.
    kernel
        The kernel as it was given, which may be ``"auto"``.
    pools
        Whether calibrated predictions are pooled with those of least squares.
    low_rank
        How the Gram matrix is approximated; None if it is exact.
    num_chains, num_samples
        Number of chains, and largest number of draws of each.
    seed
        Seed of all that is random.
    selection
        What was chosen from the data; None if nothing was, or not yet.
    """

    settings: Settings
    kernel: Any
    pools: bool
    low_rank: Approximation | None
    num_chains: int
    num_samples: int
    seed: int
    selection: Selection | None = None

    @property
    def lengthscale(self) -> Any:
        """theta, chosen or given; or how it is sampled."""
        found = self.selection
        return lengthscale_of(self.settings) if found is None else found.lengthscale

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The priors, chosen or given."""
        if self.selection is None or self.low_rank is not None:  # its sampler needs tau free
            return hyperparameters_of(self.settings)
        return self.selection.hyperparameters

    @property
    def as_printed(self) -> bool:
        """Whether the sampler is the paper's."""
        return isinstance(as_sampler(self.settings.sampler), Paper)

    def with_selection(self, selection: Selection | None) -> Plan:
        """Return the plan with what was chosen."""
        if selection is None:
            return self
        settings = replace(self.settings, kernel=selection.kernel)
        return replace(self, settings=settings, selection=selection)


def plan_of(classifier: Any, n_rows: int, n_classes: int) -> Plan:
    """Return the plan for a classifier that has its ``seed_``."""
    settings = settings_of(classifier, n_rows, n_classes)
    squares = as_predictive(settings.predictive).squares
    return Plan(
        settings=settings,
        kernel=classifier.kernel,
        pools=squares and classifier.likelihood in ("auto", "normalized"),
        low_rank=approximation_of(settings, n_rows),
        num_chains=classifier.num_chains,
        num_samples=classifier.num_samples,
        seed=classifier.seed_,
    )


def begin_ahead(plan: Plan, data: Data, *, spare_rows: int) -> Ahead:
    """Compile the chains if their shapes are known, else load ArviZ, in a second thread."""
    settings, no_chains = plan.settings, plan.settings.likelihood == "squared"
    if method_of(settings) is None or plan.low_rank is not None or no_chains:
        return Ahead(load_arviz)

    def compile_at_median() -> None:
        theta = median_distance(data.rows, settings.kernel)
        found = Selection(settings.kernel, theta, hyperparameters_of(settings), len(data.rows))
        problem = problem_of(plan.with_selection(found), data, spare_rows=spare_rows, warn=False)
        compile_chains(BMSVMGibbs(sampler=settings.sampler), problem, plan.num_chains)

    return Ahead(compile_at_median)


def choose(plan: Plan, data: Data) -> Selection | None:
    """Choose kernel and lengthscale from the data, if they are to be chosen."""
    (rows, labels, weights), settings = data, plan.settings
    method = method_of(settings)
    if method is None:
        return None
    if plan.low_rank is not None:  # all rows would be too many
        count = rows_to_choose_by(method)
        if count < len(labels):
            chosen = representative_rows(labels, count, np.random.default_rng(0))
            rows, labels, weights = rows[chosen], labels[chosen], weights[chosen]
    with few_blas_threads(len(labels)):
        return method.select(
            rows,
            labels,
            rng_key=key_of(plan.seed),
            kernel=plan.kernel,
            coupling=settings.coupling,
            likelihood=settings.likelihood,
            hyperparameters=hyperparameters_of(settings),
            row_weights=weights,
        )


def problem_of(plan: Plan, data: Data, *, spare_rows: int, warn: bool = True) -> Problem:
    """Factor the Gram matrix at the lengthscale that was given or chosen."""
    settings = plan.settings
    problem = prepare(
        data.rows,
        data.labels,
        kernel=settings.kernel,
        lengthscale=plan.lengthscale,
        coupling=settings.coupling,
        likelihood=settings.likelihood,
        hyperparameters=plan.hyperparameters,
        approximation=plan.low_rank,
        row_weights=data.weights,
        spare_rows=spare_rows,
        warn=warn,
    )
    if problem.family is not None and as_predictive(settings.predictive).calibrate:
        raise ValueError(
            'predictive="calibrated" needs kernel parameters that are fixed or on a grid; they '
            'are sampled off a grid here: use predictive="posterior"'
        )
    return problem


def sample(
    plan: Plan, problem: Problem, classes: np.ndarray, *, store: Any, max_time: float | None
) -> Run:
    """Run the chains until their draws are enough; the paper's make all their draws."""

    def enough(samples: Mapping[str, np.ndarray]) -> bool:
        n_rows = int(np.sum(np.asarray(problem.row_weights) > 0))
        return enough_draws(samples, problem, n_rows, classes)

    Ahead(load_arviz)  # while chains run
    return quietly(
        run_chains,
        BMSVMGibbs(sampler=plan.settings.sampler),
        key_of(plan.seed),
        problem,
        num_warmup=warmup_of(plan.settings, low_rank=problem.basis_map is not None),
        num_samples=plan.num_samples,
        num_chains=plan.num_chains,
        store=store,
        enough=None if plan.as_printed else enough,
        max_time=max_time,
    ).loaded()


def quietly(run: Callable[..., Run], *args: Any, **kwargs: Any) -> Run:
    """Run chains without their warning of an interruption: the classifier gives its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="interrupted: ", category=UserWarning)
        return run(*args, **kwargs)


def posterior_of(plan: Plan, run: Run, rows: np.ndarray) -> Posterior:
    """Build the posterior from finished chains of rows (n, p)."""
    settings, sampled = plan.settings, "lengthscale" in run.samples
    return Posterior(
        run.samples,
        run.problem,
        rows,
        settings.kernel,
        None if sampled else as_lengthscale(plan.lengthscale, settings.kernel),
        remainder=as_predictive(settings.predictive).remainder,
        seed=plan.seed,
    )


def calibrated(plan: Plan, posterior: Posterior, *, stacklevel: int) -> PredictiveDistribution:
    """Calibrate the posterior, if the model allows it and the user does not interrupt."""
    plain = PredictiveDistribution(posterior)
    if not calibrates(plan.settings, posterior.problem):
        return plain
    try:
        return plain.calibrated(squares=_pooled(plan, posterior))
    except KeyboardInterrupt:
        warnings.warn(
            "interrupted while the probabilities were calibrated: the model has all its draws, "
            "and predicts with them as they are; fit_more(1) makes one more draw of each chain "
            "and calibrates",
            stacklevel=stacklevel,
        )
        return plain


def _pooled(plan: Plan, posterior: Posterior) -> tuple[tuple[Kernel, Any], ...]:
    """Return kernels and lengthscales of the least squares that are pooled with the posterior."""
    kernel, found, problem = plan.settings.kernel, plan.selection, posterior.problem
    if not plan.pools:
        return ()
    if found is not None and problem.likelihood == "normalized" and not problem.basis_map:
        return found.pairs or ((kernel, None),)
    return ((kernel, posterior.lengthscale),)
