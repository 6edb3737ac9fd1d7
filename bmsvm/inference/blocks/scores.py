"""Step (a) of section 4.1: the free scores given the functions and the noise.

One class at a time and all rows at once: z_il for the rows with y_i != l, the row's own class
absorbing the change (12).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bmsvm.inference.blocks.base import Block, stateless
from bmsvm.models import two_piece
from bmsvm.models.conditionals import class_functions, columns_squared, score_moments
from bmsvm.models.couplings import to_columns
from bmsvm.models.hierarchy import Position, scores_of
from bmsvm.models.likelihoods import LIKELIHOODS, margin_offset, squared_scale, weigh
from bmsvm.models.problem import Problem

Update = Callable[
    [jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]
]
"""``(key, scores, cls, mean, scale) -> (new z_.l of shape (n,), acceptance of shape (n,))``."""


def _replace(scores: jax.Array, cls: jax.Array, value: jax.Array, problem: Problem) -> jax.Array:
    """Set class l of the rows that are not of class l, and let their own class absorb it."""
    classes = jnp.arange(problem.n_classes)
    free = problem.labels != cls
    change = jnp.where(free, value - jnp.take(scores, cls, axis=1), 0.0)[:, None]
    own = problem.labels[:, None] == classes
    return scores + jnp.where(classes == cls, change, 0.0) - jnp.where(own, change, 0.0)


def _sweep_classes(
    key: jax.Array, position: Position, problem: Problem, update: Update
) -> tuple[Position, dict[str, jax.Array]]:
    functions = class_functions(position, problem)

    def one_class(scores, inputs):
        cls, key = inputs
        mean, scale = score_moments(scores, functions, position.noise_variance, cls, problem)
        value, accept = update(key, scores, cls, mean, scale)
        accepted = jnp.sum(jnp.where(problem.labels != cls, accept, 0.0))
        return _replace(scores, cls, value, problem), accepted

    scores = scores_of(position.columns, problem)
    inputs = (jnp.arange(problem.n_classes), jax.random.split(key, problem.n_classes))
    scores, accepted = jax.lax.scan(one_class, scores, inputs)
    columns = to_columns(scores, problem.labels, problem.coupling)
    info = {"accept_prob": jnp.sum(accepted) / problem.n_scores}
    return position._replace(columns=columns), info


def exact_scores() -> Block:
    """Draw scores exactly: hinge or squared likelihood only.

    Under the hinge each free score in turn, from its two-piece conditional. Under ``squared`` all
    scores of a row at once, from a normal; with the ``independent`` coupling each in turn too.
    """

    def move(key, position, problem):
        if problem.likelihood == "squared":
            together = problem.coupling == "sum_to_zero"
            return (_normal_columns if together else _normal_scores)(key, position, problem)
        offset = margin_offset(problem.n_classes)
        slope = 1.0 if problem.row_weights is None else problem.row_weights

        def update(key, scores, cls, mean, scale):
            value = two_piece.draw(key, mean, scale, offset, slope)
            return value, jnp.ones_like(value)

        return _sweep_classes(key, position, problem, update)

    return stateless("exact_scores", move)


def _normal_columns(key, position, problem):
    """Draw the columns (n, k) of all rows under ``squared`` and ``sum_to_zero``."""
    columns = columns_squared(position, problem).sample(key)
    return position._replace(columns=columns), {"accept_prob": jnp.ones((), columns.dtype)}


def _normal_scores(key, position, problem):
    """Draw each free score under ``squared``.

    With ``total = z_l + z_y``, which stays, the pseudo-likelihood in z_l is a normal of mean
    ``(total - 1 - d)/2`` and variance ``s^2/2``.
    """
    offset, n_classes = margin_offset(problem.n_classes), problem.n_classes
    weights = 1.0 if problem.row_weights is None else problem.row_weights
    information = 2 * weights / squared_scale(n_classes) ** 2
    own = problem.labels[:, None] == jnp.arange(n_classes)

    def update(key, scores, cls, mean, scale):
        total = jnp.sum(jnp.where(own, scores, 0.0), axis=1) + jnp.take(scores, cls, axis=1)
        precision = information + 1 / scale**2
        centre = (information * (total - 1 - offset) / 2 + mean / scale**2) / precision
        value = centre + jax.random.normal(key, centre.shape, centre.dtype) / jnp.sqrt(precision)
        return value, jnp.ones_like(value)

    return _sweep_classes(key, position, problem, update)


def metropolis_scores(step_size: float = 1.0) -> Block:
    """Random-walk Metropolis-Hastings on each free score, the paper's choice.

    Parameters
    ----------
    step_size
        Standard deviation of the proposal, in units of z, fixed beforehand as in section 4.1.
    """

    def move(key, position, problem):
        log_likelihood = LIKELIHOODS[problem.likelihood]

        def update(key, scores, cls, mean, scale):
            key_step, key_accept = jax.random.split(key)
            current = jnp.take(scores, cls, axis=1)
            noise = jax.random.normal(key_step, current.shape, current.dtype)
            proposal = current + step_size * noise
            proposed = _replace(scores, cls, proposal, problem)
            log_ratio = (
                weigh(log_likelihood(proposed, problem.labels), problem.row_weights)
                - weigh(log_likelihood(scores, problem.labels), problem.row_weights)
                + ((current - mean) ** 2 - (proposal - mean) ** 2) / (2 * scale**2)
            )
            accept = jnp.minimum(1.0, jnp.exp(log_ratio))
            coin = jax.random.uniform(key_accept, accept.shape, accept.dtype)
            return jnp.where(coin < accept, proposal, current), accept

        return _sweep_classes(key, position, problem, update)

    return stateless("metropolis_scores", move)
