"""Empirical Bayes: the gradient, the maximiser, and what is reported of them."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import kernels, prepare
from bmsvm.models.conditionals import log_density_columns, project
from bmsvm.models.gram_gradient import gram_gradient
from bmsvm.models.regram import with_gram

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 2))
Y = np.array([0, 1, 2, 1, 0, 2, 1])


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
@pytest.mark.parametrize("theta", [1.3, (0.8, 2.1)], ids=["one", "per-feature"])
def test_the_gradient_is_that_of_the_collapsed_density(coupling, theta):
    """Against central differences of ``log_density_columns`` in each log lengthscale."""
    theta = np.asarray(theta, float)
    whole = prepare(X, Y, coupling=coupling, hyperparameters=oracle.LIVELY)
    draws, n, k = 5, whole.n_rows, whole.n_columns
    columns = RNG.normal(size=(draws, n, k)) * np.asarray(whole.design.mask.T > 0)
    tau, sigma2 = RNG.gamma(2.0, 0.5, draws), RNG.gamma(2.0, 0.5, draws)
    unit = kernels.gaussian(1.0)

    def gram(log_theta):
        rows = jnp.asarray(X) / jnp.exp(log_theta)
        return unit(rows, rows)

    def mean_log_density(log_theta):
        problem = with_gram(whole, gram(log_theta))
        return np.mean(
            [
                log_density_columns(project(t, problem), precision, noise, problem)
                for t, precision, noise in zip(columns, tau, sigma2, strict=True)
            ]
        )

    at = np.log(theta)
    cotangent = gram_gradient(columns, tau, 1 / sigma2, with_gram(whole, gram(at)))
    found = np.ravel(jax.vjp(gram, jnp.asarray(at))[1](jnp.asarray(cotangent))[0])
    steps = 1e-4 * np.eye(at.size).reshape(-1, *at.shape)
    expected = [(mean_log_density(at + h) - mean_log_density(at - h)) / 2e-4 for h in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
