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
from sklearn.model_selection import StratifiedKFold

from bmsvm import (
    HMC,
    PAPER,
    AltMSVM,
    BMSVMClassifier,
    BMSVMGibbs,
    Fourier,
    MSVMClassifier,
    Nystrom,
    OneVsRestSVC,
    Paper,
    Posterior,
    Predictive,
    Problem,
    Sampled,
    prepare,
    run_chains,
)
from bmsvm.convergence import diagnose
from bmsvm.inference import Blocks, Run
from bmsvm.inference.adaptation import Phase
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.table import PosteriorTable
from bmsvm.kernels import Factor
from bmsvm.machines import Grid
from bmsvm.models.couplings import class_vector, contrast
from bmsvm.models.hierarchy import latent
from bmsvm.models.theta import Design, masked_design, nearest_on_grid
from reproduction.all_rows import all_rows_blocks, all_rows_problem
from reproduction.protocol import standardized
from reproduction.simulate import COMPACT, LIVELY

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

OWN_CHAINS: dict[str, Any] = {
    "hyperparameters": PAPER,
    "sampler": HMC(thinning=2),
    "num_warmup": 300,
    "num_samples": 150,
    "standardize": "standard",
}
"""The package's own sampler, which needs fewer sweeps, under the paper's priors and scaling."""

QUICK_CHAIN: dict[str, Any] = {"num_chains": 1, "num_warmup": 200, "num_samples": 100}

POSTERIORS: dict[str, dict[str, Any]] = {
    "sum_to_zero": {
        "likelihood": "hinge",
        "predictive": Predictive(calibrate=False, decision="exclusion"),
        **OWN_CHAINS,
    },
    "normalized": {"predictive": "posterior", **OWN_CHAINS},
    "default": {},
    "squares_cv": {"lengthscale": "squares-cv"},
}
"""Arguments of the classifier, by row of the table; the row ``bmsvm`` is the paper's."""

MACHINES: dict[str, Any] = {"msvm": MSVMClassifier, "ovr": OneVsRestSVC, "altmsvm": AltMSVM}
TUNING = Grid(
    gamma=np.geomspace(1e-3, 10, 5),
    lengthscale=np.geomspace(1.75, 14, 4),
    folds=StratifiedKFold(5, shuffle=True, random_state=0),
)
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
    settings: dict[str, Any] = {} if theta is None else {"lengthscale": theta}
    if quick:
        settings.update(QUICK_CHAIN)
    if row == "bmsvm":
        if quick:
            settings["sampler"] = Paper(thinning=1)
        model = BMSVMClassifier.paper(random_state=0, **settings)
    else:
        model = BMSVMClassifier(random_state=0, **{**POSTERIORS[row], **settings})
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
    paper = BMSVMClassifier.paper()
    blocks = all_rows_blocks(sample_theta=sampled)
    sweep = Blocks(sweep=blocks, thinning=Paper.thinning)
    lengths: Any = {"num_warmup": paper.num_warmup, "num_samples": paper.num_samples}
    if quick:
        sweep = replace(sweep, thinning=1)
        lengths = {name: QUICK_CHAIN[name] for name in lengths}
    with jax.enable_x64(True):
        run = run_chains(
            BMSVMGibbs(sampler=sweep),
            jax.random.key(0),
            all_rows_problem(inside, labels, theta),
            num_chains=1,
            collect=_sites(sampled),
            **lengths,
        )
    _check_complete(run)
    posterior = Posterior(
        run.samples, run.problem, inside, lengthscale=None if sampled else theta, remainder=False
    )
    scales = {name: np.log(run.samples[name]) for name in ("noise_variance", "precision")}
    r_hat = max(each.r_hat for each in diagnose(scales).values())
    chosen = np.median(run.samples["lengthscale"]) if sampled else np.asarray(theta)
    exclusion, chances = posterior.exclusion(outside), posterior.probabilities(outside)
    return Fit(exclusion.argmin(axis=1), chances, _numbers(run, r_hat, chosen))


