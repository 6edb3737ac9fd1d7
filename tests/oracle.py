"""Exact posterior draws on tiny data, and z-tests that speak about distributions.

The likelihoods lie in [0, 1], so a draw of the prior kept with probability L(y | T) is a draw of
the posterior. The simulator (reproduction/simulate.py) is plain NumPy and shares with the
sampler only the factor of the kernel and the contrast of the classes.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bmsvm import HMC, Gibbs, Nystrom, Paper
from bmsvm.inference import state as states
from bmsvm.inference.adaptation import Phase
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.blocks import (
    Block,
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
    exact_scores,
    hamiltonian,
    metropolis_scores,
    scale,
)
from bmsvm.models import Position, Problem, conditionals, prepare
from bmsvm.models.couplings import class_vector, contrast
from bmsvm.models.hierarchy import latent, scores_of
from reproduction.simulate import LIVELY, draw_parameters, likelihood_of_rows

BATCH = 1 << 17

SAMPLERS = {"hmc": HMC(), "gibbs": Gibbs(), "paper": Paper()}
"""Samplers of every model, by name."""

PAST_WARM_UP = Phase(jnp.array(1), jnp.array(1))

# Most programs here are large and run for a second: compile them without optimising.
quick_jit = functools.partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)

# One that runs for ten seconds and more is compiled in twice the time, and runs in half of it.
optimizing_jit = functools.partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 1,
        "xla_llvm_disable_expensive_passes": True,
    },
)


def optimize_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the program of chains so that many draws of it take less time."""
    program = states.compiled_chunk.__wrapped__
    compiled = optimizing_jit(program, static_argnames="program")
    monkeypatch.setattr(states, "compiled_chunk", compiled)


@dataclass(frozen=True)
class Case:
    """A tiny data set and a model of it."""

    n_classes: int
    coupling: str
    likelihood: str
    labels: tuple[int, ...]
    kernel: str = "gaussian"
    duplicates: bool = False
    seed: int = 0
    weights: tuple[float, ...] | None = None
    spare_rows: int = 0
    approximation: Nystrom | None = None

    def problem(self) -> Problem:
        X = np.random.default_rng(self.seed).normal(size=(len(self.labels), 2))
        if self.duplicates:
            X[1], X[3] = X[0], X[2]
        return prepare(
            X,
            np.array(self.labels),
            kernel=self.kernel,
            lengthscale=1.5,
            coupling=self.coupling,
            likelihood=self.likelihood,
            hyperparameters=LIVELY,
            row_weights=self.weights,
            spare_rows=self.spare_rows,
            approximation=self.approximation,
        )

    def __str__(self) -> str:
        singular = "singular" if self.duplicates or self.kernel == "linear" else "regular"
        singular = singular if self.approximation is None else "low rank"
        return f"{self.likelihood}-{self.coupling}-{self.n_classes}-{singular}"


CASES = (
    Case(3, "sum_to_zero", "hinge", (0, 1, 2, 2)),
    Case(3, "independent", "hinge", (0, 1, 2, 1), kernel="linear", seed=1),
    Case(3, "sum_to_zero", "normalized", (0, 1, 2, 1, 0), duplicates=True, seed=2),
    Case(2, "independent", "normalized", (0, 1, 0, 0, 1, 1), seed=3),
)
LOW_RANK = Case(
    3, "sum_to_zero", "normalized", (0, 1, 2, 1, 0), seed=12, approximation=Nystrom(rank=3)
)


def all_blocks(likelihood: str) -> dict[str, Block]:
    """Every block that can move a posterior with this likelihood, by name."""
    blocks = [
        metropolis_scores(),
        conjugate_parameters(),
        conjugate_precision(),
        collapsed_parameters(),
        scale(),
        hamiltonian(),
    ]
    if likelihood == "hinge":
        blocks.append(exact_scores())
    return {block.name: block for block in blocks}


