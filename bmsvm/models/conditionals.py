"""The conditionals of the sampler, each with a way to draw it and its log density.

All of them follow from one fact. Given (sigma2, tau), a group of columns with design
``Phi_g = U diag(sqrt(lambda)) W'`` is Gaussian with covariance ``sigma2 Q``,

    Q = R + 11'/eta,    R = I + Phi_g Phi_g' / tau = I + U diag(lambda/tau) U',

so that after one projection U'T, of cost O(n r k), everything below is diagonal: O(r k).

A conditional of a standard family is a NumPyro distribution, with ``.sample(key)`` and
``.log_prob(value)``. Two belong to no such family and are written out: the free score under the
hinge, and the collapsed precision.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import Position, latent, precision_prior
from bmsvm.models.likelihoods import squared_scale
from bmsvm.models.problem import Problem
from bmsvm.models.squared import code_columns, scores_given_functions
from bmsvm.models.whitening import White, shrinkage


class Projection(NamedTuple):
    """Statistics of the columns that the Gaussian part of the model needs.

    coordinates
        U'T, shape (g, r, k/g).
    sums
        1'T, shape (g, k/g).
    remainder
        Squared norm of the part of T outside the span of U, shape (g,).
    ones
        U'1, shape (g, r).
    size
        1'1, the number of rows observed, shape (g,).
    eigenvalues
        lambda, shape (g, r).
    """

    coordinates: jax.Array
    sums: jax.Array
    remainder: jax.Array
    ones: jax.Array
    size: jax.Array
    eigenvalues: jax.Array


def group(columns: jax.Array, problem: Problem) -> jax.Array:
    """Reshape columns (..., k) to groups (g, ..., k/g)."""
    g = problem.design.mask.shape[0]
    split = columns.reshape(*columns.shape[:-1], g, problem.n_columns // g)
    return jnp.moveaxis(split, -2, 0)


def ungroup(grouped: jax.Array) -> jax.Array:
    """Undo :func:`group`."""
    moved = jnp.moveaxis(grouped, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)


def project(columns: jax.Array, problem: Problem) -> Projection:
    """Project columns (n, k) on the eigenvectors of their designs."""
    basis, eigenvalues, _, mask = problem.design
    grouped = group(columns, problem)
    coordinates = jnp.einsum("gnr,gnk->grk", basis, grouped)
    if problem.spans:
        remainder = jnp.zeros(basis.shape[0], columns.dtype)
    else:
        inside = jnp.sum(coordinates**2, axis=(1, 2))
        remainder = jnp.maximum(jnp.sum(grouped**2, axis=(1, 2)) - inside, 0.0)
    return Projection(
        coordinates=coordinates,
        sums=grouped.sum(1),
        remainder=remainder,
        ones=jnp.einsum("gnr,gn->gr", basis, mask),
        size=mask.sum(1),
        eigenvalues=eigenvalues,
    )


class _Shrunk(NamedTuple):
    """The Gaussian quantities at one value of tau."""

    shrink: jax.Array
    """lambda/(lambda + tau), shape (g, r)."""
    column_ones: jax.Array
    """1'R^-1 T, shape (g, k/g)."""
    ones_ones: jax.Array
    """1'R^-1 1, shape (g,)."""
    log_det: jax.Array
    """log |R|, shape (g,)."""
    quadratic: jax.Array
    """trace T'R^-1 T, shape (g,)."""


def _shrunk(projection: Projection, precision: jax.Array) -> _Shrunk:
    shrink, log_det = shrinkage(projection.eigenvalues, precision)
    kept = precision / (projection.eigenvalues + precision)
    energy = jnp.sum(projection.coordinates**2, axis=2)
    return _Shrunk(
        shrink=shrink,
        column_ones=projection.sums
        - jnp.einsum("gr,grk->gk", shrink * projection.ones, projection.coordinates),
        ones_ones=projection.size - jnp.sum(shrink * projection.ones**2, axis=1),
        log_det=log_det,
        quadratic=jnp.sum(kept * energy, axis=1) + projection.remainder,
    )


def _marginal(
    projection: Projection, precision: jax.Array, problem: Problem
) -> tuple[jax.Array, jax.Array]:
    """``sum_k t_k'Q^-1 t_k`` and ``sum_k log |Q|`` over all columns."""
    eta = problem.hyper.intercept_precision
    parts = _shrunk(projection, precision)
    explained = jnp.sum(parts.column_ones**2, axis=1) / (eta + parts.ones_ones)
    quadratic = jnp.sum(parts.quadratic - explained)
    columns_per_group = projection.sums.shape[1]
    log_det = columns_per_group * jnp.sum(parts.log_det + jnp.log1p(parts.ones_ones / eta))
    return quadratic, log_det