def tune_machine(row: str, rows: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Gamma and theta of a machine by cross-validation on rows (n, p)."""
    machine = MACHINES[row](gamma="cv", lengthscale="cv", grid=TUNING).fit(rows, labels)
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
        machine = MACHINES[row](**tuned).fit(rows, labels)
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

N_CLASSES = 3
ROWS = np.random.default_rng(1).normal(size=(8, 2))
FEW_ROWS = 5
"""Rows under ``squared``: all c^n labels are looked at."""
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
        matrix of many rows; ``"nystrom"`` or ``"fourier"``.
    sampler
        ``"hmc"``; or ``"table"`` under ``squared``.
    """

    likelihood: str
    coupling: str
    theta: str
    factor: str
    sampler: str = "hmc"

    @property
    def name(self) -> str:
        """All of it in one word."""
        return "-".join(self)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return FEW_ROWS if self.likelihood == "squared" else len(ROWS)


APPROXIMATIONS = {"nystrom": Nystrom(rank=RANK), "fourier": Fourier(rank=RANK)}


def calibration_problem(configuration: Configuration, labels: np.ndarray) -> Problem:
    """Return the model of a configuration with labels (n,), among which every class occurs."""
    problem = prepare(
        ROWS[: configuration.n_rows],
        labels,
        lengthscale=Sampled(grid=THETAS) if configuration.theta == "sampled" else THETA,
        coupling=configuration.coupling,
        likelihood=configuration.likelihood,
        hyperparameters=COMPACT if configuration.likelihood == "squared" else LIVELY,
        approximation=APPROXIMATIONS.get(configuration.factor),
    )
    return _truncated(problem, RANK) if configuration.factor == "truncated" else problem


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
    if configuration.sampler == "table":
        each_table = [_table_draws(*one, draws) for one in zip(keys, problems, strict=True)]
        return {name: np.stack([d[name] for d in each_table]) for name in each_table[0]}
    algorithm = BMSVMGibbs(sampler=configuration.sampler).algorithm(problems[0])
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *problems)
    lengths = jnp.asarray(warmup), jnp.asarray(thinning)
    found = _chains(keys, stacked, *lengths, algorithm=algorithm, draws=draws)
    return jax.tree.map(np.asarray, found)


def _table_draws(key: jax.Array, problem: Problem, draws: int) -> dict[str, np.ndarray]:
    """Draw from the table of one problem; and the functions at the rows."""
    seed = np.asarray(jax.random.key_data(key))
    first, second = np.random.default_rng(seed).random(2)
    table = PosteriorTable(problem, origin=(first, second))
    found = table.draw(np.tile(seed, (draws, 1)), np.arange(draws))
    theta = np.zeros(draws, int)
    if problem.grid is not None:
        theta = nearest_on_grid(found["lengthscale"], np.asarray(problem.grid.values))
    weights, back = found.pop("weights"), contrast(problem.n_classes).T
    inside = [
        table.rows[g].design(slice(None)) @ v[: table.rows[g].rank] @ back
        for g, v in zip(theta, weights, strict=True)
    ]
    return {**found, "functions": found["intercept"][:, None] + np.stack(inside)}


@functools.partial(jax.jit, static_argnames=("algorithm", "draws"))
def _chains(keys, problems, warmup, thinning, *, algorithm: Algorithm, draws: int):
    """Chains in one program: calls of ``run_chains`` took two to six times as long (3 models)."""

    def one(key, problem):
        key_init, key = jax.random.split(key)

        def sweep(i, chain):
            here = jax.random.fold_in(key, i)
            return algorithm.step(here, chain, problem, Phase(i, warmup))[0]

        def draw(chain, number):
            first = warmup + number * thinning
            chain = jax.lax.fori_loop(first, first + thinning, sweep, chain)
            return chain, _quantities(chain, problem, algorithm)

        chain = algorithm.init(key_init, {}, problem)
        chain = jax.lax.fori_loop(0, warmup, sweep, chain)
        return jax.lax.scan(draw, chain, jnp.arange(draws))[1]

    return jax.vmap(one)(keys, problems)


def _quantities(chain, problem: Problem, algorithm: Algorithm) -> dict[str, jax.Array]:
    """Sites of a draw, and the functions at the rows."""
    sites = algorithm.sites(chain, problem)
    here = problem
    if problem.grid is not None:
        here = problem.at(nearest_on_grid(sites["lengthscale"], problem.grid.values))
    weights = sites.pop("weights")
    functions = class_vector(latent(jnp.zeros(()), weights, here), here.coupling)
    return {**sites, "functions": sites["intercept"] + functions}
