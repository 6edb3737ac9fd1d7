"""Relevance of features: derivatives of least squares, and what the classifier makes of them."""

import numpy as np
import pytest
from few_draws import few_draws
from scipy.spatial.distance import cdist

from bmsvm import BMSVMClassifier, load, save
from bmsvm.kernels import Gaussian, Laplacian
from bmsvm.scaling import learn
from bmsvm.selection import relevance as module
from bmsvm.selection.relevance import (
    factors_of,
    halves,
    log_slopes,
    mean_squared_slopes,
    relevance,
    reliability,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6))
LABELS = (X[:, 0] > 0.3).astype(int) + (X[:, 1] + 0.3 * RNG.normal(size=120) > -0.2)
ONES = np.ones(120)
KERNELS = {"gaussian": Gaussian(), "laplacian": Laplacian()}
QUICK = {"num_chains": 2, "num_warmup": 20, "num_samples": 10, "random_state": 0}


def gram(name, left, right, theta):
    """Kernel values by SciPy."""
    if name == "laplacian":
        return np.exp(-cdist(left, right, "cityblock") / theta)
    return np.exp(-0.5 * cdist(left, right, "sqeuclidean") / theta**2)


# Derivatives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_slopes_are_those_of_finite_differences(name):
    rows, theta, step = X[:25], 1.7, 1e-6
    coefficients = RNG.normal(size=(25, 3))
    weights = RNG.uniform(0.5, 2, size=25)
    expected = []
    for j in range(6):
        ahead, behind = rows.copy(), rows.copy()
        ahead[:, j] += step
        behind[:, j] -= step
        change = gram(name, ahead, rows, theta) - gram(name, behind, rows, theta)
        slopes = change @ coefficients / (2 * step)
        expected.append(np.average(np.mean(slopes**2, axis=1), weights=weights))
    found = mean_squared_slopes(KERNELS[name], theta, rows, coefficients, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_factors_are_fourth_roots_of_mean_square_one():
    logs = np.log([1.0, 16.0, 81.0, 4.0])
    found = factors_of(logs, 1.0)
    np.testing.assert_allclose(np.mean(found**2), 1)
    np.testing.assert_allclose(found[1:] / found[0], [2, 3, 4**0.25])
    half = factors_of(logs, 0.5)
    np.testing.assert_allclose(half[1:] / half[0], np.sqrt([2, 3, 4**0.25]))
    np.testing.assert_array_equal(factors_of(logs, 0.0), 1)


def test_reliability_is_the_share_of_the_variance_that_is_not_chance():
    """Of the mean of two halves, each with its own noise. False alarm: about 1e-4."""
    signal, noise = RNG.normal(size=4000), RNG.normal(size=(3, 2, 4000))
    pairs = [tuple(part - part.mean() for part in signal + 1.5 * each) for each in noise]
    exact = 1 / (1 + 1.5**2 / 2)
    assert reliability(pairs) == pytest.approx(exact, abs=0.05)
    assert reliability([(signal, signal)]) == pytest.approx(1)
    assert reliability([(signal, -signal)]) == 0
    assert reliability([(signal, -0.1 * signal)]) == 0
    assert reliability([(np.zeros(3), np.zeros(3))]) == 0


def test_halves_have_equal_shares_of_the_classes():
    labels = np.repeat([0, 1, 2], [10, 31, 4])
    for one, other in halves(labels):
        np.testing.assert_array_equal(np.sort(np.concatenate([one, other])), np.arange(45))
        counts = np.bincount(labels[one]) - np.bincount(labels[other])
        assert np.abs(counts).max() <= 1


def test_no_feature_is_left_out_altogether():
    """A feature on which nothing depends is divided by about (1/1000)^(1/4), not by more."""
    rows = np.column_stack([X[:, 0], np.zeros(120)])
    found = log_slopes(rows, LABELS, 3, ONES)
    assert found[1] - found[0] == pytest.approx(np.log(1e-3 / 2.001))


# Relevance of rows with labels -----------------------------------------------------------------


def test_features_that_make_the_classes_are_relevant():
    found = relevance(X, LABELS, 3, ONES)
    np.testing.assert_allclose(np.mean(found**2), 1)
    assert found[:2].min() > 1.1 * found[2:].max()


def test_the_order_of_features_and_their_sign_do_not_matter():
    found = relevance(X, LABELS, 3, ONES)
    order = [3, 1, 5, 0, 4, 2]
    np.testing.assert_allclose(relevance(-X[:, order], LABELS, 3, ONES), found[order], rtol=1e-6)


def test_a_single_feature_stays_as_it_is():
    np.testing.assert_allclose(relevance(X[:, :1], LABELS, 3, ONES), 1)


def test_equal_rows_have_no_slopes():
    np.testing.assert_array_equal(relevance(np.ones((20, 3)), np.arange(20) % 2, 2, ONES[:20]), 1)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_rows_have_finite_relevance(n):
    found = relevance(X[:n], np.arange(n) % 2, 2, ONES[:n])
    np.testing.assert_allclose(np.mean(found**2), 1)


@pytest.mark.parametrize("p", [100, 1000])
def test_of_many_features_without_any_relevance_none_is_raised(p):
    """What looks relevant in one half of the rows does not in the other."""
    rng = np.random.default_rng(p)
    rows, labels = rng.normal(size=(60, p)), np.arange(60) % 3
    np.testing.assert_allclose(relevance(rows, labels, 3, np.ones(60)), 1, atol=0.15)


def test_constant_features_do_not_matter():
    """Both halves of the rows agree on them; chance in the others is not more reliable for it."""
    rng = np.random.default_rng(2)
    rows, labels = rng.normal(size=(60, 100)), np.arange(60) % 3
    expected = relevance(rows, labels, 3, np.ones(60))
    for at, rounding in ((0, 0.0), (100, 1e-8)):
        still = rounding * rng.normal(size=(60, 5))
        both = np.concatenate([rows[:, :at], still, rows[:, at:]], axis=1)
        found = relevance(both, labels, 3, np.ones(60))
        constant = np.isin(np.arange(105), at + np.arange(5))
        np.testing.assert_allclose(found[constant], 1)
        np.testing.assert_allclose(found[~constant], expected, rtol=1e-6)


@pytest.mark.parametrize("likelihood", ["auto", "squared"])
def test_labels_unrelated_to_many_features_are_predicted_by_their_frequencies(likelihood):
    """Relevance learned from noise would make it look like a signal."""
    rng = np.random.default_rng(100)
    rows, labels = rng.normal(size=(60, 300)), np.arange(60) % 3
    with few_draws():
        fit = BMSVMClassifier(**QUICK, likelihood=likelihood).fit(rows, labels)
    assert fit.predictive_.calibration.unrelated > 0.9
    assert fit.predict_proba(rng.normal(size=(200, 300))).max() < 0.4


def test_rows_of_little_weight_hardly_count():
    """The second half has other labels; with tiny weights the first decides."""
    other = (X[:, 4] > 0).astype(int) + (X[:, 5] > 0)
    labels = np.where(np.arange(120) < 60, LABELS, other)
    weights = np.where(np.arange(120) < 60, 1, 1e-3)
    found = relevance(X, labels, 3, weights)
    assert found[:2].min() > found[4:].max()


def test_many_rows_are_sampled(monkeypatch):
    rows = RNG.normal(size=(3000, 4))
    labels = (rows[:, 2] > 0).astype(int)
    monkeypatch.setattr(module, "ROWS", (40, 200))
    seen = []

    def watched(used, *rest):
        seen.append(used)
        return log_slopes(used, *rest)

    monkeypatch.setattr(module, "log_slopes", watched)
    assert relevance(rows, labels, 2, np.ones(3000)).argmax() == 2
    monkeypatch.setattr(module, "SLOPES", 4 * 90**2)
    relevance(rows, labels, 2, np.ones(3000))
    monkeypatch.setattr(module, "SLOPES", 1)
    relevance(rows, labels, 2, np.ones(3000))
    sizes = [len(used) for used in seen]
    assert sizes[0::7] == [200, 90, 40]  # and three times two halves of them
    assert sizes[1:7] == [100] * 6


# The classifier --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    with few_draws():
        return BMSVMClassifier(**QUICK).fit(100 * X + 7, LABELS)


def test_the_default_multiplies_robust_features_by_their_relevance(model):
    scaled = learn(100 * X + 7, "robust").apply(100 * X + 7)
    factors = relevance(scaled, LABELS, 3, ONES)
    np.testing.assert_allclose(model.scaling_.relevance, factors)
    np.testing.assert_allclose(model.standardized_rows(100 * X + 7), scaled * factors)
    np.testing.assert_array_equal(
        model.posterior_.training_rows, model.standardized_rows(100 * X + 7)
    )
    np.testing.assert_allclose(model.in_original_units(scaled * factors), 100 * X + 7, rtol=1e-9)
    with few_draws():
        same = BMSVMClassifier(**QUICK, standardize=False).fit(scaled * factors, LABELS)
    np.testing.assert_allclose(
        same.predict_proba(scaled[:9] * factors), model.predict_proba(100 * X[:9] + 7), atol=1e-6
    )


def test_weights_of_the_rows_have_a_part_in_relevance():
    weights = RNG.uniform(0.1, 3, size=120)
    with few_draws():
        found = BMSVMClassifier(**QUICK, likelihood="squared").fit(X, LABELS, weights)
    scaled = learn(X, "robust").apply(X)
    np.testing.assert_allclose(
        found.scaling_.relevance, relevance(scaled, LABELS, 3, weights), rtol=1e-6
    )


@pytest.mark.parametrize(
    "settings",
    [{"lengthscale": 1.5}, {"standardize": "robust"}, {"standardize": "standard"}],
    ids=str,
)
def test_features_count_alike_where_the_scale_is_the_users(settings):
    with few_draws():
        found = BMSVMClassifier(**QUICK, likelihood="squared", **settings).fit(X, LABELS)
    np.testing.assert_array_equal(found.scaling_.relevance, 1)


def test_one_lengthscale_per_feature_is_the_same_as_relevance():
    """The documented way to save the choice in a second fit."""
    with few_draws():
        first = BMSVMClassifier(**QUICK, likelihood="squared").fit(X, LABELS)
        theta = first.lengthscale_ / first.scaling_.relevance
        again = BMSVMClassifier(
            **QUICK, likelihood="squared", kernel=first.kernel_, lengthscale=theta
        ).fit(X, LABELS)
    assert np.ptp(first.scaling_.relevance) > 0.1
    grams = [
        factor.basis * factor.eigenvalues @ factor.basis.T
        for factor in (each.posterior_.problem.factor for each in (first, again))
    ]
    np.testing.assert_allclose(*grams, atol=1e-6)


def test_a_file_keeps_relevance(model, tmp_path):
    save(model, tmp_path / "model.bmsvm")
    kept = load(tmp_path / "model.bmsvm")
    np.testing.assert_array_equal(kept.scaling_.relevance, model.scaling_.relevance)
    np.testing.assert_array_equal(kept.predict_proba(X), model.predict_proba(X))


def test_irrelevant_features_cost_less_accuracy():
    """Two of 24 features make the classes: fewer errors than with features that count alike."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(600, 24))
    labels = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0)
    errors = {}
    for how in ("auto", "robust"):
        fit = BMSVMClassifier(likelihood="squared", standardize=how, random_state=0)
        errors[how] = 1 - fit.fit(rows[:200], labels[:200]).score(rows[200:], labels[200:])
    assert errors["auto"] < 0.9 * errors["robust"]
