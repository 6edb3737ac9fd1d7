"""What is made of class probabilities: entropies, intervals, sets, and rows to leave out."""

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from scipy import stats

from bmsvm import BMSVMClassifier, PredictiveDistribution
from bmsvm.prediction.uncertainty import accept, entropy, prediction_sets, summarise

FEW = settings(deadline=None, max_examples=50, derandomize=True, database=None)
TABLES = arrays(float, st.tuples(st.integers(1, 8), st.integers(2, 5)), elements=st.floats(0.01, 1))
PROBABILITIES = TABLES.map(lambda table: table / table.sum(1, keepdims=True))


def test_draws_that_agree_are_chance_and_draws_that_differ_are_ignorance():
    fair = np.full((1, 2, 100), 0.5)
    torn = np.zeros((1, 2, 100))
    torn[0, 0, :50] = torn[0, 1, 50:] = 1
    for draws, aleatoric, epistemic in ((fair, np.log(2), 0), (torn, 0, np.log(2))):
        found = summarise(draws, draws, 0.9)
        np.testing.assert_allclose(found.entropy, np.log(2))
        np.testing.assert_allclose(found.aleatoric, aleatoric, atol=1e-12)
        np.testing.assert_allclose(found.epistemic, epistemic, atol=1e-12)
    np.testing.assert_allclose(summarise(torn, torn, 0.9).lower, 0)
    np.testing.assert_allclose(summarise(torn, torn, 0.9).upper, 1)


@FEW
@given(seed=st.integers(0, 10_000))
def test_the_parts_add_up_and_are_not_negative(seed):
    draws = np.random.default_rng(seed).dirichlet([0.5] * 4, size=(3, 50)).swapaxes(1, 2)
    found = summarise(draws, draws, 0.5)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.entropy, atol=1e-12)
    expected = [stats.entropy(row.mean(1)) - stats.entropy(row).mean() for row in draws]
    np.testing.assert_allclose(found.epistemic, expected, atol=1e-10)


def test_intervals_are_quantiles_of_the_draws_and_hold_the_mean_of_skewed_ones():
    chances = np.append(np.linspace(0.4, 0.6, 99), [0.0])
    skewed = np.append(np.linspace(0.996, 0.997, 99), [0.0])  # the mean is below the quantiles
    draws = np.array([[each, 1 - each] for each in (chances, skewed)])
    found, (lower, upper) = summarise(draws, draws, 0.9), np.quantile(draws, (0.05, 0.95), axis=-1)
    np.testing.assert_array_equal((found.lower[0], found.upper[0]), (lower[0], upper[0]))
    mean = draws[1].mean(axis=-1)
    np.testing.assert_array_equal(found.lower[1], [mean[0], lower[1, 1]])
    np.testing.assert_array_equal(found.upper[1], [upper[1, 0], mean[1]])


def test_entropy_of_certainty_is_zero():
    np.testing.assert_array_equal(entropy(np.eye(3)), 0)


@FEW
@given(probabilities=PROBABILITIES, level=st.floats(0.05, 0.99))
def test_sets_reach_their_level_and_none_is_larger_than_it_must_be(probabilities, level):
    member = prediction_sets(probabilities, level)
    held = np.where(member, probabilities, 0).sum(1)
    assert np.all(held >= level - 1e-12)
    least = np.where(member, probabilities, np.inf).min(1)
    assert np.all(held - least < level + 1e-12)
    assert np.all(member[np.arange(len(member)), probabilities.argmax(1)])


@FEW
@given(probabilities=PROBABILITIES, error=st.floats(0.01, 0.8))
def test_accepted_rows_meet_the_target_and_one_more_would_not(probabilities, error):
    risk = 1 - probabilities.max(1)
    chosen = accept(probabilities, error)
    if chosen.any():
        assert risk[chosen].mean() <= error + 1e-12
    if not chosen.all():
        assert np.append(risk[chosen], risk[~chosen].min()).mean() > error - 1e-12
    each = accept(probabilities, error, each_row=True)
    np.testing.assert_array_equal(each, risk <= error)
    assert chosen.sum() >= each.sum()


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 2)) + 3 * np.eye(3)[y][:, :2]
    settings = {"num_chains": 2, "num_warmup": 200, "num_samples": 200, "random_state": 0}
    fitted = BMSVMClassifier(lengthscale=1.0, **settings).fit(X, y)
    return fitted, X, y


