"""The gradient of the log marginal likelihood in the kernel's parameters, from posterior draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.spatial

from bmsvm.kernels.functions import Kernel, KernelFn, Stationary
from bmsvm.models.conditionals import noise_variance_collapsed, project
from bmsvm.models.couplings import to_columns
from bmsvm.models.gram_gradient import gram_gradient
from bmsvm.models.prepare import prepare
from bmsvm.models.problem import Problem
from bmsvm.models.regram import with_gram

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