def prior_draws(rng: np.random.Generator, size: int, problem: Problem) -> Position:
    """Draw independent positions from the prior; every array leads with ``size``.

    The factor of the kernel may lead with ``size`` too.
    """
    position, functions = draw_parameters(rng, size, problem)
    noise = rng.normal(size=functions.shape)
    columns = functions + np.sqrt(position.noise_variance)[:, None, None] * noise
    if problem.coupling == "independent":  # a column does not observe the rows of its class
        columns[:, np.asarray(problem.labels)[:, None] == np.arange(problem.n_columns)] = 0.0
    return position._replace(columns=columns)


def likelihood_of(columns: np.ndarray, problem: Problem, some: slice = slice(None)) -> np.ndarray:
    """L(y | T) of columns (draws, m, k) of some rows, by default all: eqs. (11), (12) and (21)."""
    labels, c = np.asarray(problem.labels)[some], problem.n_classes
    rows = np.arange(len(labels))
    weights = 1.0 if problem.row_weights is None else np.asarray(problem.row_weights)[some]
    if problem.coupling == "sum_to_zero":
        scores = columns @ contrast(c).T
    else:
        scores = columns.copy()
        scores[:, rows, labels] = -columns.sum(-1)
    each = likelihood_of_rows(scores, np.broadcast_to(labels, scores.shape[:2]), problem.likelihood)
    return (each**weights).prod(-1)


def rejection_draws(
    rng: np.random.Generator,
    size: int,
    problem: Problem,
    prior_kernels: Callable | None = None,
    batch: int = BATCH,
) -> Position:
    """Draw independent positions from the posterior by rejection from the prior.

    ``prior_kernels(rng, batch)`` draws theta from its prior, if it is sampled. A draw that is
    rejected at one row is dropped before the noise of the next is drawn.
    """
    kept: list[Position] = []
    while sum(len(part.precision) for part in kept) < size:
        kernel = None if prior_kernels is None else prior_kernels(rng, batch)
        position, functions = draw_parameters(rng, batch, problem.at(kernel))
        columns = np.zeros(functions.shape)
        alive = np.arange(batch)
        for row in range(problem.n_rows):
            here = columns_of_row(rng, alive, row, position, functions, problem)
            likelihood = likelihood_of(here[:, None], problem, slice(row, row + 1))
            assert likelihood.max() <= 1
            keep = rng.uniform(size=len(alive)) < likelihood
            alive = alive[keep]
            columns[alive, row] = here[keep]
        draws = position._replace(columns=columns, kernel=kernel)
        kept.append(jax.tree.map(lambda part, alive=alive: np.asarray(part)[alive], draws))
    return jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)[:size]), *kept)


def columns_of_row(
    rng: np.random.Generator,
    which: np.ndarray,
    row: int,
    position: Position,
    functions: np.ndarray,
    problem: Problem,
) -> np.ndarray:
    """Draw the columns (m, k) of one row for the draws ``which`` (m,), given their functions."""
    mean = functions[which, row]
    scale = np.sqrt(np.asarray(position.noise_variance)[which])[:, None]
    columns = mean + scale * rng.normal(size=mean.shape)
    if problem.coupling == "independent":  # a column does not observe the rows of its class
        columns[:, int(problem.labels[row])] = 0.0
    return columns


@functools.cache
def exact_draws(case: Case, size: int) -> tuple[Problem, Position]:
    """Draw independent positions from the posterior of a case."""
    problem = case.problem()
    return problem, rejection_draws(np.random.default_rng(1000 + case.seed), size, problem)


