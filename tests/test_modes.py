"""Theta and tau by cross-validated modes: the modes, the weights of the pairs, and their use."""

import pickle

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.special

from bmsvm import (
    PAPER,
    UNIT_NOISE,
    BMSVMClassifier,
    BMSVMGibbs,
    LowRank,
    cross_validate_modes,
    load,
    save,
)
from bmsvm.inference import modes
from bmsvm.kernels import gram_of

TAUS = np.array([1.0, 0.1, 0.01])


def data(n, noise=0.0, seed=0):
    """Three classes in the plane, some labels of which are drawn anew."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = np.array([[0, 0], [2, 0], [1, 2]])[y] + 0.5 * rng.normal(size=(n, 2))
    return X, np.where(rng.random(n) < noise, rng.integers(3, size=n), y)


def mode_by_scipy(gram, labels, weights, tau):
    """Maximise the penalised log likelihood over B, f = K B, as it is written."""
    n, c = len(labels), labels.max() + 1

    def loss(flat):
        B = flat.reshape(n, c)
        f = gram @ B
        logs = scipy.special.log_softmax(f, axis=1)
        value = -weights @ logs[np.arange(n), labels] + 0.5 * tau * np.sum(B * f)
        slope = gram @ (weights[:, None] * (np.exp(logs) - np.eye(c)[labels]) + tau * B)
        return value, slope.ravel()

    found = scipy.optimize.minimize(
        loss, np.zeros(n * c), jac=True, method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return gram @ found.x.reshape(n, c)


@pytest.mark.parametrize(("theta", "heaviest"), [(0.7, 2.0), (3.0, 2.0), (0.7, 1000.0)])
def test_modes_are_those_of_another_solver(theta, heaviest):
    X, y = data(30)
    gram = gram_of("gaussian", X, theta)
    weights = np.append(heaviest, np.linspace(0.5, 2.0, 29))
    held = np.zeros((30, 1, 2))
    held[::2, 0, 0] = held[1::2, 0, 1] = 1
    how = modes._root(gram, weights), y, 3, weights, held, TAUS
    found, near = modes._held_out_modes(*how, steps=1000), modes._held_out_modes(*how)
    assert found.shape == near.shape == (3, 1, 30, 3)
    for number, tau in enumerate(TAUS):
        for fold in range(2):
            inside = held[:, 0, fold] > 0
            expected = mode_by_scipy(gram, y, weights * ~inside, tau)[inside]
            size = np.abs(expected).max()
            np.testing.assert_allclose(found[number, 0, inside], expected, atol=2e-3 * size)
            if heaviest < 10:  # few steps are enough where weights are alike
                np.testing.assert_allclose(near[number, 0, inside], expected, atol=0.1 * size)


def test_rows_of_weight_zero_are_left_out():
    X, y = data(40)
    some, options = np.arange(40) < 30, {"grid": [1.0, 2.0], "precisions": [0.1, 0.01]}
    whole = find(X, y, row_weights=some.astype(float), **options)
    alone = find(X[some], y[some], **options)
    np.testing.assert_array_equal(whole.log_loss, alone.log_loss)
    assert whole.num_rows == alone.num_rows == 30
    heavy = find(X, y, row_weights=np.full(40, 1e300), **options)
    assert np.isfinite(heavy.log_loss).all()


def test_rows_are_dealt_in_proportion_to_the_classes():
    labels = np.repeat([0, 1, 2], [10, 5, 3])
    held = modes._deal(labels, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(held.sum(1), 1)
    assert np.ptp(held.sum(0)) <= 1
    for label in range(3):
        assert np.ptp(held[labels == label].sum(0)) <= 1


def test_pairs_weigh_by_score_and_prior():
    losses = np.zeros((2, 2))
    even = modes._shares(losses, 2.0 ** np.array([0.5, 1.5]), 10.0 ** np.array([-1.0, -2.0]))
    assert even.sum() == pytest.approx(1)
    assert even[0, 1] == even.max()  # where both priors are largest
    assert even[1, 1] / even[0, 1] == pytest.approx(np.exp(-0.5))
    losses[1, 0] = -20.0
    assert modes._shares(losses, np.ones(2), np.full(2, 0.01))[1, 0] == pytest.approx(1, abs=1e-6)


def find(X, y, seed=0, **settings):
    return cross_validate_modes(X, y, rng_key=jax.random.key(seed), progress_bar=False, **settings)


def test_theta_follows_the_range_of_the_labels_and_tau_their_noise():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 12, size=(150, 1))
    wide, narrow = ((X[:, 0] // width).astype(int) % 3 for width in (4, 1))
    blurred = np.where(rng.random(150) < 0.4, rng.integers(3, size=150), narrow)
    of_wide, of_narrow, of_blurred = (find(X, y) for y in (wide, narrow, blurred))
    assert of_narrow.lengthscale < 0.6 * of_wide.lengthscale
    assert of_blurred.precision > 5 * of_narrow.precision
    assert of_wide.log_loss.shape == (8, 10)
    for found in (of_wide, of_narrow, of_blurred):
        assert found.grid[0] < found.lengthscale < found.grid[-1]
        assert found.precisions[-1] < found.precision < found.precisions[0]
        assert found.weights.sum() == pytest.approx(1)
        assert found.num_rows == 150


def test_a_seed_is_a_choice():
    X, y = data(60, 0.2)
    first, again, other = find(X, y), find(X, y), find(X, y, seed=1)
    assert first.lengthscale == again.lengthscale
    assert first.precision == again.precision
    assert first.precision != other.precision
    assert abs(np.log(first.precision / other.precision)) < 1  # deals are averaged


def test_some_rows_serve_for_all():
    X, y = data(90)
    found = find(X, y, max_rows=30, deals=1, folds=3, grid=[1.0, 2.0], precisions=[0.1, 0.01])
    assert found.num_rows == 30
    assert found.log_loss.shape == (2, 2)
    shape = modes.STRENGTH * 30 * 2
    assert found.hyperparameters.precision_shape == shape
    assert found.hyperparameters.precision_rate == pytest.approx(shape / found.precision)
    assert found.hyperparameters.noise_shape == PAPER.noise_shape


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"likelihood": "hinge"}, "likelihood must be \"normalized\" .* got 'hinge'"),
        ({"coupling": "independent"}, "coupling must be \"sum_to_zero\" .* got 'independent'"),
        ({"kernel": "linear"}, "kernel must be one of"),
        ({"folds": 1}, "folds must be an integer of at least 2; got 1"),
        ({"deals": 0}, "deals must be an integer of at least 1; got 0"),
        ({"max_rows": 2}, "max_rows must be an integer of at least 3; got 2"),
        ({"grid": [1.0, -2.0]}, "grid must be a list of positive numbers"),
        ({"row_weights": np.full(20, -1.0)}, "row_weights"),
        ({"precisions": 0.1}, "precisions must be a list of positive numbers .* got 0.1"),
    ],
)
def test_mistakes_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        find(*data(20), **settings)


QUICK = {"num_chains": 2, "num_warmup": 40, "num_samples": 30, "random_state": 0}


@pytest.mark.filterwarnings("ignore::bmsvm.estimators.convergence.ConvergenceWarning")
def test_the_classifier_stays_at_what_was_found(tmp_path):
    X, y = data(40, 0.1)
    model = BMSVMClassifier(**QUICK).fit(X, y)
    found = model.run_.sampler.lengthscale_selection
    assert isinstance(found, modes.ModeCrossValidation)
    assert model.lengthscale_ == found.lengthscale
    assert model.lengthscale_rows_ == 40
    assert model.problem_.hyper == found.hyperparameters
    drawn = np.log(model.run_.samples["precision"])
    assert np.abs(drawn.mean() - np.log(found.precision)) < 0.2
    save(model, tmp_path / "model.bmsvm")
    for again in (load(tmp_path / "model.bmsvm"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert again.run_.sampler.lengthscale_selection.precision == found.precision
        assert again.fit_more(2).run_.num_samples == 32


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "mode-cv"),
        ({"hyperparameters": UNIT_NOISE}, "marginal-likelihood"),
        ({"likelihood": "hinge"}, "marginal-likelihood"),
        ({"coupling": "independent"}, "marginal-likelihood"),
        ({"kernel": "linear"}, 1.0),
        ({"lengthscale": 2.0}, 2.0),
        ({"lengthscale": "cv"}, "cv"),
    ],
)
def test_the_default_way_follows_the_model(settings, expected):
    assert BMSVMClassifier(**settings)._lengthscale() == expected


def test_the_sampler_takes_it_by_name():
    X, y = data(30)
    options = {"grid": [1.0, 2.0], "precisions": [0.1], "deals": 1, "progress_bar": False}
    sampler = BMSVMGibbs(
        likelihood="normalized", lengthscale="mode-cv", lengthscale_options=options
    )
    problem = sampler.prepare(X, y)
    assert problem.hyper == sampler.lengthscale_selection.hyperparameters
    assert sampler.lengthscale_selection.precision == pytest.approx(0.1)


def test_many_rows_tell_tau_themselves():
    X, y = data(40)
    sampler = BMSVMGibbs(
        likelihood="normalized",
        lengthscale="mode-cv",
        lengthscale_options={"grid": [1.0], "precisions": [0.1], "progress_bar": False},
        features=LowRank(rank=5),
    )
    assert sampler.prepare(X, y).hyper == PAPER
    assert sampler.lengthscale_selection.precision == pytest.approx(0.1)
