"""What NumPyro does with draws of the sampler, and predictions at new rows of any run."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS, Predictive, log_likelihood
from sklearn.model_selection import train_test_split

from bmsvm import BMSVMGibbs, Nystrom, Posterior, Sampled, prepare
from bmsvm.datasets import load_wine
from bmsvm.models import hierarchical_model
from bmsvm.models.couplings import contrast
from bmsvm.models.likelihoods import class_probabilities, normalized
from bmsvm.prediction.numpyro_run import with_functions

N, C = 18, 3
LABELS = np.arange(N) % C
X = np.random.default_rng(0).normal(size=(N, 2)) + 2.0 * np.eye(C)[LABELS, :2]
NEW = np.random.default_rng(1).normal(size=(5, 2))
PROBLEM = prepare(X, LABELS, lengthscale=2.0)
KEY = jax.random.key(1)


def run(kernel, *args, warmup=20, samples=40, **settings):
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=samples, progress_bar=False)
    mcmc.run(jax.random.key(0), *args, **settings)
    return mcmc


@pytest.fixture(scope="module")
def gibbs():
    return run(BMSVMGibbs(lengthscale=2.0, sampler="gibbs"), X, LABELS)


@pytest.fixture(scope="module")
def nuts():
    return run(NUTS(hierarchical_model, max_tree_depth=5), PROBLEM)


def repeated(draws, times):
    return {name: jnp.repeat(value, times, axis=0) for name, value in draws.items()}


@pytest.mark.parametrize("kind", ["gibbs", "nuts"])
def test_labels_are_replicated_given_the_scores(kind, request):
    """No flag is needed; frequencies within 5 standard errors, false alarm below 1e-4."""
    draws = request.getfixturevalue(kind).get_samples()
    predictive = Predictive(hierarchical_model, repeated(draws, 50))
    found = predictive(KEY, PROBLEM, observed=False)
    labels = found["y"]
    chances = class_probabilities(draws["scores"], "normalized").mean(0)
    frequencies = jax.nn.one_hot(labels, C).mean(0)
    np.testing.assert_allclose(frequencies, chances, atol=5 * 0.5 / np.sqrt(len(labels)))
    told = Predictive(hierarchical_model, repeated(draws, 50), condition_deterministic=True)
    np.testing.assert_array_equal(told(KEY, PROBLEM, observed=False)["y"], labels)


@pytest.mark.parametrize("kind", ["gibbs", "nuts"])
def test_the_log_likelihood_is_given_the_scores(kind, request):
    draws = request.getfixturevalue(kind).get_samples()
    found = log_likelihood(hierarchical_model, draws, PROBLEM)
    assert set(found) == {"y"}
    expected = jax.vmap(lambda z: normalized(z, jnp.asarray(LABELS)))(draws["scores"])
    np.testing.assert_allclose(found["y"], expected, rtol=1e-10)


def test_without_scores_labels_are_replicated_given_the_weights(gibbs):
    """Scores are drawn around the functions; within 5 standard errors."""
    draws = {name: value for name, value in gibbs.get_samples().items() if name != "scores"}
    labels = Predictive(hierarchical_model, repeated(draws, 50))(KEY, PROBLEM, observed=False)["y"]
    chances = Posterior.from_numpyro(gibbs).probabilities(X)
    frequencies = jax.nn.one_hot(labels, C).mean(0)
    np.testing.assert_allclose(frequencies, chances, atol=5 * 0.5 / np.sqrt(2000) + 0.01)


def test_draws_that_would_be_of_the_prior_are_refused(gibbs):
    draws = gibbs.get_samples()
    less = {name: draws[name] for name in ("noise_variance", "precision", "intercept")}
    with pytest.raises(ValueError, match="draws must have the scores, or"):
        Predictive(hierarchical_model, less)(KEY, PROBLEM, observed=False)
    without = {name: value for name, value in draws.items() if name != "scores"}
    with pytest.raises(ValueError, match="draws must have the scores"):
        log_likelihood(hierarchical_model, without, PROBLEM)
    other = prepare(NEW, [0, 1, 2, 0, 1], lengthscale=2.0)
    with pytest.raises(ValueError, match=r"'scores' must have shape \(5, 3\).*from_numpyro"):
        Predictive(hierarchical_model, draws)(KEY, other, observed=False)


def test_the_prior_is_still_the_prior():
    draws = Predictive(hierarchical_model, num_samples=50)(KEY, PROBLEM, observed=False)
    assert draws["scores"].shape == (50, N, C)
    assert len(np.unique(draws["noise_variance"])) == 50


def test_a_run_predicts_new_rows(gibbs):
    found = Posterior.from_numpyro(gibbs)
    samples = {name: np.asarray(value) for name, value in gibbs.get_samples(True).items()}
    expected = Posterior(samples, gibbs.sampler.prepare(X, LABELS), X, "gaussian", 2.0)
    np.testing.assert_array_equal(found.probabilities(NEW), expected.probabilities(NEW))
    on_problem = run(BMSVMGibbs(sampler="gibbs"), PROBLEM)
    found = Posterior.from_numpyro(on_problem, X, lengthscale=2.0)
    np.testing.assert_allclose(found.probabilities(NEW), expected.probabilities(NEW), rtol=1e-6)


def test_low_rank_and_sampled_lengthscales_too():
    low = BMSVMGibbs(lengthscale=2.0, approximation=Nystrom(rank=6))
    grid = BMSVMGibbs(lengthscale=Sampled(grid=[1.0, 2.0]), sampler="gibbs")
    for kernel in (low, grid):
        found = Posterior.from_numpyro(run(kernel, X, LABELS, warmup=5, samples=5))
        np.testing.assert_allclose(found.probabilities(NEW).sum(1), 1, rtol=1e-6)


def test_weights_that_were_integrated_out_are_drawn_given_the_scores(nuts):
    """Moments of the conditional, written out; 5 standard errors over 72 numbers."""
    draws = nuts.get_samples(group_by_chain=True)
    one = {name: np.asarray(value)[:, :1] for name, value in draws.items()}
    many = {name: np.repeat(value, 4000, axis=1) for name, value in one.items()}
    weights = with_functions(many, PROBLEM, seed=3)["weights"][0]
    basis, values = (np.asarray(part) for part in PROBLEM.factor)
    phi = basis * np.sqrt(values)
    tau, sigma2 = one["precision"].item(), one["noise_variance"].item()
    target = one["scores"][0, 0] - one["intercept"][0, 0]
    precision = phi.T @ phi + tau * np.eye(len(values))
    mean = np.linalg.solve(precision, phi.T @ target)  # (r, c), of the class functions
    classes = weights @ contrast(C).T
    spread = np.sqrt(sigma2 * np.diag(np.linalg.inv(precision)) * (1 - 1 / C))
    z = (classes.mean(0) - mean) / (spread[:, None] / np.sqrt(4000))
    assert np.abs(z).max() < 5
    np.testing.assert_allclose(classes.std(0) / spread[:, None], 1, atol=0.08)
    found = Posterior.from_numpyro(nuts, X, lengthscale=2.0)
    assert found.probabilities(NEW).shape == (5, C)


def test_what_is_no_run_is_named():
    unfinished = MCMC(BMSVMGibbs(lengthscale=2.0), num_warmup=1, num_samples=1)
    for given, got in ((unfinished, "MCMC that has not run"), ({}, "dict"), (None, "NoneType")):
        with pytest.raises(ValueError, match=f"^mcmc must be a .* run of bmsvm.*; got {got}$"):
            Posterior.from_numpyro(given)


def test_what_is_missing_or_does_not_fit_is_named(gibbs, nuts):
    with pytest.raises(ValueError, match="X must be given: the run holds a problem"):
        Posterior.from_numpyro(nuts)
    with pytest.raises(ValueError, match="lengthscale must be given"):
        Posterior.from_numpyro(nuts, X)
    with pytest.raises(ValueError, match="X, kernel and lengthscale must be those"):
        Posterior.from_numpyro(nuts, X, lengthscale=2.5)
    with pytest.raises(ValueError, match="X, kernel and lengthscale must be those"):
        Posterior.from_numpyro(nuts, 3 * X, lengthscale=2.0)
    with pytest.raises(ValueError, match="X must have the 18 rows of the problem; got 5"):
        Posterior.from_numpyro(nuts, NEW, lengthscale=2.0)
    with pytest.raises(ValueError, match="X, kernel and lengthscale must not be given"):
        Posterior.from_numpyro(gibbs, X, lengthscale=2.0)
    bare = run(BMSVMGibbs(lengthscale=2.0, sampler="gibbs"), X, LABELS,
               extra_fields=("~z.weights", "~z.scores"))  # fmt: skip
    with pytest.raises(ValueError, match="mcmc must have draws of the weights, or"):
        Posterior.from_numpyro(bare)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:X and lengthscale")
def test_the_how_to_as_printed_is_accurate_on_wine():
    page = (Path(__file__).parents[1] / "docs" / "howto.md").read_text(encoding="utf-8")
    section = page.split("## Sample with NumPyro")[1].split("\n## ")[0]
    first, second = re.findall(r"```python\n(.*?)```", section, flags=re.S)
    rows, labels = load_wine(return_X_y=True)
    names = dict(
        zip(
            ("X", "X_new", "y", "y_new"),
            train_test_split(rows, labels, random_state=0, test_size=0.5, stratify=labels),
            strict=True,
        )
    )
    exec(first, names)
    accuracy = np.mean(names["probabilities"].argmax(1) == names["y_new"])
    assert accuracy > 0.93
    short = second.replace("num_warmup=300, num_samples=300", "num_warmup=10, num_samples=10")
    exec(short, names)
    assert names["posterior"].n_draws == 10
    assert names["replicated"].shape == names["each_row"].shape == (1200, len(names["y"]))
    assert np.mean(names["replicated"] == names["y"]) > 0.9
