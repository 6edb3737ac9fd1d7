"""The gradient of the log marginal likelihood in the kernel's parameters, from posterior draws.

The columns of a group are independent with covariance ``sigma2 Q``, ``Q = I + K/tau + 11'/eta`` on
the rows that the group observes, so that

    d log N(T | 0, sigma2 Q) / dK = (Q^-1 T T' Q^-1 / sigma2 - k Q^-1) / (2 tau).

Contracted with dK/dtheta this is the gradient in any parameter of the kernel, and averaged over
posterior draws it is, by Fisher's identity, the gradient of the log marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.spatial
from jax.typing import ArrayLike

from bmsvm.kernels.factor import factorize
from bmsvm.kernels.functions import Kernel, KernelFn, Stationary
from bmsvm.models.conditionals import noise_variance_collapsed, project
from bmsvm.models.couplings import to_columns
from bmsvm.models.prepare import prepare
from bmsvm.models.problem import Problem, with_spare_rows
from bmsvm.models.theta import masked_design

SITES = ("scores", "precision", "noise_variance")
"""Sites of a draw that the gradient needs."""


class Draws(NamedTuple):
    """Flat over chains: T (s, n, k), tau (s,), sigma2 (s,)."""

    columns: jax.Array
    precision: jax.Array
    noise_variance: jax.Array


def columns_and_variances(drawn: dict[str, jax.Array], problem: Problem) -> Draws:
    """Draws of vectorised chains, (draw, chain, ...), flat over chains."""
    flat = {name: drawn[name].reshape(-1, *drawn[name].shape[2:]) for name in SITES}
    columns = jax.vmap(lambda z: to_columns(z, problem.labels, problem.coupling))(flat["scores"])
    return Draws(columns, flat["precision"], flat["noise_variance"])


def gram_function(
    kernel: Kernel | Callable[[Any], KernelFn], rows: np.ndarray
) -> Callable[[Any], jax.Array]:
    """Gram matrix (n, n) of rows (n, p) as a differentiable function of the kernel's parameters."""
    if not isinstance(kernel, Kernel):
        return lambda theta: kernel(theta)(jnp.asarray(rows), jnp.asarray(rows))
    stationary = cast(Stationary, kernel)
    distances = scipy.spatial.distance.cdist(rows, rows)

    def gram(theta):
        if jnp.ndim(theta) == 0:  # one lengthscale scales all distances, computed once
            return stationary.of_distance(jnp.asarray(distances) / theta)
        return stationary.traced(theta)(jnp.asarray(rows), jnp.asarray(rows))

    return gram


@jax.jit
def _noise_precision(draws: Draws, problem: Problem) -> jax.Array:
    """Mean of 1/sigma2 given the rest of each draw, shape (s,)."""

    def one(columns, precision):
        given = noise_variance_collapsed(project(columns, problem), precision, problem)
        return given.concentration / given.rate

    return jax.vmap(one)(draws.columns, draws.precision)