def after_sweeps(
    algorithm: Algorithm, problem: Problem, positions: Position, sweeps: int, seed: int
) -> tuple[Position, dict[str, jax.Array]]:
    """Run sweeps of blocks, past warm-up, from every position; also what each sweep says.

    What blocks remember does not depend on the position, or the sweeps would not leave the
    posterior invariant.
    """
    start = algorithm.init(jax.random.key(0), {}, problem)

    def run(key, position):
        def sweep(state, key):
            return algorithm.step(key, state, problem, PAST_WARM_UP)

        begin = start._replace(position=position)
        state, infos = jax.lax.scan(sweep, begin, jax.random.split(key, sweeps))
        return state.position, infos

    keys = jax.random.split(jax.random.key(seed), len(positions.precision))
    return quick_jit(jax.vmap(run))(keys, positions)


def use_printed_noise_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw sigma2 with the shape (a_sigma + nc)/2 that the paper prints, which is wrong."""
    correct = conditionals.noise_variance_collapsed

    def printed(projection, precision, problem):
        right = correct(projection, precision, problem)
        return type(right)(right.concentration + problem.n_rows / 2, right.rate)

    monkeypatch.setattr(conditionals, "noise_variance_collapsed", printed)


def coordinates(positions: Position, problem: Problem, rows: Sequence[int] = (0, -1)) -> np.ndarray:
    """What is watched of each position, shape (draws, m).

    log sigma2, log tau, then arsinh of: intercept, functions and scores at two rows; then, if it
    is sampled, log theta and, on a grid, its indicators. The arsinh shortens the tails of the
    prior, whose Gaussian scales are mixed over sigma2.
    """
    shown = jnp.asarray(rows)

    def one(position: Position, problem: Problem) -> jax.Array:
        here = problem.at(position.kernel)
        functions = latent(position.intercept, position.weights, here)[shown]
        parts = (
            class_vector(position.intercept, problem.coupling),
            class_vector(functions, problem.coupling).ravel(),
            scores_of(position.columns, here)[shown].ravel(),
        )
        logs = jnp.log(jnp.stack([position.noise_variance, position.precision]))
        theta = [jnp.log(x).ravel() for x in problem.kernel_values(position.kernel).values()]
        if problem.grid is not None:
            theta.append(jax.nn.one_hot(position.kernel, problem.grid.values.size))
        return jnp.concatenate([logs, *map(jnp.arcsinh, parts), *theta])

    return np.asarray(quick_jit(jax.vmap(one, (0, None)))(positions, problem))


def second_order(watched: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Coordinates in units of the reference, with all their squares and products."""
    standard = (watched - reference.mean(0)) / reference.std(0)
    left, right = np.triu_indices(standard.shape[1])
    return np.concatenate([standard, standard[:, left] * standard[:, right]], axis=1)


def paired_z(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Z-scores of the mean change of each column, over independent rows."""
    change = after - before
    error = change.std(0, ddof=1) / np.sqrt(len(change))
    return change.mean(0) / np.maximum(error, 1e-10)  # what does not move is not tested


def moment_z(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Z-scores of the change in first and second moments of paired rows (draws, m)."""
    assert np.isfinite(after).all()
    return paired_z(second_order(before, before), second_order(after, before))


def drift(
    problem: Problem, before: Position, after: Position, rows: Sequence[int] = (0, -1)
) -> np.ndarray:
    """Z-scores of the change in first and second moments between paired positions."""
    return moment_z(*(coordinates(each, problem, rows) for each in (before, after)))


def chain_z(chain_means: np.ndarray, mean: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Z-scores of the average over independent chains (chains, m) against a known mean."""
    own = chain_means.std(0, ddof=1) / np.sqrt(len(chain_means))
    return (chain_means.mean(0) - mean) / np.hypot(own, error)


def largest(z: np.ndarray) -> float:
    """Largest |z|; it is printed too, for ``pytest -rP``."""
    result = float(np.abs(z).max())
    print(f"largest of {z.size} |z|: {result:.2f}")
    return result


def threshold(false_alarm: float, comparisons: int, dof: float = np.inf) -> float:
    """Bound that none of so many |z| exceeds but with this probability: Bonferroni."""
    return scipy.stats.t.isf(false_alarm / comparisons / 2, dof)