def log_density_columns(
    projection: Projection, precision: jax.Array, noise_variance: jax.Array, problem: Problem
) -> jax.Array:
    """``log N(T | 0, sigma2 Q(theta, tau))``, eq. (19): b and B integrated out.

    As a function of the factor it is the collapsed likelihood of the kernel parameter theta.
    """
    quadratic, log_det = _marginal(projection, precision, problem)
    size = problem.n_scores
    return -0.5 * (
        quadratic / noise_variance + log_det + size * jnp.log(2 * jnp.pi * noise_variance)
    )


def log_density_columns_collapsed(
    projection: Projection, precision: jax.Array, problem: Problem
) -> jax.Array:
    """``log p(T | theta, tau)``: b, B and sigma2 integrated out, up to a constant."""
    quadratic, log_det = _marginal(projection, precision, problem)
    hyper = problem.hyper
    shape = (hyper.noise_shape + problem.n_scores) / 2
    return -0.5 * log_det - shape * jnp.log((hyper.noise_rate + quadratic) / 2)


def log_density_precision_collapsed(
    precision: jax.Array, projection: Projection, problem: Problem
) -> jax.Array:
    """``log p(tau | T)`` up to a constant: b, B and sigma2 integrated out."""
    prior = precision_prior(problem).log_prob(precision)
    return prior + log_density_columns_collapsed(projection, precision, problem)


def precision_full(
    weights: jax.Array, noise_variance: jax.Array, problem: Problem
) -> dist.Distribution:
    """``tau | B, sigma2`` (section 4.1); the paper's nc is rank(K) times the columns here."""
    hyper = problem.hyper
    size = problem.rank * problem.n_columns
    return dist.Gamma(
        (hyper.precision_shape + size) / 2,
        (hyper.precision_rate + jnp.sum(weights**2) / noise_variance) / 2,
    )


def noise_variance_collapsed(
    projection: Projection, precision: jax.Array, problem: Problem
) -> dist.Distribution:
    """``sigma2 | T, tau`` with b and B integrated out (section 4.1).

    The shape is (a_sigma + n(c-1))/2, the size of S; the paper prints nc (docs/paper.md).
    """
    quadratic, _ = _marginal(projection, precision, problem)
    hyper = problem.hyper
    shape = (hyper.noise_shape + problem.n_scores) / 2
    return dist.InverseGamma(shape, (hyper.noise_rate + quadratic) / 2)


def intercept_collapsed(
    projection: Projection, precision: jax.Array, noise_variance: jax.Array, problem: Problem
) -> dist.Distribution:
    """``b | T, sigma2, tau`` with B integrated out, shape (k,)."""
    parts = _shrunk(projection, precision)
    information = (problem.hyper.intercept_precision + parts.ones_ones)[:, None]
    mean = ungroup(parts.column_ones / information)
    scale = ungroup(jnp.sqrt(noise_variance / information) * jnp.ones_like(parts.column_ones))
    return dist.Normal(mean, scale)