def gram_gradient(
    columns: np.ndarray, precision: np.ndarray, noise_precision: np.ndarray, problem: Problem
) -> np.ndarray:
    """Gradient of ``log N(T | 0, sigma2 Q)``, eq. (19), in the Gram matrix: the mean over draws.

    Parameters
    ----------
    columns
        T, shape (s, n, k).
    precision
        tau, shape (s,).
    noise_precision
        1/sigma2, or its conditional mean where sigma2 is integrated out, shape (s,).
    problem
        The prepared data.

    Returns
    -------
    numpy.ndarray
        Symmetric, shape (n, n), float64: entry (i, j) is the derivative in K_ij, all entries taken
        as free.
    """
    design, (s, n, _) = problem.design, columns.shape
    eta = float(problem.hyper.intercept_precision)
    tau = np.asarray(precision, np.float64)
    total = np.zeros((n, n))
    # Of each group: rows first, then draws, so that products with the basis are single ones.
    grouped = np.asarray(columns, np.float64).reshape(s, n, design.mask.shape[0], -1)
    for group, (basis, eigenvalues, seen) in enumerate(
        zip(
            *(np.asarray(part, np.float64) for part in (design.basis, design.eigenvalues)),
            np.asarray(design.mask, np.float64),
            strict=True,
        )
    ):
        own = np.moveaxis(grouped[:, :, group], 0, 1)  # (n, s, k/g)
        k = own.shape[2]
        ones = np.broadcast_to(seen[:, None, None], (n, s, 1))
        both = np.concatenate([own, ones], axis=2)
        shrink = eigenvalues[:, None] / (eigenvalues[:, None] + tau)  # (r, s)
        coordinates = np.tensordot(basis, both, (0, 0)) * shrink[:, :, None]
        solved = both - np.tensordot(basis, coordinates, (1, 0))  # R^-1 (T, 1)
        solved_ones = solved[:, :, k:]
        information = eta + np.sum(seen[:, None, None] * solved_ones, axis=0)  # (s, 1)
        projected = np.sum(own * solved_ones, axis=0) / information  # (s, k/g)
        solved_columns = solved[:, :, :k] - solved_ones * projected  # Q^-1 T
        root = np.sqrt(noise_precision / tau)[:, None]
        parts = np.concatenate(
            [solved_columns * root, solved_ones * np.sqrt(k / (information * tau[:, None]))], axis=2
        ).reshape(n, -1)
        mean_inverse = np.diag(seen * np.mean(1 / tau))
        mean_inverse -= (basis * np.mean(shrink / tau, axis=1)) @ basis.T  # of R^-1 / tau
        total += 0.5 * (parts @ parts.T / s - k * mean_inverse)
    return total


def with_gram(problem: Problem, gram: ArrayLike) -> Problem:
    """Return the problem with another Gram matrix of its rows.

    The basis is kept complete whatever the rank, so that problems of one size have one shape.

    Parameters
    ----------
    problem
        Where everything else comes from; theta is fixed in it.
    gram
        Gram matrix, shape (m, m). Rows of the problem beyond these are spare ones.
    """
    factor = factorize(gram, complete=True)
    factor = with_spare_rows(factor, problem.n_rows - len(factor.basis))
    masked = None
    if problem.coupling == "independent":
        masked = masked_design(factor, np.asarray(problem.labels), problem.n_classes)
    return replace(
        problem,
        factor=jax.tree.map(jnp.asarray, factor),
        masked=jax.tree.map(jnp.asarray, masked),
        grid=None,
        family=None,
    )


@dataclass(frozen=True)
class Surface:
    """The marginal likelihood as a function of the logs of the kernel's parameters, shape (d,)."""

    whole: Problem
    gram: Callable[[jax.Array], jax.Array]
    pull_back: Callable[[jax.Array, jax.Array], jax.Array]

    def problem(self, at: np.ndarray) -> Problem:
        """Factor the data under the kernel of these parameters."""
        with jax.enable_x64(True):
            gram = np.asarray(self.gram(jnp.asarray(at)))
        return with_gram(self.whole, gram)

    def gradient(self, at: np.ndarray, draws: Draws, problem: Problem) -> np.ndarray:
        """Estimate the gradient from posterior draws at these parameters, shape (d,)."""
        inverse = _noise_precision(draws, problem)
        cotangent = gram_gradient(
            np.asarray(draws.columns), np.asarray(draws.precision), np.asarray(inverse), problem
        )
        with jax.enable_x64(True):
            return np.asarray(self.pull_back(jnp.asarray(at), jnp.asarray(cotangent)))


def surface_of(
    gram: Callable[[Any], jax.Array],
    unravel: Callable[[Any], Any],
    log_theta: np.ndarray,
    **model: Any,
) -> Surface:
    """Compile the Gram matrix and its pull-back, and check the data at the starting values."""

    def of_logs(logs):
        return gram(unravel(jnp.exp(logs)))

    with jax.enable_x64(True):
        first = np.asarray(of_logs(jnp.asarray(log_theta)))
    return Surface(
        prepare(kernel=cast(KernelFn, lambda *_: first), **model),
        jax.jit(of_logs),
        jax.jit(lambda logs, cotangent: jax.vjp(of_logs, logs)[1](cotangent)[0]),
    )
