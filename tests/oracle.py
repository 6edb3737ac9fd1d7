"""Exact posterior draws on tiny data, and z-tests that speak about distributions.

The likelihoods lie in [0, 1], so a draw of the prior kept with probability L(y | T) is a draw of
the posterior. The simulator (reproduction/simulate.py) is plain NumPy and shares with the
sampler only the factor of the kernel and the contrast of the classes.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from bmsvm.inference.adaptation import Phase
from bmsvm.inference.blocks import (
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
    exact_scores,
    hamiltonian,
    metropolis_scores,
    scale,
    truncated_scores,
)
from bmsvm.inference.samplers import as_sampler
from bmsvm.models import Position, Problem, prepare
from bmsvm.models.couplings import class_vector, contrast
from bmsvm.models.hierarchy import latent, scores_of
from reproduction.simulate import LIVELY, draw_parameters, likelihood_of_rows

BATCH = 1 << 17

# Programs here are large and run for a second: compile them in a hurry.
quick_jit = functools.partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)


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
        )

    def __str__(self) -> str:
        singular = "singular" if self.duplicates or self.kernel == "linear" else "regular"
        return f"{self.likelihood}-{self.coupling}-{self.n_classes}-{singular}"


CASES = (
    Case(3, "sum_to_zero", "hinge", (0, 1, 2, 2)),
    Case(3, "independent", "hinge", (0, 1, 2, 1), kernel="linear", seed=1),
    Case(3, "sum_to_zero", "normalized", (0, 1, 2, 1, 0), duplicates=True, seed=2),
    Case(2, "independent", "normalized", (0, 1, 0, 0, 1, 1), seed=3),
    Case(3, "sum_to_zero", "probit", (0, 1, 2, 1), seed=4),
    Case(3, "independent", "probit", (2, 1, 2, 0), seed=5),
)


def all_blocks(likelihood: str) -> dict[str, Any]:
    """Every block that can move a posterior with this likelihood, by name."""
    blocks = [
        metropolis_scores(),
        conjugate_parameters(),
        conjugate_precision(),
        collapsed_parameters(),
        scale(),
    ]
    if likelihood == "hinge":
        blocks.append(exact_scores())
    blocks.append(truncated_scores() if likelihood == "probit" else hamiltonian())
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


def likelihood_of(columns: np.ndarray, problem: Problem) -> np.ndarray:
    """L(y | T) of columns (draws, n, k): eqs. (11), (12) and (21), or the largest score."""
    labels, c = np.asarray(problem.labels), problem.n_classes
    rows = np.arange(len(labels))
    weights = 1.0 if problem.row_weights is None else np.asarray(problem.row_weights)
    if problem.coupling == "sum_to_zero":
        scores = columns @ contrast(c).T
    else:
        scores = columns.copy()
        scores[:, rows, labels] = -columns.sum(-1)
    each = likelihood_of_rows(scores, np.broadcast_to(labels, scores.shape[:2]), problem.likelihood)
    return (each**weights).prod(-1)


@functools.cache
def exact_draws(case: Case, size: int) -> tuple[Problem, Position]:
    """Draw independent positions from the posterior by rejection from the prior."""
    problem, rng = case.problem(), np.random.default_rng(1000 + case.seed)
    kept: list[Position] = []
    while sum(len(part.precision) for part in kept) < size:
        draws = prior_draws(rng, BATCH, problem)
        likelihood = likelihood_of(draws.columns, problem)
        assert likelihood.max() <= 1
        keep = rng.uniform(size=BATCH) < likelihood
        kept.append(jax.tree.map(lambda part, keep=keep: part[keep], draws))
    joined = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)[:size]), *kept)
    return problem, joined


def sampler_sweep(sampler: str, likelihood: str):
    """Return the blocks of a sampler at a fixed theta."""
    return as_sampler(sampler).blocks(likelihood)


def after_sweeps(blocks, problem: Problem, positions: Position, sweeps: int, seed: int):
    """Sweep through the blocks, past warm-up, from every position; also the last info."""
    phase = Phase(jnp.array(1), jnp.array(1))

    def run(key, position):
        memory = tuple(block.init(position, problem) for block in blocks)

        def sweep(carry, key):
            position, memory = carry
            learned, info = [], {}
            keys = jax.random.split(key, len(blocks))
            for block, block_key, remembered in zip(blocks, keys, memory, strict=True):
                position, remembered, said = block.step(
                    block_key, position, remembered, problem, phase
                )
                learned.append(remembered)
                info.update(said)
            return (position, tuple(learned)), info

        (position, _), infos = jax.lax.scan(
            sweep, (position, memory), jax.random.split(key, sweeps)
        )
        return position, infos

    keys = jax.random.split(jax.random.key(seed), len(positions.precision))
    return quick_jit(jax.vmap(run))(keys, positions)


@quick_jit
def _coordinates(positions: Position, problem: Problem) -> jax.Array:
    def one(position):
        rows = jnp.array([0, -1])
        functions = latent(position.intercept, position.weights, problem)[rows]
        parts = (
            class_vector(position.intercept, problem.coupling),
            class_vector(functions, problem.coupling).ravel(),
            scores_of(position.columns, problem)[rows].ravel(),
        )
        logs = jnp.log(jnp.stack([position.noise_variance, position.precision]))
        return jnp.concatenate([logs, *map(jnp.arcsinh, parts)])

    return jax.vmap(one)(positions)


def coordinates(positions: Position, problem: Problem) -> np.ndarray:
    """What is watched of each position, shape (draws, m).

    log sigma2, log tau, then arsinh of: intercept, functions and scores at two rows. The arsinh
    tames the tails of the prior, whose Gaussian scales are mixed over sigma2.
    """
    return np.asarray(_coordinates(positions, problem))


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


def drift(problem: Problem, before: Position, after: Position) -> np.ndarray:
    """Z-scores of the change in first and second moments between paired positions."""
    old, new = coordinates(before, problem), coordinates(after, problem)
    assert np.isfinite(new).all()
    return paired_z(second_order(old, old), second_order(new, old))


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
