"""Calibration: what it is, how it is found, and what it does to a classifier."""

import jax
import numpy as np
import oracle
import pytest

from bmsvm import BMSVMClassifier, Paper, Sampled, prepare
from bmsvm.models.couplings import contrast
from bmsvm.prediction.calibration import NONE, Calibration, best_calibration, calibrate
from bmsvm.prediction.leave_one_out import leave_one_out

pytestmark = pytest.mark.few_draws

RNG = np.random.default_rng(0)
Y = np.arange(30) % 3
X = RNG.normal(size=(30, 2)) + 1.5 * np.c_[Y == 1, Y == 2]
SHORT = {"lengthscale": 2.0, "num_chains": 2, "num_warmup": 50, "num_samples": 60}


def fit(**settings):
    return BMSVMClassifier(**{**SHORT, "random_state": 0, **settings}).fit(X, Y)


@pytest.fixture(scope="module")
def fitted():
    return fit()


def test_calibration_sharpens_and_keeps_the_order():
    p = RNG.dirichlet(np.ones(4), size=(5, 3))
    by = Calibration(2.5, 0.1)
    sharp = p**2.5 / np.sum(p**2.5, -1, keepdims=True)
    np.testing.assert_allclose(calibrate(p, by), 0.9 * sharp + 0.1 / 4)
    np.testing.assert_array_equal(np.argsort(calibrate(p, by)), np.argsort(p))
    turned = calibrate(np.swapaxes(p, 1, 2), by, axis=1)
    np.testing.assert_allclose(turned, np.swapaxes(calibrate(p, by), 1, 2))
    assert calibrate(p, NONE) is p
    assert np.isfinite(calibrate(np.array([1.0, 0.0]), Calibration(20.0, 0.0))).all()


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_power_that_made_the_labels_is_found(power):
    p = RNG.dirichlet(np.ones(3), size=40_000)
    labels = np.array([RNG.choice(3, p=q) for q in calibrate(p, Calibration(power, 0.0))])
    assert best_calibration(p, labels).power == pytest.approx(power, rel=0.03)


def test_rows_count_by_their_weights():
    p = RNG.dirichlet(np.ones(3), size=300)
    labels = np.argmax(p, axis=1)
    twisted = np.where(np.arange(300) < 150, labels, (labels + 1) % 3)
    weights = np.where(np.arange(300) < 150, 1.0, 0.0)
    alone = best_calibration(p[:150], labels[:150])
    np.testing.assert_allclose(best_calibration(p, twisted, weights), alone, rtol=1e-4)
    assert best_calibration(p, twisted).power < 1 < alone.power


def test_no_more_is_promised_than_so_few_rows_can_show():
    labels = np.arange(200) % 2
    p = np.where(np.eye(2)[labels] > 0, 1 - 1e-12, 1e-12)
    found = best_calibration(p, labels)
    assert found.chance == pytest.approx(0.5 / 200.5)
    assert calibrate(p, found).max() == pytest.approx(1 - 0.25 / 200.5)
    assert found.power == pytest.approx(1.0, abs=0.01)  # nothing but the prior speaks of it


def test_calibration_changes_probabilities_and_no_prediction(fitted):
    raw = fit(predictive="posterior")
    assert raw.posterior_.calibration == NONE
    assert fitted.posterior_.calibration != NONE
    expected = calibrate(raw.predict_proba(X), fitted.posterior_.calibration)
    np.testing.assert_allclose(fitted.predict_proba(X), expected)
    np.testing.assert_array_equal(fitted.predict(X), raw.predict(X))
    one, other = fitted.predict_uncertainty(X), raw.predict_uncertainty(X)
    np.testing.assert_array_equal(one.epistemic, other.epistemic)
    np.testing.assert_array_equal(one.probabilities, fitted.predict_proba(X))
    assert np.all((one.lower <= one.upper) & (one.lower >= 0) & (one.upper <= 1))


def test_it_is_that_of_leave_one_out(fitted):
    samples = {
        name: value.reshape(-1, *value.shape[2:]) for name, value in fitted.run_.samples.items()
    }
    with jax.enable_x64(True):
        found = leave_one_out(samples, fitted.posterior_.problem, num_nodes=64)
    expected = best_calibration(found.probabilities[: len(X)], Y)
    np.testing.assert_allclose(fitted.posterior_.calibration, expected, rtol=1e-2)


def test_longer_chains_are_calibrated_by_all_their_draws(fitted):
    more = fit(num_samples=40).fit_more(20)
    assert more.posterior_.calibration == fitted.posterior_.calibration


@pytest.mark.parametrize(
    "settings",
    [
        {"likelihood": "probit"},
        {"coupling": "independent"},
        {"lengthscale": Sampled(bounds=(0.5, 5.0), grid="off", every=5)},
    ],
    ids=["probit", "independent", "off-grid"],
)
def test_models_without_leave_one_out_are_left_as_they_are(settings):
    """Asked to calibrate them, the classifier refuses: see test_classifier.py."""
    plain = fit(**settings, sampler=Paper(thinning=1), num_samples=10)
    assert plain.posterior_.calibration == NONE


def test_asking_for_calibration_is_the_default_here(fitted):
    assert fit(predictive="calibrated").posterior_.calibration == fitted.posterior_.calibration


def test_leave_one_out_of_a_sampled_lengthscale_is_that_of_each_value():
    """Draws that all sit on one value of the grid, against the problem at that value."""
    case = oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 2, 1))
    _, draws = oracle.exact_draws(case, 200)
    rows, grid = np.random.default_rng(1).normal(size=(5, 2)), np.geomspace(0.5, 4.0, 4)
    shared = {"likelihood": "normalized", "hyperparameters": oracle.LIVELY}
    sites = {
        "scores": draws.columns @ contrast(3).T,
        "noise_variance": draws.noise_variance,
        "precision": draws.precision,
        "lengthscale": np.full(200, grid[2]),
    }
    labels = np.array([0, 1, 2, 2, 1])
    many = prepare(rows, labels, lengthscale=Sampled(grid=grid), **shared)
    one = prepare(rows, labels, lengthscale=grid[2], **shared)
    for sampled, fixed in zip(leave_one_out(sites, many), leave_one_out(sites, one), strict=True):
        np.testing.assert_allclose(sampled, fixed, rtol=1e-6)
