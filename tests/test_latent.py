"""The latent mean and variance of each class: against regression in closed form, and draws."""

from dataclasses import replace

import numpy as np
import pytest
from small_models import NEW, fit

from bmsvm import BMSVMClassifier, Nystrom, Posterior, prepare
from bmsvm.models.couplings import contrast

N, C, THETA = 15, 3, 1.4
LABELS = np.arange(N) % C
ROWS = np.random.default_rng(0).normal(size=(N, 2)) + 1.5 * np.eye(C)[LABELS, :2]
AT = np.vstack([ROWS[:3], [[0.3, -0.2], [3.0, 3.0], [40.0, 40.0]]])
SIGMA2, TAU = 0.7, 0.4


def kernel(left, right):
    return np.exp(-((left[:, None] - right) ** 2).sum(-1) / (2 * THETA**2))


def test_against_a_gaussian_process_in_closed_form():
    """Given scores, sigma2, tau and b the functions are a regression; 40,000 draws of weights.

    False alarm below 1e-4: 5 standard errors of 18 means, and 0.05 for variances of 0.007.
    """
    problem = prepare(ROWS, LABELS, lengthscale=THETA)
    random = np.random.default_rng(1)
    target = random.normal(size=(N, C))
    target -= target.mean(1, keepdims=True)
    basis, values = (np.asarray(part) for part in problem.factor)
    phi, count = basis * np.sqrt(values), 40_000
    root = np.linalg.cholesky(np.linalg.inv(phi.T @ phi + TAU * np.eye(len(values))))
    mean = root @ root.T @ phi.T @ target
    columns = contrast(C)
    noise = np.einsum("rq,sqk->srk", root, random.normal(size=(count, len(values), C - 1)))
    samples = {
        "weights": (mean @ columns + np.sqrt(SIGMA2) * noise)[None],
        "intercept": np.zeros((1, count, C)),
        "noise_variance": np.full((1, count), SIGMA2),
        "precision": np.full((1, count), TAU),
    }
    posterior = Posterior(samples, problem, ROWS, "gaussian", THETA)
    means, variances = posterior.latent_mean_and_variance(AT)
    solved = np.linalg.inv(kernel(ROWS, ROWS) + TAU * np.eye(N))
    across = kernel(AT, ROWS)
    expected = across @ solved @ target
    spread = SIGMA2 / TAU * (1 - 1 / C) * (1 - np.sum((across @ solved) * across, axis=1))
    error = np.sqrt(spread / count)
    assert np.abs((means - expected) / error[:, None]).max() < 5
    np.testing.assert_allclose(variances, np.tile(spread[:, None], C), rtol=0.05)
    np.testing.assert_allclose(variances[-1], SIGMA2 / TAU * (1 - 1 / C), rtol=1e-6)  # the prior
    plain = replace(posterior, remainder=False)
    np.testing.assert_allclose(plain.latent_mean_and_variance(AT)[1][-1], 0, atol=1e-12)


@pytest.fixture(scope="module")
def model():
    return fit(num_samples=100)


def test_it_is_the_mean_and_variance_of_drawn_functions(model):
    """Functions of 200 draws, each with a remainder of its own point: errors of about a tenth."""
    means, variances = model.latent_mean_and_variance(NEW)
    assert means.shape == variances.shape == (len(NEW), 3)
    np.testing.assert_allclose(means, model.class_functions(NEW), rtol=1e-10, atol=1e-12)
    drawn = model.posterior_predictive(NEW)["f"].values.reshape(-1, len(NEW), 3)
    np.testing.assert_allclose(variances, drawn.var(0), rtol=0.5)
    np.testing.assert_allclose(np.log(variances / drawn.var(0)).mean(), 0, atol=0.15)
    np.testing.assert_allclose(means.sum(1), 0, atol=1e-9)


def test_far_from_the_data_it_is_that_of_the_prior(model):
    posterior = model.posterior_
    far = posterior.latent_mean_and_variance(1e3 * np.ones((2, 2)))[1]
    ratio = posterior.flat("noise_variance") / posterior.flat("precision")
    expected = ratio.mean() * 2 / 3 + posterior.flat("intercept").var(0)
    np.testing.assert_allclose(far, np.tile(expected, (2, 1)), rtol=1e-6)


def test_low_rank_and_sampled_lengthscales_have_one():
    for settings in ({"approximation": Nystrom(rank=8)}, {"lengthscale": "auto"}):
        squared = BMSVMClassifier(
            **{"likelihood": "squared", "lengthscale": 1.5, "num_samples": 50, "random_state": 0}
            | settings
        ).fit(ROWS, LABELS)
        means, variances = squared.latent_mean_and_variance(AT)
        drawn = squared.posterior_predictive(AT)["f"].values.reshape(-1, len(AT), C)
        np.testing.assert_allclose(variances, drawn.var(0), rtol=0.4)  # 200 draws
        np.testing.assert_allclose(means, squared.class_functions(AT), rtol=1e-10, atol=1e-12)