class WeightsConditional(NamedTuple):
    """``v | T, b, sigma2, tau``: independent normals in the rotated coordinates W'v.

    loc, scale
        Shapes (g, r, k/g) and (g, r, 1).
    """

    loc: jax.Array
    scale: jax.Array
    problem: Problem

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw v, shape (r, k)."""
        return self.at(jax.random.normal(key, self.loc.shape, self.loc.dtype))

    def at(self, noise: jax.Array) -> jax.Array:
        """Return v, shape (r, k), of standard normals in the shape of ``loc``."""
        draw = self.loc + self.scale * noise
        rotation = self.problem.design.rotation
        draw = draw if rotation is None else jnp.einsum("grs,gsk->grk", rotation, draw)
        return ungroup(draw) * (self.problem.factor.eigenvalues > 0)[:, None]

    def log_prob(self, weights: jax.Array) -> jax.Array:
        """Log density at v, shape (r, k), over the coordinates within the rank: a scalar."""
        grouped = group(weights, self.problem)
        rotation = self.problem.design.rotation
        in_rank = self.problem.factor.eigenvalues > 0
        normal = dist.Normal(self.loc, self.scale)
        if rotation is None:
            return jnp.sum(jnp.where(in_rank[None, :, None], normal.log_prob(grouped), 0.0))
        # The zeros of v past the rank of K are rotated into the directions that the group does not
        # observe, which all have the scale of the last. Subtract their density.
        total = jnp.sum(normal.log_prob(jnp.einsum("grs,grk->gsk", rotation, grouped)))
        outside = dist.Normal(jnp.zeros_like(self.loc[:, -1]), self.scale[:, -1]).log_prob(0.0)
        return total - jnp.sum(~in_rank) * jnp.sum(outside)


def weights_full(
    projection: Projection,
    intercept: jax.Array,
    precision: jax.Array,
    noise_variance: jax.Array,
    problem: Problem,
) -> WeightsConditional:
    """``v | T, b, sigma2, tau``: the paper's ``B | ...`` in the factor's coordinates."""
    eigenvalues = projection.eigenvalues[:, :, None]
    shift = projection.ones[:, :, None] * group(intercept[None], problem)
    loc = jnp.sqrt(eigenvalues) * (projection.coordinates - shift) / (eigenvalues + precision)
    scale = jnp.sqrt(noise_variance / (eigenvalues + precision))
    return WeightsConditional(loc, scale, problem)


def draw_noise_intercept_weights(
    key: jax.Array,
    position: Position,
    projection: Projection,
    precision: jax.Array,
    problem: Problem,
) -> Position:
    """Draw (sigma2, b, v) given T and tau jointly and exactly."""
    key_noise, key_intercept, key_weights = jax.random.split(key, 3)
    noise = noise_variance_collapsed(projection, precision, problem).sample(key_noise)
    intercept = intercept_collapsed(projection, precision, noise, problem).sample(key_intercept)
    conditional = weights_full(projection, intercept, precision, noise, problem)
    return position._replace(
        noise_variance=noise,
        intercept=intercept,
        weights=conditional.sample(key_weights),
        precision=precision,
    )


def weights_given_rest(position: Position, problem: Problem) -> WeightsConditional:
    """:func:`weights_full` at a position, whose own weights are not used."""
    projection = project(position.columns, problem)
    return weights_full(
        projection, position.intercept, position.precision, position.noise_variance, problem
    )


def weights_given_white(white: White, position: Position, problem: Problem) -> WeightsConditional:
    """:func:`weights_full` from the whitened columns, without a product with the basis.

    The whitened columns are ``a = U'(T - 1 b') / (sigma sqrt(1 + lambda/tau))``, so that the mean
    of W'v is ``sigma sqrt(lambda/tau) a / sqrt(lambda + tau)``.

    Parameters
    ----------
    white
        Coordinates of ``position.columns`` (:mod:`bmsvm.models.whitening`).
    position
        The position, of which only sigma2 and tau are used.
    """
    eigenvalues, precision = problem.design.eigenvalues[:, :, None], position.precision
    scale = jnp.sqrt(position.noise_variance / (eigenvalues + precision))
    loc = scale * jnp.sqrt(eigenvalues / precision) * jnp.swapaxes(white.inside, 1, 2)
    return WeightsConditional(loc, scale, problem)


def score_moments(
    scores: jax.Array,
    functions: jax.Array,
    noise_variance: jax.Array,
    cls: jax.Array | int,
    problem: Problem,
) -> tuple[jax.Array, jax.Array]:
    """Gaussian part of ``z_il | rest`` for one class l: mean (n,) and standard deviation.

    The rest includes the row's other free scores; the score of its own class follows from eq. (12).
    The conditional is this Gaussian times the likelihood. Rows of class l have no such score, and
    their entries are not used.

    Parameters
    ----------
    scores
        Z, shape (n, c).
    functions
        Means of the scores, shape (n, c), from :func:`class_functions`: free columns
        (``independent``) or zero-sum values (``sum_to_zero``).
    noise_variance
        sigma2.
    cls
        The class l.
    """
    mean = jnp.take(functions, cls, axis=1)
    if problem.coupling == "independent":
        return mean, jnp.sqrt(noise_variance)
    error = scores - functions
    own = jnp.sum(
        jnp.where(problem.labels[:, None] == jnp.arange(problem.n_classes), error, 0.0), axis=1
    )
    here = jnp.take(error, cls, axis=1)
    return mean + (own + here) / 2, jnp.sqrt(noise_variance / 2)


def class_functions(position: Position, problem: Problem) -> jax.Array:
    """Return the means of the scores, shape (n, c), for :func:`score_moments`."""
    functions = latent(position.intercept, position.weights, problem)
    if problem.coupling == "independent":
        return functions
    return class_vector(functions, problem.coupling)


def columns_squared(position: Position, problem: Problem) -> dist.Distribution:
    """``T | b, B, sigma2, y`` under ``squared`` and ``sum_to_zero``, shape (n, k)."""
    functions = latent(position.intercept, position.weights, problem)
    codes = jnp.asarray(code_columns(np.arange(problem.n_classes), problem.n_classes))
    weights = jnp.ones(problem.n_rows) if problem.row_weights is None else problem.row_weights
    mean, variance = scores_given_functions(
        functions,
        codes.astype(functions.dtype)[problem.labels],
        position.noise_variance,
        weights / squared_scale(problem.n_classes) ** 2,
    )
    return dist.Normal(mean, jnp.sqrt(variance)[:, None])
