"""Functions at new rows are the Gaussian process conditioned on the scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bmsvm import demo, kernels, prepare
from bmsvm.inference.predict import class_probabilities, features_at, functions_at
from bmsvm.models.couplings import to_columns

N_DRAWS = 20_000
SIGMA2, TAU, ETA = 0.7, 0.4, 1000.0


@pytest.fixture(params=["sum_to_zero", "independent"])
def case(request):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(9, 2)), np.arange(9) % 3
    new = np.concatenate([rng.normal(size=(2, 2)), X[:1], [[40.0, 0.0]]])
    kernel = kernels.gaussian(1.3)
    problem = prepare(X, y, kernel=kernel, coupling=request.param)
    scores = rng.normal(size=(9, 3))
    scores -= scores.mean(1, keepdims=True)
    draws = {
        "scores": jnp.broadcast_to(jnp.asarray(scores), (N_DRAWS, 9, 3)),
        "noise_variance": jnp.full(N_DRAWS, SIGMA2),
        "precision": jnp.full(N_DRAWS, TAU),
    }
    return X, new, kernel, problem, draws, features_at(kernel, new, X, problem.factor)


def test_functions_have_the_dense_conditional_mean_and_covariance(case):
    """Means within five standard errors, covariances within six; false alarm below 1e-4."""
    X, new, kernel, problem, draws, features = case
    found = np.asarray(functions_at(jax.random.key(0), draws, features, problem))
    columns = np.asarray(to_columns(draws["scores"][0], problem.labels, problem.coupling))
    masks = np.asarray(problem.design.mask) > 0
    for j in range(problem.n_columns):
        rows = masks[j if len(masks) > 1 else 0]
        prior = lambda a, b: SIGMA2 * (kernels.gram(kernel, a, b) / TAU + 1 / ETA)  # noqa: E731
        inner = prior(X[rows], X[rows]) + SIGMA2 * np.eye(rows.sum())
        gain = np.linalg.solve(inner, prior(X[rows], new)).T
        mean = gain @ columns[rows, j]
        covariance = prior(new, new) - gain @ prior(X[rows], new)
        error = np.sqrt(np.diag(covariance) / N_DRAWS)
        assert np.all(np.abs(found[:, :, j].mean(0) - mean) < 5 * error)
        # The remainder is drawn row by row, so only variances are those of the process.
        variance = found[:, :, j].var(0)
        assert np.all(np.abs(variance / np.diag(covariance) - 1) < 6 * np.sqrt(2 / N_DRAWS))


def test_far_from_the_data_the_prior_comes_back(case):
    *_, problem, draws, features = case
    far = np.asarray(functions_at(jax.random.key(1), draws, features, problem))[:, -1]
    assert far.var(0) == pytest.approx(SIGMA2 / TAU, rel=0.1)


def test_probabilities_are_normalised_and_finite(case):
    *_, problem, draws, features = case
    probabilities = np.asarray(class_probabilities(jax.random.key(2), draws, features, problem))
    assert probabilities.shape == (N_DRAWS, 4, 3)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-12)


def test_the_demo_runs_and_leaves_a_picture(tmp_path, capsys):
    numbers = demo.run_demo(tmp_path, num_warmup=60, num_samples=40)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert 0 <= numbers["error"] < 0.3
    assert "Held-out rows" in capsys.readouterr().out