FAR = np.array([[40.0, 0.0], [0.0, -40.0], [-40.0, -40.0]])


def test_ignorance_grows_away_from_the_data(model):
    fitted, X, _ = model
    center = X.mean(0)
    path = center + np.linspace(0, 30, 20)[:, None] * np.array([[0.6, 0.8]])
    epistemic = fitted.predict_uncertainty(path).epistemic
    near, far = fitted.predict_uncertainty(X), fitted.predict_uncertainty(FAR)
    assert far.epistemic.min() > np.quantile(near.epistemic, 0.95)
    assert epistemic[-1] > 2 * epistemic[0]
    assert np.all(far.upper - far.lower > 0.3)
    # Draws of the posterior say nothing there. Least squares keep their intercept.
    rows = fitted.standardized_rows(FAR)
    alone = PredictiveDistribution(fitted.posterior_).calibrated()
    np.testing.assert_allclose(alone.probabilities(rows), 1 / 3, atol=0.03)
    squares = fitted.predictive_.squares
    expected = np.exp(squares.intercept) / np.exp(squares.intercept).sum()
    np.testing.assert_allclose(np.exp(squares.log_probabilities(rows)), [expected] * 3, atol=0.01)


def test_the_representer_form_knows_no_ignorance_there(model):
    fitted, *_ = model
    process = fitted.predict_uncertainty(FAR)
    posterior = dataclasses.replace(fitted.posterior_, remainder=False)
    expansion = dataclasses.replace(fitted.predictive_, posterior=posterior)
    rows = fitted.standardized_rows(FAR)
    assert np.all(expansion.uncertainty(rows).epistemic < 0.2 * process.epistemic)
    alone = PredictiveDistribution(posterior).calibrated()
    assert np.all(alone.uncertainty(rows).epistemic < 0.2 * process.epistemic)
    np.testing.assert_allclose(alone.probabilities(rows), 1 / 3, atol=0.05)


def test_the_numbers_are_those_of_the_other_methods(model):
    fitted, X, _ = model
    found = fitted.predict_uncertainty(X[:7], level=0.8)
    np.testing.assert_array_equal(found.probabilities, fitted.predict_proba(X[:7]))
    np.testing.assert_array_equal(found.exclusion, fitted.predict_exclusion(X[:7]))
    assert np.all((found.lower <= found.probabilities) & (found.probabilities <= found.upper))
    assert np.all((found.exclusion > 0) & (found.exclusion <= 1))
    wide = fitted.predict_uncertainty(X[:7], level=0.99)
    assert np.all((wide.lower <= found.lower) & (wide.upper >= found.upper))


def test_rejected_rows_are_masked(model):
    fitted, X, _ = model
    labels = fitted.predict_reject(X, error=0.02)
    assert 0 < labels.mask.sum() < len(X)
    risk = 1 - fitted.predict_proba(X).max(1)
    assert risk[~labels.mask].mean() <= 0.02
    np.testing.assert_array_equal(labels.data, fitted.predict(X))
    assert fitted.predict_reject(X, error=0.02, each_row=True).mask.sum() >= labels.mask.sum()


def test_prediction_sets_hold_the_label(model):
    fitted, X, y = model
    member = fitted.prediction_sets(X, level=0.9)
    assert member.shape == (60, 3)
    assert member[np.arange(60), y].mean() > 0.85
    assert fitted.prediction_sets(FAR, level=0.9).sum(1).min() == 3


@pytest.mark.parametrize("value", [0, 1, -0.1, np.nan, "0.9", None])
def test_levels_that_are_no_probabilities_are_named(model, value):
    fitted, X, _ = model
    for method, name in (
        (fitted.predict_uncertainty, "level"),
        (fitted.prediction_sets, "level"),
        (fitted.predict_reject, "error"),
    ):
        with pytest.raises(ValueError, match=f"^{name} ") as caught:
            method(X, value)
        assert repr(value) in str(caught.value)
