"""The hierarchical model of section 3, written once as a log density.

The scores of a row are functions drawn from a Gaussian process, plus an intercept, plus noise, and
sum to zero. The label depends on the scores alone.

    1/sigma2 ~ Gamma(a_s/2, b_s/2)          noise_variance = sigma2
    tau      ~ Gamma(a_t/2, b_t/2)          precision      = tau
    b_j      ~ N(0, sigma2/eta)             intercept      = b,  shape (k,)
    v_j      ~ N(0, sigma2/tau I_r)         weights        = v,  shape (r, k)
    f        = 1 b' + Phi v                 Phi Phi' = K
    t_ij     ~ N(f_ij, sigma2)              columns        = T,  shape (n, k)
    y_i      ~ likelihood(z_i)              scores Z from T by the coupling

The weights are the paper's B in the coordinates of the factor: B = K^+ Phi v, so that K B = Phi v
and v'v = B'KB. With a singular K this is (10) with the Moore-Penrose inverse.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bmsvm.kernels.factor import inverse_root
from bmsvm.models.couplings import class_vector, to_scores
from bmsvm.models.likelihoods import LIKELIHOODS, weigh
from bmsvm.models.problem import Kernel, Problem

TYPICAL_PRECISION = 0.1
"""A typical value of tau."""

VAGUE_SHAPE = 50.0
"""a_tau below which the prior of tau is vague."""


class Position(NamedTuple):
    """A point of the parameter space.

    columns
        T, shape (n, k); zero where a column does not observe the row.
    intercept
        b, shape (k,).
    weights
        v, shape (r, k); zero past the rank of K.
    noise_variance
        sigma2, scalar.
    precision
        tau, scalar.
    kernel
        theta: its index in the problem's grid, scalar, or a point off it; None if it is fixed.
    """

    columns: jax.Array
    intercept: jax.Array
    weights: jax.Array
    noise_variance: jax.Array
    precision: jax.Array
    kernel: Kernel = None


class _InverseGamma(dist.InverseGamma):
    """Inverse gamma whose log density is correct where the square of the value underflows."""

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density at a positive value."""
        shape, rate = self.concentration, self.rate
        log_constant = shape * jnp.log(rate) - jax.lax.lgamma(shape)
        return log_constant - (shape + 1) * jnp.log(value) - rate / value


def noise_prior(problem: Problem) -> dist.Distribution:
    """Prior of sigma2, eq. (16)."""
    return _InverseGamma(problem.hyper.noise_shape / 2, problem.hyper.noise_rate / 2)


def precision_prior(problem: Problem) -> dist.Distribution:
    """Prior of tau, eq. (17)."""
    return dist.Gamma(problem.hyper.precision_shape / 2, problem.hyper.precision_rate / 2)


def log_noise_prior(noise_variance: jax.Array, problem: Problem) -> jax.Array:
    """Log prior density of sigma2, eq. (16), up to a constant.

    Samplers use it: the gamma function in the constant is slow to compile.
    """
    shape, rate = problem.hyper.noise_shape / 2, problem.hyper.noise_rate / 2
    return -(shape + 1) * jnp.log(noise_variance) - rate / noise_variance


def log_precision_prior(precision: jax.Array, problem: Problem) -> jax.Array:
    """Log prior density of tau, eq. (17), up to a constant."""
    shape, rate = problem.hyper.precision_shape / 2, problem.hyper.precision_rate / 2
    return (shape - 1) * jnp.log(precision) - rate * precision


def typical_precision(problem: Problem) -> jax.Array:
    """Return the mean of tau's prior, or the typical value 0.1 if that prior is vague."""
    shape, rate = problem.hyper.precision_shape, problem.hyper.precision_rate
    return jnp.where(shape < VAGUE_SHAPE, TYPICAL_PRECISION, shape / rate)


def holds_precision(problem: Problem) -> bool:
    """Whether the prior of tau outweighs the weights in step (c) of section 4.1: a_tau > r k."""
    weights = problem.factor.eigenvalues.shape[-1] * problem.n_columns
    return float(problem.hyper.precision_shape) > weights


def held_precision(problem: Problem) -> float | None:
    """Return the prior mean of tau if the prior holds it there, else None."""
    if not holds_precision(problem):
        return None
    return float(problem.hyper.precision_shape) / float(problem.hyper.precision_rate)


def scores_of(columns: jax.Array, problem: Problem) -> jax.Array:
    """Scores Z, shape (n, c), of columns T, shape (n, k)."""
    return to_scores(columns, problem.labels, problem.coupling)


def latent(intercept: jax.Array, weights: jax.Array, problem: Problem) -> jax.Array:
    """Column functions at the rows, ``1 b' + Phi v``, shape (n, k): eqs. (13) and (18)."""
    basis, eigenvalues = problem.factor
    return intercept + basis @ (jnp.sqrt(eigenvalues)[:, None] * weights)


def representer(weights: jax.Array, problem: Problem) -> jax.Array:
    """Representer coefficients B = K^+ Phi v, shape (n, k), from weights v, shape (r, k)."""
    basis, eigenvalues = problem.factor
    return basis @ (inverse_root(eigenvalues)[:, None] * weights)


def weights_of_representer(coefficients: jax.Array, problem: Problem) -> jax.Array:
    """Weights v = Phi'B, shape (r, k), of coefficients B, shape (n, k)."""
    basis, eigenvalues = problem.factor
    return jnp.sqrt(eigenvalues)[:, None] * (basis.T @ coefficients)


def coefficients(weights: jax.Array, problem: Problem) -> jax.Array:
    """Coefficients W = B H of eq. (5), shape (n, c), from weights v, shape (r, k).

    Both couplings: :func:`representer`, then the columns are turned into classes.
    """
    return class_vector(representer(weights, problem), problem.coupling)


def log_likelihood(
    columns: jax.Array, problem: Problem, smoothing: jax.Array | None = None
) -> jax.Array:
    """Log likelihood of each row given its scores, times its weight, shape (n,)."""
    likelihood = LIKELIHOODS[problem.likelihood]
    each = likelihood(scores_of(columns, problem), problem.labels, smoothing)
    return weigh(each, problem.row_weights)


def log_prior(position: Position, problem: Problem) -> jax.Array:
    """Log density of everything but the labels, normalised; eqs. (13)-(17)."""
    scale = jnp.sqrt(position.noise_variance)
    observed = problem.design.mask.reshape(-1, problem.n_rows).T  # (n, g): g is 1 or k
    in_rank = problem.factor.eigenvalues[:, None] > 0
    residual = dist.Normal(latent(position.intercept, position.weights, problem), scale)
    weights = dist.Normal(0.0, scale / jnp.sqrt(position.precision)).log_prob(position.weights)
    intercept = dist.Normal(0.0, scale / jnp.sqrt(problem.hyper.intercept_precision))
    return (
        jnp.sum(jnp.where(observed > 0, residual.log_prob(position.columns), 0.0))
        + jnp.sum(intercept.log_prob(position.intercept))
        + jnp.sum(jnp.where(in_rank, weights, 0.0))
        + noise_prior(problem).log_prob(position.noise_variance)
        + precision_prior(problem).log_prob(position.precision)
    )


def log_joint(position: Position, problem: Problem) -> jax.Array:
    """Log of p(y, T, b, v, sigma2, tau), with respect to (T, b, v, sigma2, tau).

    Under ``hinge`` the factor p(y | T) is the pseudo-likelihood (11), which is not normalised.
    """
    return log_prior(position, problem) + jnp.sum(log_likelihood(position.columns, problem))
