"""One sweep for two readings of the printed algorithm, in which every column has every row.

Section 4.1 regresses column j on the rows whose label is not j. Here the scores that are missing
from a column are filled in before the regression, so that all columns share one design, that of K
itself, and fits to one Gram matrix are one matrix product. What they are filled in with makes the
difference:

``drawn``
    ``z_ij ~ N(f_ij, sigma2)``, the distribution that (13) would give them if they were observed.
    That is data augmentation: with the filled-in scores integrated out, the model is exactly
    ``coupling="independent"``, eqs. (13)-(19) as printed. The count in sigma2's shape then
    is nc, the printed one.
``sum``
    ``z_iy = -sum_{j != y} z_ij``, eq. (12), used as if it were data: the literal reading of (18).
    The updates are conditionals of no joint density and there is **no stationary distribution**;
    sigma2 wanders off (docs/paper.md). It is here because the printed table may have come of it.

A row of weight 0 is left out, whatever its label is said to be: no column observes it, and all its
scores are drawn.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bmsvm._validation import check_choice
from bmsvm.inference.blocks import Block
from bmsvm.models.hierarchy import Position
from bmsvm.models.likelihoods import margin_offset
from bmsvm.models.problem import Problem

__all__ = ["FILLS", "Cavity", "completed_blocks", "row_cavity", "seen_of"]

FILLS = ("drawn", "sum")
STEP_SIZE = 1.0
"""Standard deviation of the proposal of a score, in units of z."""

WALK = 2.0
"""Standard deviation of the proposal of theta, in steps of the grid."""


class Cavity(NamedTuple):
    """A row given all others, everything Gaussian but sigma2 and tau integrated out.

    mean
        Of the row's columns, shape (k,).
    variance
        Of each, in units of sigma2, scalar; the noise of the score is 1 of it.
    """

    mean: jax.Array
    variance: jax.Array


class Seen(NamedTuple):
    """Columns in the eigenbasis of K at one value of tau; R = I + K/tau.

    coordinates
        Of the columns, shape (k, r).
    ones
        U'1, shape (r,).
    shrink
        lambda/(lambda + tau), shape (r,).
    column_ones
        1'R^-1 T, shape (k,).
    information
        eta + 1'R^-1 1, scalar.
    """

    coordinates: jax.Array
    ones: jax.Array
    shrink: jax.Array
    column_ones: jax.Array
    information: jax.Array


def seen_of(columns: jax.Array, precision: jax.Array, problem: Problem) -> Seen:
    """Project columns, (k, n): one product with the basis."""
    basis, eigenvalues = problem.factor
    shrink = eigenvalues / (eigenvalues + precision)
    ones = jnp.sum(basis, axis=0)
    coordinates = columns @ basis
    size = columns.shape[1]
    return Seen(
        coordinates,
        ones,
        shrink,
        columns.sum(1) - coordinates @ (shrink * ones),
        problem.hyper.intercept_precision + size - jnp.sum(shrink * ones**2),
    )


def row_cavity(row: jax.Array, own: jax.Array, seen: Seen, problem: Problem) -> Cavity:
    """Cavity of one row, whose own columns are (k,): O(r k)."""
    here = problem.factor.basis[row]
    solved_one = 1 - here @ (seen.shrink * seen.ones)  # [R^-1 1]_i
    solved = (
        own
        - seen.coordinates @ (here * seen.shrink)
        - solved_one * seen.column_ones / seen.information
    )
    diagonal = 1 - here**2 @ seen.shrink - solved_one**2 / seen.information
    return Cavity(own - solved / diagonal, 1 / diagonal)


def _log_density(
    columns: jax.Array, precision: jax.Array, noise_variance: jax.Array, problem: Problem
) -> jax.Array:
    """``log N(T | 0, sigma2 Q(theta, tau))`` of all columns, (k, n), up to a constant in theta."""
    seen = seen_of(columns, precision, problem)
    explained = jnp.sum(seen.shrink * seen.coordinates**2)
    explained += jnp.sum(seen.column_ones**2) / seen.information
    log_det = jnp.sum(jnp.log1p(problem.factor.eigenvalues / precision))
    log_det += jnp.log(seen.information)
    return 0.5 * (explained / noise_variance - columns.shape[0] * log_det)


class _Noise(NamedTuple):
    """What is random in a sweep, drawn at once: (c, n) for scores, (c, r) for weights."""

    scores: jax.Array
    coin: jax.Array
    weights: jax.Array


def _noise(key: jax.Array, shape: tuple[int, int], dtype: Any) -> _Noise:
    least = jnp.finfo(dtype).tiny
    uniform = jax.random.uniform(key, (3, *shape), dtype, minval=least)
    normal = jnp.sqrt(2.0).astype(dtype) * jax.scipy.special.erfinv(
        jnp.maximum(2 * uniform[:2] - 1, -1 + jnp.finfo(dtype).eps)
    )
    return _Noise(normal[0], uniform[2], normal[1])


def _scores(position: Position, problem: Problem, noise: _Noise, fill: str) -> jax.Array:
    """Step (a): Metropolis-Hastings on the free scores; then the missing ones, shape (c, n)."""
    basis, eigenvalues = problem.factor
    scaled = position.weights.T * jnp.sqrt(eigenvalues)
    functions = position.intercept[:, None] + scaled @ basis.T
    scale = jnp.sqrt(position.noise_variance)
    offset = margin_offset(problem.n_classes)
    scores = position.columns.T
    proposal = scores + STEP_SIZE * noise.scores

    def log_density(z):
        return -jax.nn.relu(z + offset) - (z - functions) ** 2 / (2 * scale**2)

    accepted = jnp.log(noise.coin) < log_density(proposal) - log_density(scores)
    own = problem.labels == jnp.arange(problem.n_classes)[:, None]
    free = jnp.where(own, 0.0, jnp.where(accepted, proposal, scores))
    drawn = functions + scale * noise.scores  # of which missing scores have no proposal
    filled = jnp.where(own, drawn if fill == "drawn" else -free.sum(0), free)
    if problem.row_weights is None:
        return filled
    return jnp.where(problem.row_weights > 0, filled, drawn)


def _theta(key: jax.Array, columns: jax.Array, position: Position, problem: Problem) -> jax.Array:
    """Random walk of theta on its grid, b and B integrated out; the problem is at the old one."""
    key_step, key_sign, key_accept = jax.random.split(key, 3)
    grid, here = problem.grid, position.kernel
    assert grid is not None
    assert isinstance(here, jax.Array)
    dtype = columns.dtype
    step = 1 + jnp.floor(WALK * jnp.abs(jax.random.normal(key_step, (), dtype))).astype(here.dtype)
    there = here + jnp.where(jax.random.bernoulli(key_sign), step, -step)
    inside = (there >= 0) & (there < grid.values.size)
    there = jnp.clip(there, 0, grid.values.size - 1)
    before, after = (
        _log_density(columns, position.precision, position.noise_variance, at)
        + grid.log_prior[theta]
        for theta, at in ((here, problem), (there, problem.at(there)))
    )
    coin = jax.random.uniform(key_accept, (), dtype)
    return jnp.where(inside & (jnp.log(coin) < after - before), there, here)


def _parameters(
    key: jax.Array, columns: jax.Array, position: Position, problem: Problem, noise: _Noise
) -> Position:
    """Make steps (b) and (c): sigma2 with b and B integrated out, then b, B and tau."""
    key_noise, key_intercept, key_precision = jax.random.split(key, 3)
    eigenvalues = problem.factor.eigenvalues
    hyper, dtype = problem.hyper, columns.dtype
    k, n = columns.shape
    seen = seen_of(columns, position.precision, problem)
    quadratic = jnp.sum((1 - seen.shrink) * seen.coordinates**2)
    quadratic -= jnp.sum(seen.column_ones**2) / seen.information
    gamma = jax.random.gamma(key_noise, (hyper.noise_shape + n * k) / 2, (), dtype)
    noise_variance = (hyper.noise_rate + quadratic) / 2 / gamma
    normal = jax.random.normal(key_intercept, (k,), dtype)
    intercept = seen.column_ones / seen.information
    intercept += jnp.sqrt(noise_variance / seen.information) * normal
    total = eigenvalues + position.precision
    loc = jnp.sqrt(eigenvalues) * (seen.coordinates - intercept[:, None] * seen.ones) / total
    weights = loc + jnp.sqrt(noise_variance / total) * noise.weights
    weights = jnp.where(eigenvalues > 0, weights, 0.0)
    precision_shape = (hyper.precision_shape + problem.rank * k) / 2
    rate = (hyper.precision_rate + jnp.sum(weights**2) / noise_variance) / 2
    precision = jax.random.gamma(key_precision, precision_shape, (), dtype) / rate
    return position._replace(
        columns=columns.T,
        intercept=intercept,
        weights=weights.T,
        noise_variance=noise_variance,
        precision=precision,
    )


@functools.cache
def completed_blocks(fill: str, *, theta_every: int = 0) -> tuple[Block, ...]:
    """Return the one block of a sweep, for problems of ``stack.completed_problem``.

    It works on columns (c, n), long axis last, and has a complete basis, (n, n).

    Parameters
    ----------
    fill
        ``"drawn"`` or ``"sum"``, see above.
    theta_every
        Sweeps between two moves of theta on the problem's grid; 0 where theta is fixed.
    """
    check_choice("fill", fill, FILLS)

    def step(key, position, memory, problem, phase):
        key_noise, key_theta, key_rest = jax.random.split(key, 3)
        shape = (problem.n_classes, problem.n_rows)
        noise = _noise(key_noise, shape, position.columns.dtype)
        columns = _scores(position, problem, noise, fill)
        if theta_every:
            theta = jax.lax.cond(
                phase.sweep % theta_every == 0,
                lambda: _theta(key_theta, columns, position, problem),
                lambda: position.kernel,
            )
            position, problem = position._replace(kernel=theta), problem.at(theta)
        return _parameters(key_rest, columns, position, problem, noise), memory, {}

    return (Block("completed", lambda position, problem: (), step),)
