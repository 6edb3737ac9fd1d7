"""Single fits of the experiments: every call into the package's models and samplers is here."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import split_gelman_rubin

from bmsvm import (
    PAPER,
    AltMSVM,
    BMSVMClassifier,
    BMSVMGibbs,
    LowRank,
    MSVMClassifier,
    OneVsRestSVC,
    Problem,
    prepare,
    run_chains,
)
from bmsvm.inference import Run
from bmsvm.inference.posterior import posterior_of
from bmsvm.inference.run import values_of
from bmsvm.kernels import Factor
from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import latent
from bmsvm.models.kernel_parameters import Design, masked_design
from bmsvm.models.likelihoods import exclusion_probabilities
from reproduction.all_rows import all_rows_blocks, all_rows_problem
from reproduction.protocol import standardized
from reproduction.simulate import LIVELY

__all__ = [
    "MACHINES",
    "POSTERIORS",
    "Configuration",
    "Fit",
    "calibration_draws",
    "calibration_problem",
    "fit_all_rows",
    "fit_machine",
    "fit_posterior",
    "tune_machine",
]

# Table 1 -------------------------------------------------------------------------------------

PAPER_CHAIN: dict[str, Any] = {
    "num_chains": 1,
    "num_warmup": 5000,
    "num_samples": 500,
    "thinning": 10,
}
"""M1 = 10,000 sweeps, the first M2 = 5,000 dropped, every M = 10th kept."""

OWN_CHAINS = {
    "num_chains": 4,
    "num_warmup": 300,
    "num_samples": 150,
    "thinning": 2,
    "calibration": None,
}
"""The package's own sampler, which needs fewer sweeps; posterior means as they are."""

QUICK_CHAIN: dict[str, Any] = {
    "num_chains": 1,
    "num_warmup": 200,
    "num_samples": 100,
    "thinning": 1,
}

POSTERIORS: dict[str, dict[str, Any]] = {
    "bmsvm": {
        "preset": "paper",
        "coupling": "independent",
        "likelihood": "hinge",
        "decision": "paper",
        "hyperparameters": PAPER,
        **PAPER_CHAIN,
    },
    "sum_to_zero": {
        "likelihood": "hinge",
        "decision": "paper",
        "hyperparameters": PAPER,
        **OWN_CHAINS,
    },
    "normalized": {"hyperparameters": PAPER, **OWN_CHAINS},
    "default": {},
    "evidence": {"lengthscale": "marginal-likelihood"},
    "per_feature": {
        "lengthscale": "marginal-likelihood",
        "lengthscale_options": {"per_feature": True, "num_steps": 120, "step_size": 0.15},
    },
}
"""Arguments of the classifier, by row of the table."""

MACHINES: dict[str, Any] = {"msvm": MSVMClassifier, "ovr": OneVsRestSVC, "altmsvm": AltMSVM}
TUNING = {
    "gamma": "cv",
    "lengthscale": "cv",
    "gamma_grid": np.geomspace(1e-3, 10, 5),
    "lengthscale_grid": np.geomspace(1.75, 14, 4),
    "folds": 5,
}
"""Five folds; the grid of theta has the paper's 3.5."""


class Fit(NamedTuple):
    """Predictions of one fit.

    classes
        Predicted classes, shape (m,).
    probabilities
        Class probabilities, shape (m, c); None for a machine.
    numbers
        Diagnostics, and what was chosen.
    """

    classes: np.ndarray
    probabilities: np.ndarray | None
    numbers: dict[str, Any]


