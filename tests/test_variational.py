"""The variational posterior: near MCMC, whatever the batches, and a place to start chains."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bmsvm import (
    PAPER,
    BMSVMClassifier,
    BMSVMGibbs,
    LowRank,
    kernels,
    load,
    prepare,
    run_chains,
    save,
)
from bmsvm.estimators.summary import summarise_model
from bmsvm.inference.posterior import posterior_of
from bmsvm.inference.variational import _noise_scale, fit_variational
from bmsvm.models.collapsed import log_scales
from bmsvm.models.couplings import class_vector
from bmsvm.models.likelihoods import log_mean_likelihood

pytest.importorskip("optax", reason="variational fits need optax, the extra bmsvm[variational]")

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RNG.normal(size=(60, 2)) + 2.0 * np.eye(3)[Y][:, :2]
NEW = RNG.normal(size=(200, 2)) * 2
THETA = 2.0
PROBLEM = prepare(X, Y, lengthscale=THETA, likelihood="normalized", spare_rows=4)


def fit(**settings):
    settings = {"num_steps": 1500, "progress_bar": False, **settings}
    return fit_variational(PROBLEM, rng_key=jax.random.key(0), **settings)


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.fixture(scope="module")
def chains(fitted):
    """Chains that start where the fit says."""
    return run_chains(
        BMSVMGibbs(lengthscale=THETA, likelihood="normalized"),
        jax.random.key(1),
        PROBLEM,
        num_warmup=300,
        num_samples=300,
        num_chains=4,
        collect=("weights", "intercept", "noise_variance", "precision"),
        init_params=fitted.init_params(jax.random.key(2), 4),
        progress_bar=False,
    ).samples


def probabilities(samples):
    posterior = posterior_of(samples, PROBLEM, X, lengthscale=THETA)
    parts = posterior.evaluate(NEW, functions=False)
    return np.concatenate([part.probabilities.mean(-1) for part in parts])


def test_the_predictive_is_near_that_of_mcmc(fitted, chains):
    """Bounds three times what was measured; MCMC's own error is about 0.01."""
    approximate = fitted.sample(jax.random.key(3), 1000)
    ours, theirs = probabilities(approximate), probabilities(chains)
    difference = np.abs(ours - theirs)
    logs = {
        name: [f"{np.log(each[name]).mean():.3f}" for each in (approximate, chains)]
        for name in ("noise_variance", "precision")
    }
    print(f"mean |p - p_mcmc| {difference.mean():.4f}, largest {difference.max():.4f}, {logs}")
    assert difference.mean() < 0.03
    assert np.mean(ours.argmax(1) == theirs.argmax(1)) > 0.95


def test_batches_estimate_the_same_objective(fitted):
    batches = fit(batch_size=16)
    assert batches.losses[-300:].mean() == pytest.approx(fitted.losses[-300:].mean(), rel=0.1)
    assert fitted.losses[-300:].mean() < fitted.losses[:20].mean()


def test_the_integrated_likelihood_is_that_of_much_noise(fitted):
    """Beside plain Monte Carlo with 40,000 draws: 32 points are off by a few per cent."""
    functions = np.array([[0.3, -0.8], [1.0, 0.4]])
    labels, sigma = jnp.array([0, 2]), 1.3

    def mean(points):
        scores = class_vector(functions[:, None] + sigma * jnp.asarray(points), "sum_to_zero")
        return np.exp(log_mean_likelihood(scores, labels, "normalized"))

    np.testing.assert_allclose(mean(fitted.points), mean(RNG.normal(size=(40_000, 2))), rtol=0.1)


def test_what_low_rank_leaves_is_noise_of_the_rows():
    """The scale of each row's noise is that of the sampler for low rank."""
    problem = prepare(X, Y, features=LowRank(rank=12), lengthscale=THETA, likelihood="normalized")
    assert problem.remainder is not None
    noise, precision = jnp.asarray(0.7), jnp.asarray(0.4)
    logs = jnp.stack([0.5 * jnp.log(noise), jnp.log(precision / noise)])
    ours = _noise_scale(noise, precision, problem.remainder)[:, 0, 0]
    np.testing.assert_allclose(np.log(ours), log_scales(logs, problem), rtol=1e-10)
    fit = fit_variational(problem, rng_key=jax.random.key(0), num_steps=5, progress_bar=False)
    assert np.isfinite(fit.losses).all()


CLASSIFIER = {"lengthscale": THETA, "standardize": False, "random_state": 0, "num_chains": 2}


def test_the_classifier_predicts_from_it(chains, tmp_path):
    """Near the chains of the same model, to the bounds of the test above; saved and read again."""
    model = BMSVMClassifier(
        inference="variational", hyperparameters=PAPER, calibration=None, **CLASSIFIER
    ).fit(X, Y)
    assert np.abs(model.predict_proba(NEW) - probabilities(chains)).mean() < 0.03
    assert model.diagnostics_ == {}
    assert model.run_.samples["scores"].shape == (2, 200, 64, 3)
    assert summarise_model(model).verdict.startswith("a variational approximation")
    save(model, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
    with pytest.raises(ValueError, match="fit_more is for"):
        again.fit_more(5)


def test_the_classifier_takes_low_rank_and_starts_chains_there(tmp_path):
    settings = {**CLASSIFIER, "num_samples": 10}
    low = BMSVMClassifier(inference="variational", features="nystrom", rank=9, **settings).fit(X, Y)
    assert "scores" not in low.run_.samples
    assert low.score(X, Y) > 0.6
    save(low, tmp_path / "model.bmsvm")
    load(tmp_path / "model.bmsvm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chain = BMSVMClassifier(init="variational", num_warmup=10, **settings).fit(X, Y)
    assert chain.run_.num_samples == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inference": "exact"}, "inference must be one of 'mcmc', 'variational'"),
        ({"init": "zero"}, "init must be one of"),
        ({"inference": "variational", "likelihood": "probit"}, "needs likelihood="),
        ({"init": "variational", "lengthscale": "sample"}, "a lengthscale that is not sampled"),
        ({"init": "variational", "preset": "large"}, "chains that start at scores"),
    ],
)
def test_settings_of_the_classifier_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        BMSVMClassifier(**settings).fit(X, Y)


def test_first_points_of_chains_fit_the_labels(fitted):
    start = fitted.init_params(jax.random.key(0), 3)
    assert start["scores"].shape == (3, 64, 3)
    np.testing.assert_allclose(start["scores"].sum(-1), 0, atol=1e-10)
    assert np.mean(np.asarray(start["scores"]).argmax(-1)[:, :60] == Y) > 0.8
    assert start["precision"].shape == start["noise_variance"].shape == (3,)


@pytest.mark.parametrize(
    ("settings", "model", "message"),
    [
        ({"guide": "full"}, {}, "guide must be one of 'diagonal', 'low-rank'; got 'full'"),
        ({"batch_size": 65}, {}, "batch_size must be at most 60, the rows; got 65"),
        ({"num_steps": 0}, {}, "num_steps must be an integer of at least 1; got 0"),
        ({}, {"coupling": "independent"}, 'must have a fixed kernel and coupling="sum_to_zero"'),
        ({}, {"likelihood": "probit"}, 'likelihood must be "hinge" or "normalized"'),
    ],
)
def test_bad_arguments_are_named(settings, model, message):
    problem = prepare(X, Y, kernel=kernels.gaussian(1.0), **model)
    with pytest.raises(ValueError, match=message):
        fit_variational(problem, rng_key=jax.random.key(0), progress_bar=False, **settings)
