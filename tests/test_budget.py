"""Chains end when their draws are enough, or when the time is over."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from few_draws import few_draws
from scipy.signal import lfilter

from bmsvm import BMSVMClassifier, BMSVMGibbs, Hyperparameters, Paper, prepare, run_chains
from bmsvm.convergence import diagnose, enough_draws, watch
from bmsvm.datasets import load_wine

X, Y = load_wine(return_X_y=True)
ROWS, LABELS = ((X - X.mean(0)) / X.std(0))[::4], Y[::4]
CLASSES = np.arange(3)
PROBLEM = prepare(ROWS, LABELS, lengthscale=3.5)


def draws(chains=8, number=100, *, correlation=0.0, apart=0.0, scale=0.1, seed=0):
    """Draws of chains that are autoregressive, their means ``apart`` standard deviations apart."""
    rng = np.random.default_rng(seed)

    def chain(*shape):
        noise = rng.standard_normal((chains, number, *shape))
        values = lfilter([np.sqrt(1 - correlation**2)], [1, -correlation], noise, axis=1)
        means = apart * np.linspace(-1, 1, chains).reshape(-1, 1, *[1] * len(shape))
        return values + means

    rank = len(PROBLEM.factor.eigenvalues)
    return {
        "noise_variance": np.exp(0.1 * chain()),
        "precision": np.exp(0.1 * chain()),
        "intercept": 0 * chain(3),
        "weights": scale * chain(rank, 2),
    }


def enough(samples):
    return enough_draws(samples, PROBLEM, len(ROWS), CLASSES)


def test_independent_draws_are_enough():
    assert enough(draws())


def test_fewer_than_fifty_draws_of_a_chain_never_are():
    assert not enough(draws(chains=40, number=49))


def test_chains_in_different_places_are_not_enough():
    """With 64 chains whose tau is a little apart its effective size is large, R-hat not small."""
    apart = draws(chains=64, number=60)
    apart["precision"] = draws(chains=64, number=60, apart=0.6)["precision"]
    found = diagnose(watch(apart, PROBLEM, len(ROWS), CLASSES).quantities)
    assert min(each.ess for each in found.values()) >= 200
    assert max(each.r_hat for each in found.values()) > 1.05
    assert not enough(apart)


def test_a_tau_that_its_prior_holds_is_left_out():
    """The conditional of tau is Gamma((a + r k)/2, ...): with a > r k the prior counts for more."""
    apart = draws()
    apart["precision"] = draws(apart=3.0)["precision"]
    weights = len(PROBLEM.factor.eigenvalues) * 2
    for shape, ends in ((weights - 1.0, False), (weights + 1.0, True)):
        prior = Hyperparameters(precision_shape=shape, precision_rate=10.0)
        problem = prepare(ROWS, LABELS, lengthscale=3.5, hyperparameters=prior)
        assert enough_draws(apart, problem, len(ROWS), CLASSES) is ends


def test_draws_that_are_strongly_dependent_are_not_enough():
    """Of two chains 800 draws of correlation 0.7 are worth about 141, and R-hat is small."""
    dependent = draws(chains=2, number=400, correlation=0.7)
    found = diagnose(watch(dependent, PROBLEM, len(ROWS), CLASSES).quantities)
    assert max(each.r_hat for each in found.values()) <= 1.05
    assert min(each.ess for each in found.values()) < 200
    assert not enough(dependent)
    assert enough(draws(number=2000, correlation=0.9))


def test_probabilities_with_a_large_monte_carlo_error_are_not_enough():
    """With wide functions probabilities are near 0 or 1: 400 draws leave an error near 0.02."""
    wide = draws(number=50, scale=5.0)
    found = watch(wide, PROBLEM, len(ROWS), CLASSES).probabilities
    assert np.max(found.std(axis=(0, 1)) / np.sqrt(found[..., 0].size)) > 0.015
    assert not enough(wide)
    assert enough(draws(number=400, scale=5.0))


def test_watched_functions_are_those_of_the_draws():
    """``f = b + K c`` with ``c`` the representer coefficients of the weights, by dense algebra."""
    samples = draws(chains=2, number=3)
    samples["intercept"] = np.random.default_rng(1).standard_normal((2, 3, 3))
    basis, eigenvalues = (np.asarray(part, float) for part in PROBLEM.factor)
    found = watch(samples, PROBLEM, len(ROWS), CLASSES).quantities
    # Orthonormal contrasts of three classes, the sum of each column zero (Helmert).
    contrast = np.array([[1, 1], [-1, 1], [0, -2]]) / np.sqrt([2, 6])
    values = basis @ (np.sqrt(eigenvalues)[:, None] * samples["weights"][1, 2]) @ contrast.T
    values = values + samples["intercept"][1, 2]
    names = [name for name in found if name.startswith("f at")]
    assert len(names) == 20
    for name in names:
        row, cls = int(name.split()[4].rstrip(",")), int(name.split()[-1])
        np.testing.assert_allclose(found[name][1, 2], values[row, cls], atol=1e-4)


def run(**settings):
    given = {"num_warmup": 25, "num_samples": 100, "num_chains": 2, **settings}
    return run_chains(BMSVMGibbs(sampler="gibbs"), jax.random.key(0), PROBLEM, **given)


def test_a_run_that_is_enough_is_the_beginning_of_a_longer_one():
    whole = run()
    asked = []

    def after_fifty(samples):
        asked.append(samples["precision"].shape)
        return samples["precision"].shape[1] >= 50

    short = run(enough=after_fifty)
    assert (whole.ended, short.ended, short.interrupted) == ("complete", "enough", False)
    assert asked == [(2, 25), (2, 50)]
    np.testing.assert_array_equal(short.samples["scores"], whole.samples["scores"][:, :50])
    np.testing.assert_array_equal(short.more(50).samples["precision"], whole.samples["precision"])


def test_a_stored_run_ends_where_the_same_run_in_memory_does(tmp_path):
    def after_fifty(samples):
        return samples["precision"].shape[1] >= 50

    stored = run(enough=after_fifty, store=tmp_path / "chains")
    again = run(enough=after_fifty, store=tmp_path / "chains")
    assert (stored.num_samples, again.num_samples) == (50, 50)
    np.testing.assert_array_equal(again.samples["precision"], stored.samples["precision"])


def test_the_end_of_the_time_leaves_finished_draws():
    with pytest.warns(UserWarning, match="25 of 100000 draws"):
        short = run(max_time=1e-6, num_warmup=1000, num_samples=100_000)
    assert (short.ended, short.interrupted, short.num_samples) == ("time", True, 25)
    assert int(short.state.n_warmup) == 25  # the first chunk, and not 1000


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "an hour"])
def test_a_wrong_max_time_is_refused(wrong):
    with pytest.raises(ValueError, match="max_time"):
        run(max_time=wrong)


def test_the_classifier_ends_early_and_says_so():
    model = BMSVMClassifier(lengthscale=3.5, num_samples=5000, random_state=0).fit(ROWS, LABELS)
    assert model.run_.ended == "enough"
    assert 50 <= model.run_.num_samples < 5000
    assert max(each.r_hat for each in model.diagnostics_.values()) <= 1.05
    assert min(each.ess for each in model.diagnostics_.values()) >= 200


def test_the_classifier_warns_when_the_time_is_over():
    model = BMSVMClassifier(lengthscale=3.5, num_samples=100_000, random_state=0)
    with (
        few_draws(),
        pytest.warns(UserWarning, match="max_time is over: 25 of at most 100000 draws"),
    ):
        model.fit(ROWS, LABELS, max_time=1e-6)
    assert model.predict(ROWS).shape == LABELS.shape


def test_the_time_of_choosing_the_lengthscale_counts(monkeypatch):
    """Chains get what is left of the time, or next to none."""
    given = []

    def spy(*args, max_time, **settings):
        given.append(max_time)
        return run_chains(*args, max_time=max_time, **settings)

    monkeypatch.setattr("bmsvm._fitting.run_chains", spy)
    clock = iter([100.0, 140.0, 100.0, 170.0])  # at the call of fit, and before the chains
    monkeypatch.setattr("bmsvm.classifier.time", SimpleNamespace(monotonic=lambda: next(clock)))
    model = BMSVMClassifier(lengthscale=3.5, num_samples=50, random_state=0)
    with few_draws():
        model.fit(ROWS, LABELS, max_time=60)
    with few_draws(), pytest.warns(UserWarning, match="max_time is over"):
        model.fit(ROWS, LABELS, max_time=60)
    assert given[0] == 20.0
    assert 0 < given[1] < 1e-3


def test_the_paper_runs_as_many_draws_as_printed():
    model = BMSVMClassifier.paper(lengthscale=3.5, num_warmup=10, num_samples=60, random_state=0)
    model.set_params(sampler=Paper(thinning=1))
    with few_draws():
        assert model.fit(ROWS, LABELS).run_.num_samples == 60
