"""Calibration: what it is, how it is found, and what it does to a classifier."""

import jax
import numpy as np
import oracle
import pytest

from bmsvm import BMSVMClassifier, BMSVMGibbs, maximize_evidence, prepare, run_chains
from bmsvm.inference import run as runner
from bmsvm.inference.calibration import NONE, Calibration, best_calibration, calibrate
from bmsvm.inference.loo import leave_one_out
from bmsvm.models.couplings import contrast
from bmsvm.models.gram_gradient import gram_gradient
from bmsvm.models.regram import with_gram

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:the ascent"
)

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
    raw = fit(calibration=None)
    assert raw.calibration_ == NONE
    assert fitted.calibration_ != NONE
    expected = calibrate(raw.predict_proba(X), fitted.calibration_)
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
        found = leave_one_out(samples, fitted.problem_, num_nodes=64)
    expected = best_calibration(found.probabilities[: len(X)], Y)
    np.testing.assert_allclose(fitted.calibration_, expected, rtol=1e-2)


def test_longer_chains_are_calibrated_by_all_their_draws(fitted):
    more = fit(num_samples=40).fit_more(20)
    assert more.calibration_ == fitted.calibration_


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({"likelihood": "probit"}, 'likelihood="hinge" or "normalized".*got \'probit\''),
        ({"coupling": "independent"}, "coupling=\"sum_to_zero\".*got 'independent'"),
    ],
)
def test_models_without_leave_one_out_are_left_as_they_are(settings, needed):
    assert fit(**settings, preset="paper", num_samples=10).calibration_ == NONE
    with pytest.raises(ValueError, match=f'calibration="loo" needs {needed}: pass'):
        fit(**settings, calibration="loo")


def test_an_unknown_calibration_is_named():
    with pytest.raises(ValueError, match="calibration must be one of 'auto', 'loo'"):
        fit(calibration="platt")


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
    many = prepare(rows, labels, lengthscale="sample", lengthscale_grid=grid, **shared)
    one = prepare(rows, labels, lengthscale=grid[2], **shared)
    for sampled, fixed in zip(leave_one_out(sites, many), leave_one_out(sites, one), strict=True):
        np.testing.assert_allclose(sampled, fixed, rtol=1e-6)


# Chains that the search for theta has tuned -------------------------------------------------------


def test_spare_rows_do_not_move_the_ascent():
    """Averaged over the columns of spare rows, given the others, their gradient is nothing."""
    tau, sigma2, draws = 0.4, 1.3, 20_000
    hyper = oracle.LIVELY
    few, wider = (prepare(X[:8], Y[:8], hyperparameters=hyper, spare_rows=k) for k in (0, 3))
    gram = np.exp(-0.5 * (X[:8, :1] - X[:8, 0]) ** 2)
    few, wider = with_gram(few, gram), with_gram(wider, gram)
    assert wider.n_rows == 11
    columns = RNG.normal(size=(8, 2))
    covariance = np.eye(11) + 1 / hyper.intercept_precision
    covariance[:8, :8] += gram / tau
    gain = np.linalg.solve(covariance[:8, :8], covariance[:8, 8:]).T
    left = covariance[8:, 8:] - gain @ covariance[:8, 8:]
    noise = np.linalg.cholesky(sigma2 * left) @ RNG.normal(size=(draws, 3, 2))
    both = np.concatenate([np.tile(columns, (draws, 1, 1)), gain @ columns + noise], axis=1)
    found = gram_gradient(both, np.full(draws, tau), np.full(draws, 1 / sigma2), wider)
    expected = gram_gradient(columns[None], np.array([tau]), np.array([1 / sigma2]), few)
    np.testing.assert_allclose(found[:8, :8], expected, atol=0.02 * np.abs(expected).max())


def test_tuned_chains_go_on_and_tune_no_more():
    found = maximize_evidence(
        X,
        Y,
        rng_key=jax.random.key(0),
        likelihood="normalized",
        num_warmup=40,
        num_steps=20,
        sweeps=3,
        num_chains=2,
        progress_bar=False,
    )
    sampler = BMSVMGibbs(lengthscale=found.lengthscale, likelihood="normalized")
    run = run_chains(
        sampler,
        jax.random.key(1),
        found.state.problem,
        num_warmup=30,
        num_samples=40,
        num_chains=2,
        tuned=found.state,
        collect=("precision", "step_size"),
        progress_bar=False,
    )
    assert int(run.state.i) == 70
    assert int(run.state.n_warmup) == 30
    steps = run.samples["step_size"]
    np.testing.assert_array_equal(steps, np.broadcast_to(steps[:, :1], steps.shape))
    gram = found.state.problem.factor
    expected = prepare(X, Y, lengthscale=found.lengthscale).factor
    np.testing.assert_allclose(
        (gram.basis * gram.eigenvalues) @ gram.basis.T,
        (expected.basis * expected.eigenvalues) @ expected.basis.T,
        atol=1e-4,
    )


def test_a_classifier_goes_on_from_its_search_and_compiles_nothing_new():
    before = runner._advance._cache_size()
    model = BMSVMClassifier(
        lengthscale="marginal-likelihood", num_samples=20, num_chains=2, random_state=0
    ).fit(X, Y)
    assert runner._advance._cache_size() <= before + 1  # the search and the chains share it
    assert model.n_iter_ == 50 + 20
    assert model.run_.sampler.lengthscale_selection.state is None


@pytest.mark.long
def test_another_sampler_has_to_tune_itself():
    settings = {"num_samples": 20, "num_chains": 2, "random_state": 0}
    other = BMSVMClassifier(preset="gibbs", likelihood="hinge", **settings).fit(X, Y)
    assert other.n_iter_ == 300 + 20