def fit_posterior(
    row: str,
    rows: np.ndarray,
    labels: np.ndarray,
    new: np.ndarray,
    *,
    theta: float | str | None = None,
    quick: bool = False,
) -> Fit:
    """Fit the classifier of a row of the table to rows (n, p), and predict new ones (m, p).

    ``theta`` is a lengthscale or ``"sample"``; None to leave it to the classifier.
    """
    settings = {**POSTERIORS[row], **(QUICK_CHAIN if quick else {})}
    if theta is not None:
        settings["lengthscale"] = theta
    model = BMSVMClassifier(random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # R-hat is recorded
        model.fit(rows, labels)
    _check_complete(model.run_)
    r_hat = max(each.r_hat for each in model.diagnostics_.values())
    numbers = _numbers(model.run_, r_hat, np.asarray(model.lengthscale_))
    return Fit(model.predict(new), model.predict_proba(new), numbers)


def fit_all_rows(
    rows: np.ndarray,
    labels: np.ndarray,
    new: np.ndarray,
    *,
    theta: Any,
    quick: bool = False,
) -> Fit:
    """Run the sweep over all rows on rows (n, p), and predict new ones (m, p) by eq. (20)."""
    inside, outside = standardized(rows), standardized(new, rows)
    sampled = isinstance(theta, str)
    blocks = all_rows_blocks(sample_theta=sampled)
    with jax.enable_x64(True):
        run = run_chains(
            BMSVMGibbs(lengthscale=theta, coupling="independent", blocks=blocks),
            jax.random.key(0),
            all_rows_problem(inside, labels, theta),
            collect=_sites(sampled),
            progress_bar=False,
            **(QUICK_CHAIN if quick else PAPER_CHAIN),
        )
    _check_complete(run)
    posterior = posterior_of(
        run.samples, run.state.problem, inside, lengthscale=1.0 if sampled else theta
    )
    parts = list(posterior.evaluate(outside))
    exclusion = np.concatenate(
        [exclusion_probabilities(part.functions, axis=1).mean(-1) for part in parts]
    )
    chances = np.concatenate([part.probabilities.mean(-1) for part in parts])
    scales = np.stack([run.samples[name] for name in ("noise_variance", "precision")])
    r_hat = max(float(split_gelman_rubin(np.log(each))) for each in scales)
    chosen = np.median(run.samples["lengthscale"]) if sampled else np.asarray(theta)
    return Fit(exclusion.argmin(axis=1), chances, _numbers(run, r_hat, chosen))


def tune_machine(row: str, rows: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Gamma and theta of a machine by cross-validation on rows (n, p)."""
    machine = MACHINES[row](random_state=0, **TUNING).fit(rows, labels)
    return {"gamma": float(machine.gamma_), "lengthscale": float(machine.lengthscale_)}


def fit_machine(
    row: str,
    rows: np.ndarray,
    labels: np.ndarray,
    new: np.ndarray,
    tuned: Mapping[str, float],
) -> Fit:
    """Fit a machine with given gamma and theta to rows (n, p), and predict new ones (m, p)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the duality gap is recorded
        machine = MACHINES[row](random_state=0, **tuned).fit(rows, labels)
    numbers = {"duality_gap": float(machine.duality_gap_), **tuned}
    return Fit(machine.predict(new), None, numbers)


def _check_complete(run: Run) -> None:
    """Pass on an interruption: chains that were cut short are no result."""
    if run.interrupted:
        raise KeyboardInterrupt


def _numbers(run: Run, r_hat: float, theta: np.ndarray) -> dict[str, Any]:
    """R-hat, theta, and the median of sigma2 in the first and the last tenth of the draws."""
    noise = run.samples["noise_variance"]
    tenth = max(noise.shape[1] // 10, 1)
    return {
        "r_hat": float(r_hat),
        "lengthscale": theta.tolist(),
        "noise_variance_first_tenth": float(np.median(noise[:, :tenth])),
        "noise_variance_last_tenth": float(np.median(noise[:, -tenth:])),
    }


def _sites(sampled: bool) -> tuple[str, ...]:
    """Sites that the posterior at new rows needs."""
    sites = ("weights", "intercept", "noise_variance", "precision")
    return (*sites, "lengthscale") if sampled else sites


# Simulation-based calibration ----------------------------------------------------------------

N_ROWS, N_CLASSES = 8, 3
ROWS = np.random.default_rng(1).normal(size=(N_ROWS, 2))
THETA = 1.5
THETAS = np.geomspace(0.5, 4.0, 5)
RANK = 3
"""Columns of a factor of low rank."""


class Configuration(NamedTuple):
    """A model and a sampler.

    theta
        ``"fixed"`` or ``"sampled"``, on a grid.
    factor
        ``"exact"``; ``"truncated"``: the leading columns of the factor, as of a singular Gram
        matrix of many rows; or a kind of :class:`bmsvm.LowRank`.
    preset
        Of the sampler; ``"large"`` has a model of its own, see :mod:`reproduction.simulate`.
    """

    likelihood: str
    coupling: str
    theta: str
    factor: str
    preset: str = "default"

    @property
    def name(self) -> str:
        """All of it in one word."""
        return "-".join(self)


@functools.cache
def _sampler(configuration: Configuration) -> BMSVMGibbs:
    return BMSVMGibbs(
        lengthscale="sample" if configuration.theta == "sampled" else THETA,
        likelihood=configuration.likelihood,
        preset=configuration.preset,
    )


def calibration_problem(configuration: Configuration, labels: np.ndarray) -> Problem:
    """Return the model of a configuration with labels (n,), among which every class occurs."""
    sampled = configuration.theta == "sampled"
    low_rank = configuration.factor not in ("exact", "truncated")
    problem = prepare(
        ROWS,
        labels,
        lengthscale="sample" if sampled else THETA,
        lengthscale_grid=THETAS if sampled else None,
        coupling=configuration.coupling,
        likelihood=configuration.likelihood,
        hyperparameters=LIVELY,
        features=LowRank(configuration.factor, rank=RANK) if low_rank else None,
    )
    if configuration.factor == "truncated":
        problem = _truncated(problem, RANK)
    return _sampler(configuration).prepare(problem)


def _truncated(problem: Problem, rank: int) -> Problem:
    """Keep the leading columns of every factor."""
    labels = np.asarray(problem.labels)

    def leading(factor: Factor) -> tuple[Factor, Design | None]:
        cut = Factor(factor.basis[..., :rank], factor.eigenvalues[..., :rank])
        if problem.coupling != "independent":
            return cut, None
        return cut, masked_design(cut, labels, problem.n_classes)

    factor, masked = leading(problem.factor)
    grid = problem.grid
    if grid is not None:
        each = [leading(Factor(*one)) for one in zip(*grid.factors, strict=True)]
        factors, designs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        grid = grid._replace(factors=factors, masked=designs)
    return replace(problem, factor=factor, masked=masked, grid=grid)


def calibration_draws(
    configuration: Configuration,
    keys: jax.Array,
    problems: Sequence[Problem],
    *,
    warmup: int,
    draws: int,
    thinning: int,
) -> dict[str, np.ndarray]:
    """Run one chain on each of N problems of one shape.

    Returns
    -------
    dict
        Draws (N, s, ...) of the parameters, of the scores (n, c) and of the functions (n, c).
    """
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *problems)
    found = _chains(
        keys,
        stacked,
        jnp.asarray(warmup),
        jnp.asarray(thinning),
        sampler=_sampler(configuration),
        draws=draws,
    )
    return jax.tree.map(np.asarray, found)


@functools.partial(jax.jit, static_argnames=("sampler", "draws"))
def _chains(keys, problems, warmup, thinning, *, sampler: BMSVMGibbs, draws: int):
    """Chains in one program: calls of ``run_chains`` took two to six times as long (3 models)."""

    def sweep(_, state):
        return sampler.sample(state, (), {})

    def one(key, problem):
        def draw(state, _):
            state = jax.lax.fori_loop(0, thinning, sweep, state)
            here = problem.at(state.position.kernel)
            sites = values_of(state, ("scores", *_sites(problem.grid is not None)))
            inside = latent(jnp.zeros(()), sites.pop("weights"), here)
            functions = sites["intercept"] + class_vector(inside, here.coupling)
            return state, {**sites, "functions": functions}

        state = sampler.init(key, warmup, None, (problem,), {})
        state = jax.lax.fori_loop(0, warmup, sweep, state)
        return jax.lax.scan(draw, state, length=draws)[1]

    return jax.vmap(one)(keys, problems)
