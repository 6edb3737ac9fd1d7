"""Blocks in turn: the algorithm that moves the scores, as the paper's does.

Its position has the scores of all rows. A sweep runs every block once, in order.

R-hat compares chains, and so says little unless they start further apart than the posterior is
wide. The scores start at a perfect fit plus class functions drawn from their prior, which are wider
than those of the posterior. Draws of sigma2 and tau from their priors are spread out further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from bmsvm.inference.adaptation import Phase
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.blocks.base import Block, in_turn, memories
from bmsvm.inference.noise import normals_like, uniform_of
from bmsvm.models.couplings import class_vector, to_columns
from bmsvm.models.hierarchy import (
    TYPICAL_PRECISION,
    VAGUE_SHAPE,
    Position,
    latent,
    noise_prior,
    precision_prior,
    representer,
    scores_of,
)
from bmsvm.models.problem import Problem


class SweepState(NamedTuple):
    """Where a chain is, and what its blocks have learned.

    position
        The parameters.
    memory
        One entry a block.
    """

    position: Position
    memory: tuple[Any, ...]


class _Start(NamedTuple):
    """noise_variance and precision, weights (r, k), scores (n, c)."""

    noise_variance: jax.Array
    precision: jax.Array
    weights: jax.Array
    scores: jax.Array


def perfect_scores(problem: Problem) -> jax.Array:
    """Scores of a perfect fit, 1 at the label and -1/(c-1) elsewhere (section 5), shape (n, c)."""
    own = jax.nn.one_hot(problem.labels, problem.n_classes, dtype=problem.factor.basis.dtype)
    return (problem.n_classes * own - 1) / (problem.n_classes - 1)


class _Noise(NamedTuple):
    """Standard normals of a start: of sigma2, tau and its place between two values; of weights."""

    scalars: jax.Array
    weights: jax.Array


def _wide(noise: jax.Array, shape: ArrayLike, rate: ArrayLike) -> jax.Array:
    """Draw x whose logarithm has about three times the variance it has under Gamma(shape, rate).

    It is normal, of mean ``log(shape/rate) - 1/(2 shape)`` and variance ``3 (1/shape + 1/(2
    shape^2))``: the first terms of the digamma and the trigamma function.
    """
    mean = jnp.log(shape / rate) - 0.5 / shape
    return jnp.exp(mean + jnp.sqrt(3 * (1 / shape + 0.5 / shape**2)) * noise)


def _first_precision(known: jax.Array, between: jax.Array, problem: Problem) -> jax.Array:
    """Return tau near its prior; if that is vague, between it and a typical value, and beyond.

    A vague prior reaches to values at which functions would hardly differ between chains.

    Then ``log tau = (1 - u) log 0.1 + u log x``, x from the prior, u uniform on (-0.5, 1.5).
    """
    share = 2 * uniform_of(between) - 0.5
    vague = TYPICAL_PRECISION * (known / TYPICAL_PRECISION) ** share
    return jnp.where(problem.hyper.precision_shape < VAGUE_SHAPE, vague, known)


def _first_weights(
    noise: jax.Array, noise_variance: jax.Array, precision: jax.Array, problem: Problem
) -> jax.Array:
    """Weights from their prior, N(0, sigma2/tau), shape (r, k)."""
    positive = problem.factor.eigenvalues[:, None] > 0
    return jnp.where(positive, jnp.sqrt(noise_variance / precision) * noise, 0.0)


def _first_scores(weights: jax.Array, problem: Problem) -> jax.Array:
    """Scores of a perfect fit plus the functions of some weights (r, k), shape (n, c)."""
    functions = latent(jnp.zeros(problem.n_columns, weights.dtype), weights, problem)
    return perfect_scores(problem) + class_vector(functions, problem.coupling)


def _start_of_paper(key: jax.Array, problem: Problem) -> _Start:
    """Scores of a perfect fit (section 5); sigma2 and tau from their priors."""
    key_noise, key_precision = jax.random.split(key)
    rank, scores = problem.factor.eigenvalues.shape[0], perfect_scores(problem)
    return _Start(
        noise_prior(problem).sample(key_noise),
        precision_prior(problem).sample(key_precision),
        jnp.zeros((rank, problem.n_columns), scores.dtype),
        scores,
    )


def _overdispersed_start(key: jax.Array, problem: Problem) -> _Start:
    """Start of a chain such that many of them are wider than the posterior."""
    eigenvalues, hyper = problem.factor.eigenvalues, problem.hyper
    like = _Noise(jnp.zeros(3), jnp.zeros((len(eigenvalues), problem.n_columns)))
    noise = normals_like(key, like, eigenvalues.dtype)
    of_noise, of_precision, between = noise.scalars
    variance = 1 / _wide(of_noise, hyper.noise_shape / 2, hyper.noise_rate / 2)
    known = _wide(of_precision, hyper.precision_shape / 2, hyper.precision_rate / 2)
    precision = _first_precision(known, between, problem)
    weights = _first_weights(noise.weights, variance, precision, problem)
    return _Start(variance, precision, weights, _first_scores(weights, problem))


def block_sweep(blocks: Sequence[Block], *, as_in_paper: bool = False) -> Algorithm:
    """Return the algorithm that runs these blocks in order.

    Parameters
    ----------
    blocks
        The blocks.
    as_in_paper
        Whether all chains start at the scores of a perfect fit, as in section 5.
    """
    blocks = tuple(blocks)
    first = _start_of_paper if as_in_paper else _overdispersed_start

    def init(key: jax.Array, start: Mapping[str, jax.Array], problem: Problem) -> SweepState:
        drawn = first(key, problem)
        scores = start.get("scores", drawn.scores)
        weights = jnp.zeros_like(drawn.weights) if "scores" in start else drawn.weights
        position = Position(
            columns=to_columns(scores, problem.labels, problem.coupling),
            intercept=jnp.zeros(problem.n_columns, scores.dtype),
            weights=weights.astype(scores.dtype),
            noise_variance=start.get("noise_variance", drawn.noise_variance),
            precision=start.get("precision", drawn.precision),
            kernel=problem.first_kernel(),
        )
        return SweepState(position, memories(blocks, position, problem))

    def step(key: jax.Array, state: SweepState, problem: Problem, phase: Phase):
        keys = jax.random.split(key, len(blocks))
        position, memory, info = in_turn(blocks, keys, state.position, state.memory, problem, phase)
        return SweepState(position, memory), info

    def sites(state: SweepState, problem: Problem) -> dict[str, jax.Array]:
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
    return Algorithm(name, init, step, sites, startable)
