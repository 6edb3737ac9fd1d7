"""Blocks in turn: the algorithm that moves the scores, as the paper's does.

Its position has the scores of all rows. A sweep runs every block once, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bmsvm.inference.adaptation import Phase
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.blocks.base import Block, in_turn, memories
from bmsvm.models.couplings import class_vector, to_columns
from bmsvm.models.hierarchy import (
    Position,
    noise_prior,
    precision_prior,
    representer,
    scores_of,
)
from bmsvm.models.problem import Problem

__all__ = ["SweepState", "block_sweep", "perfect_scores"]


class SweepState(NamedTuple):
    """Where a chain is, and what its blocks have learned.

    position
        The parameters.
    memory
        One entry a block.
    """

    position: Position
    memory: tuple[Any, ...]


def perfect_scores(problem: Problem) -> jax.Array:
    """Scores of a perfect fit, 1 at the label and -1/(c-1) elsewhere (section 5), shape (n, c)."""
    own = jax.nn.one_hot(problem.labels, problem.n_classes, dtype=problem.factor.basis.dtype)
    return (problem.n_classes * own - 1) / (problem.n_classes - 1)


def block_sweep(blocks: Sequence[Block]) -> Algorithm:
    """Return the algorithm that runs these blocks in order."""
    blocks = tuple(blocks)

    def init(
        key: jax.Array, start: Mapping[str, jax.Array], setup: None, problem: Problem
    ) -> SweepState:
        """Start at the scores of section 5, with sigma2 and tau drawn from their priors."""
        key_noise, key_precision = jax.random.split(key)
        noise = noise_prior(problem).sample(key_noise)
        precision = precision_prior(problem).sample(key_precision)
        scores = start.get("scores", perfect_scores(problem))
        rank, k = problem.factor.eigenvalues.shape[0], problem.n_columns
        position = Position(
            columns=to_columns(scores, problem.labels, problem.coupling),
            intercept=jnp.zeros(k, scores.dtype),
            weights=jnp.zeros((rank, k), scores.dtype),
            noise_variance=start.get("noise_variance", noise),
            precision=start.get("precision", precision),
            kernel=problem.first_kernel(),
        )
        return SweepState(position, memories(blocks, position, problem))

    def step(key: jax.Array, state: SweepState, setup: None, problem: Problem, phase: Phase):
        keys = jax.random.split(key, len(blocks))
        position, memory, info = in_turn(blocks, keys, state.position, state.memory, problem, phase)
        return SweepState(position, memory), info

    def sites(state: SweepState, setup: None, problem: Problem) -> dict[str, jax.Array]:
        position = state.position
        weights = {"weights": position.weights}
        if problem.family is not None:  # the basis differs from draw to draw
            here = problem.at(position.kernel)
            weights = {"coefficients": representer(position.weights, here)}
        return {
            **problem.kernel_values(position.kernel),
            "noise_variance": position.noise_variance,
            "precision": position.precision,
            "intercept": class_vector(position.intercept, problem.coupling),
            "scores": scores_of(position.columns, problem),
            **weights,
        }

    name = ", ".join(block.name for block in blocks)
    startable = ("noise_variance", "precision", "scores")
    return Algorithm(name, lambda problem: None, init, step, sites, startable)
