"""Log likelihood of labels given the class functions, the scores integrated out."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.inference.posterior import Posterior
from bmsvm.models.couplings import class_map
from bmsvm.models.likelihoods import log_mean_likelihood

__all__ = ["integrated_log_likelihood"]


def integrated_log_likelihood(
    posterior: Posterior,
    functions: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """``log E p(y_i | z_i)``, ``z_i ~ N(f_i, sigma2)``, of each row and draw: shape (s, n).

    Under ``hinge`` p(y | z) is the pseudo-likelihood (11). Under ``probit``, where none of the
    points at which the noise is integrated may have the label, half a point does.

    Parameters
    ----------
    posterior
        The draws, with the points at which the noise is integrated.
    functions
        Class functions, shape (s, n, c).
    labels
        Class indices, shape (n,).
    weights
        Weights of the rows, shape (n,); None where all are one.
    """
    if posterior.coupling != "sum_to_zero":
        raise ValueError(
            'log_likelihood needs coupling="sum_to_zero", in which the noise of a row does not '
            f"depend on its label; got {posterior.coupling!r}: pass log_likelihood=False"
        )
    scale = np.sqrt(posterior.samples["noise_variance"])[:, None, None]
    noise = scale * posterior.points[1] @ class_map(posterior.coupling, posterior.n_classes)
    with jax.enable_x64(True):
        found = np.asarray(
            _log_means(
                jnp.asarray(functions),
                jnp.asarray(noise),
                jnp.asarray(labels),
                None if weights is None else jnp.asarray(weights),
                likelihood=posterior.likelihood,
            )
        )
    if posterior.likelihood == "probit":
        found = np.maximum(found, np.log(0.5 / noise.shape[1]))
    return found


@functools.partial(jax.jit, static_argnames="likelihood")
def _log_means(
    functions: jax.Array,
    noise: jax.Array,
    labels: jax.Array,
    weights: jax.Array | None,
    *,
    likelihood: str,
) -> jax.Array:
    """Log means over the noise (s, J, c) of the likelihood at functions (s, n, c): shape (s, n)."""

    def one(draw):
        function, around = draw
        return log_mean_likelihood(function[:, None] + around, labels, likelihood, weights)

    return jax.lax.map(one, (functions, noise))
