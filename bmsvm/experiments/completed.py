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

A row of weight 0 is left out exactly, whatever its label is said to be: its scores are drawn given
all other rows', everything between integrated out.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bmsvm._validation import check_choice
from bmsvm.inference.blocks import Block, stateless
from bmsvm.models.conditionals import (
    Projection,
    intercept_collapsed,
    log_density_columns,
    noise_variance_collapsed,
    precision_full,
    project,
    weights_full,
)
from bmsvm.models.hierarchy import Position, latent
from bmsvm.models.likelihoods import margin_offset
from bmsvm.models.problem import Problem
from bmsvm.models.whitening import shrinkage

__all__ = ["FILLS", "Cavity", "completed_blocks", "row_cavity"]

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


def row_cavity(
    row: jax.Array,
    columns: jax.Array,
    projection: Projection,
    precision: jax.Array,
    problem: Problem,
) -> Cavity:
    """Cavity of one row, of the columns (n, k) and their projection: O(r k)."""
    basis, eigenvalues = problem.factor
    here = basis[row]
    shrink, _ = shrinkage(eigenvalues, precision)
    ones, coordinates = projection.ones[0], projection.coordinates[0]
    information = problem.hyper.intercept_precision + (
        projection.size[0] - jnp.sum(shrink * ones**2)
    )
    column_ones = projection.sums[0] - (shrink * ones) @ coordinates  # 1'R^-1 T
    solved_one = 1 - here @ (shrink * ones)
    solved = columns[row] - (here * shrink) @ coordinates - solved_one * column_ones / information
    diagonal = 1 - jnp.sum(here**2 * shrink) - solved_one**2 / information
    return Cavity(columns[row] - solved / diagonal, 1 / diagonal)


def _scores(key: jax.Array, position: Position, problem: Problem, fill: str) -> jax.Array:
    """Step (a): Metropolis-Hastings on the free scores; then the missing ones, shape (n, c)."""
    functions = latent(position.intercept, position.weights, problem)
    scale = jnp.sqrt(position.noise_variance)
    offset = margin_offset(problem.n_classes)
    key_step, key_accept = jax.random.split(key)
    scores = position.columns
    noise = jax.random.normal(key_step, scores.shape, scores.dtype)
    proposal = scores + STEP_SIZE * noise

    def log_density(z):
        return -jax.nn.relu(z + offset) - (z - functions) ** 2 / (2 * scale**2)

    coin = jax.random.uniform(key_accept, scores.shape, scores.dtype)
    accepted = jnp.log(coin) < log_density(proposal) - log_density(scores)
    own = problem.labels[:, None] == jnp.arange(problem.n_classes)
    free = jnp.where(own, 0.0, jnp.where(accepted, proposal, scores))
    drawn = functions + scale * noise  # the noise that the missing scores have no proposal for
    missing = drawn if fill == "drawn" else -free.sum(1, keepdims=True)
    return jnp.where(own, missing, free)


def _left_out(problem: Problem) -> jax.Array | None:
    """Return the number of the row that has no weight; None where all rows count."""
    return None if problem.row_weights is None else jnp.argmin(problem.row_weights)


def _parameters(key: jax.Array, position: Position, problem: Problem) -> Position:
    """Step (b): sigma2 with b and B integrated out, then b, then B."""
    key_noise, key_row, key_intercept, key_weights = jax.random.split(key, 4)
    columns, precision = position.columns, position.precision
    row = _left_out(problem)
    if row is not None:
        columns = columns.at[row].set(0.0)
    projection = project(columns, problem)
    conditional = noise_variance_collapsed(projection, precision, problem)
    shape, rate = conditional.concentration, conditional.rate
    shape = shape + problem.n_rows / 2  # n(c - 1) scores are counted there; here are nc
    if row is not None:
        cavity = row_cavity(row, columns, projection, precision, problem)
        shape = shape - problem.n_classes / 2
        rate = rate - jnp.sum(cavity.mean**2) / cavity.variance / 2  # its scores are 0
    noise = dist.InverseGamma(shape, rate).sample(key_noise)
    if row is not None:
        normal = jax.random.normal(key_row, cavity.mean.shape, cavity.mean.dtype)
        drawn = cavity.mean + jnp.sqrt(noise * cavity.variance) * normal
        columns = columns.at[row].set(drawn)
        inside = problem.factor.basis[row][:, None] * drawn
        projection = projection._replace(
            coordinates=projection.coordinates + inside[None], sums=projection.sums + drawn[None]
        )
    intercept = intercept_collapsed(projection, precision, noise, problem).sample(key_intercept)
    weights = weights_full(projection, intercept, precision, noise, problem).sample(key_weights)
    return position._replace(
        columns=columns, noise_variance=noise, intercept=intercept, weights=weights
    )


def _theta(key: jax.Array, position: Position, problem: Problem) -> Position:
    """Random walk of theta on its grid, b and B integrated out and sigma2 held."""
    key_step, key_sign, key_accept = jax.random.split(key, 3)
    grid = problem.grid
    assert grid is not None
    here = position.kernel
    assert isinstance(here, jax.Array)
    dtype = position.precision.dtype
    step = 1 + jnp.floor(WALK * jnp.abs(jax.random.normal(key_step, (), dtype))).astype(here.dtype)
    there = here + jnp.where(jax.random.bernoulli(key_sign), step, -step)
    inside = (there >= 0) & (there < grid.values.size)
    there = jnp.clip(there, 0, grid.values.size - 1)

    def log_density(theta):
        at = problem.at(theta)
        seen = project(position.columns, at)
        log_p = log_density_columns(seen, position.precision, position.noise_variance, at)
        return log_p + grid.log_prior[theta]

    log_ratio = log_density(there) - log_density(here)
    coin = jax.random.uniform(key_accept, (), dtype)
    accepted = inside & (jnp.log(coin) < log_ratio)
    return position._replace(kernel=jnp.where(accepted, there, here))


@functools.cache
def completed_blocks(fill: str, *, lengthscale: bool = False) -> tuple[Block, ...]:
    """Blocks of one sweep, for problems of :func:`bmsvm.experiments.stack.completed_problem`.

    Parameters
    ----------
    fill
        ``"drawn"`` or ``"sum"``, see above.
    lengthscale
        Whether theta is moved, on the problem's grid.
    """
    check_choice("fill", fill, FILLS)

    def scores(key, position, problem):
        return position._replace(columns=_scores(key, position, problem, fill)), {}

    def theta(key, position, problem):
        return _theta(key, position, problem), {}

    def parameters(key, position, problem):
        return _parameters(key, position, problem), {}

    def precision(key, position, problem):
        conditional = precision_full(position.weights, position.noise_variance, problem)
        return position._replace(precision=conditional.sample(key)), {}

    moved = (stateless("theta", theta),) if lengthscale else ()
    return (
        stateless("completed_scores", scores),
        *moved,
        stateless("completed_parameters", parameters),
        stateless("conjugate_precision", precision),
    )
