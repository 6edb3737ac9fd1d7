"""Theta and tau by cross-validated modes: the modes, the weights of the pairs, and their use."""

import pickle

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from bmsvm import BMSVMClassifier, Hyperparameters, ModeCV, Paper, SquaresCV
from bmsvm.kernels import Gaussian, functions, gram
from bmsvm.models import DEFAULT
from bmsvm.selection import ModeSelection, Selection, modes

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
    matrix = gram(Gaussian().at(theta), X)
    weights = np.append(heaviest, np.linspace(0.5, 2.0, 29))
    held = np.zeros((30, 1, 2))
    held[::2, 0, 0] = held[1::2, 0, 1] = 1
    how = modes._root(matrix, weights), y, 3, weights, held, TAUS
    found, near = modes._held_out_modes(*how, steps=1000), modes._held_out_modes(*how)
    assert found.shape == near.shape == (3, 1, 30, 3)
    for number, tau in enumerate(TAUS):
        for fold in range(2):
            inside = held[:, 0, fold] > 0
            expected = mode_by_scipy(matrix, y, weights * ~inside, tau)[inside]
            size = np.abs(expected).max()
            np.testing.assert_allclose(found[number, 0, inside], expected, atol=2e-3 * size)
            if heaviest < 10:  # few steps are enough where weights are alike
                np.testing.assert_allclose(near[number, 0, inside], expected, atol=0.1 * size)


def test_rows_of_weight_zero_are_left_out():
    X, y = data(40)
    some, options = np.arange(40) < 30, {"grid": [1.0, 2.0], "precisions": [0.1, 0.01]}
    whole = find(X, y, model={"row_weights": some.astype(float)}, **options)
    alone = find(X[some], y[some], **options)
    np.testing.assert_array_equal(whole.log_loss, alone.log_loss)
    assert whole.num_rows == alone.num_rows == 30
    heavy = find(X, y, model={"row_weights": np.full(40, 1e300)}, **options)
    assert np.isfinite(heavy.log_loss).all()


def test_rows_are_assigned_to_folds_in_proportion_to_the_classes():
    labels = np.repeat([0, 1, 2], [10, 5, 3])
    held = modes._assign(labels, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(held.sum(1), 1)
    assert np.ptp(held.sum(0)) <= 1
    for label in range(3):
        assert np.ptp(held[labels == label].sum(0)) <= 1


def test_pairs_weigh_by_score_and_prior():
    """At a loss of one nat a row, rows and priors alone tell pairs apart."""
    X, y = data(40)
    median = functions.median_distance(X)
    grid, taus = median * 2.0 ** np.array([0.5, 1.5]), [0.1, 0.01]
    found = find(X, y, grid=grid, precisions=taus, repeats=1)
    log_prior = scipy.stats.norm.logpdf([0.5, 1.5], 0.5, 1.0)[:, None]
    log_prior = log_prior + scipy.stats.norm.logpdf([-1.0, -2.0], -2.0, 1.0)
    expected = scipy.special.softmax(log_prior - 40 * found.log_loss)
    np.testing.assert_allclose(found.weights, expected, rtol=1e-9)


def test_lengthscales_beyond_one_of_no_weight_are_not_tried(monkeypatch):
    """Going out from the prior's mean, each side ends where weights vanish, and only there."""
    X, y = data(40)
    median = functions.median_distance(X)
    grid = median * 2.0 ** np.arange(-3, 5)
    # Total losses at these lengthscales; the second side has its minimum beyond a hill.
    totals = dict(zip(grid, [0.0, 90.0, 60.0, 30.0, 25.0, 35.0, 5.0, 40.0], strict=True))
    tried = []
    monkeypatch.setattr(modes, "gram_of", lambda kernel, rows, theta: np.float64(theta))
    monkeypatch.setattr(modes, "check_gram", lambda theta: (float(theta), None))
    monkeypatch.setattr(modes, "_root", lambda theta, weights: tried.append(theta) or theta)
    monkeypatch.setattr(modes, "_held_out_modes", lambda theta, *args: np.array([[[theta]]]))
    monkeypatch.setattr(
        modes,
        "_calibrated_log_loss",
        lambda at, labels, weights: np.array([[totals[float(at[0, 0, 0])] / 40]]),
    )
    found = find(X, y, grid=grid, precisions=[0.01])
    # Below: 30, 60 (over 20 worse: the end; 90 and 0 beyond it are not seen).
    # Above: 25, 35 (less than 20 worse), 5, 40.
    assert [round(np.log2(each / median)) for each in tried] == [0, -1, 1, 2, 3, 4]
    assert np.isinf(found.log_loss[:2]).all()
    assert np.isfinite(found.log_loss[2:]).all()
    assert (found.weights[:2] == 0).all()
    assert found.lengthscale == pytest.approx(grid[6], rel=0.01)


def test_pairs_are_scored_after_calibration(monkeypatch):
    """Held-out scores, too large by a factor, are sharpened by the power found on a fine grid."""
    X, y = data(40, 0.3)
    weights = np.linspace(0.5, 2.0, 40)
    scores = 6.0 * np.eye(3)[data(40)[1]] + np.random.default_rng(1).normal(size=(40, 3))
    monkeypatch.setattr(modes, "_held_out_modes", lambda *args: scores[None, None])
    options = {"grid": [1.0], "precisions": [0.1], "repeats": 1}
    found = find(X, y, model={"row_weights": weights}, **options).log_loss.item()
    chance, logs = 0.5 / 40.5, np.linspace(-4, 4, 8001)
    sharp = scipy.special.softmax(np.exp(logs)[:, None, None] * scores, axis=2)
    own = ((1 - chance) * sharp + chance / 3)[:, np.arange(40), y]
    totals = np.log(own) @ weights
    best = np.argmax(totals - 0.5 * logs**2)
    assert found == pytest.approx(-totals[best] / weights.sum(), rel=1e-4)
    raw = -np.average(scipy.special.log_softmax(scores, axis=1)[np.arange(40), y], weights=weights)
    assert found < raw - 0.2


def find(X, y, seed=0, model=None, **options):
    model = {"kernel": "gaussian", **(model or {})}
    return ModeCV(**options).select(X, y, rng_key=jax.random.key(seed), **model)


def test_theta_follows_the_range_of_the_labels_and_tau_their_noise():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 12, size=(150, 1))
    wide, narrow = ((X[:, 0] // width).astype(int) % 3 for width in (4, 1))
    blurred = np.where(rng.random(150) < 0.4, rng.integers(3, size=150), narrow)
    grid = functions.median_distance(X) * 2.0 ** (np.arange(-3, 5) / 2)
    of_wide, of_narrow, of_blurred = (find(X, y, grid=grid) for y in (wide, narrow, blurred))
    assert of_narrow.lengthscale < 0.6 * of_wide.lengthscale
    assert of_blurred.precision > 5 * of_narrow.precision
    assert of_wide.log_loss.shape == (8, 10)
    assert find(X, wide).log_loss.shape == (5, 10)
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
    assert abs(np.log(first.precision / other.precision)) < 1  # repetitions are averaged


def test_some_rows_serve_for_all():
    X, y = data(90)
    found = find(X, y, max_rows=30, repeats=1, folds=3, grid=[1.0, 2.0], precisions=[0.1, 0.01])
    assert found.num_rows == 30
    assert found.log_loss.shape == (2, 2)
    shape = modes.STRENGTH * 30 * 2
    assert found.hyperparameters.precision_shape == shape
    assert found.hyperparameters.precision_rate == pytest.approx(shape / found.precision)
    assert found.hyperparameters.noise_shape == DEFAULT.noise_shape


@pytest.mark.parametrize(
    ("settings", "argument", "value"),
    [
        ({"model": {"likelihood": "hinge"}}, "likelihood", "'hinge'"),
        ({"model": {"coupling": "independent"}}, "coupling", "'independent'"),
        ({"model": {"kernel": "linear"}}, "lengthscale", "linear"),
        ({"model": {"row_weights": np.full(20, -1.0)}}, "row_weights", "-1.0"),
        ({"folds": 1}, "folds", "1"),
        ({"repeats": 0}, "repeats", "0"),
        ({"max_rows": 2}, "max_rows", "2"),
        ({"grid": [1.0, -2.0]}, "grid", "[1.0, -2.0]"),
        ({"precisions": 0.1}, "precisions", "0.1"),
    ],
    ids=str,
)
def test_mistakes_are_named(settings, argument, value):
    with pytest.raises(ValueError, match=f"^{argument}") as caught:
        find(*data(20), **settings)
    assert value in str(caught.value)


QUICK = {"num_chains": 2, "num_warmup": 40, "num_samples": 30, "random_state": 0}


@pytest.mark.few_draws
def test_the_classifier_stays_at_what_was_found():
    X, y = data(30, 0.1)
    model = BMSVMClassifier(**QUICK).fit(X, y)
    found = model.selection_
    assert isinstance(found, ModeSelection)
    assert model.lengthscale_ == found.lengthscale
    assert found.num_rows == 30
    assert model.posterior_.problem.hyper == found.hyperparameters
    drawn = np.log(model.run_.samples["precision"])
    assert np.abs(drawn.mean() - np.log(found.precision)) < 0.2
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.selection_.precision == found.precision
    assert again.fit_more(2).run_.num_samples == 32


@pytest.mark.few_draws
def test_chains_whose_tau_is_known_warm_up_for_a_shorter_time():
    X, y = data(30)
    quick = {**QUICK, "num_warmup": None, "num_samples": 10}
    one = ModeCV(grid=[1.0], precisions=[0.1], repeats=1)
    assert BMSVMClassifier(lengthscale=one, **quick).fit(X, y).n_iter_ == 75 + 10
    assert BMSVMClassifier(lengthscale=1.0, **quick).fit(X, y).n_iter_ == 150 + 10


@pytest.mark.few_draws
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "ModeCV"),
        ({"hyperparameters": Hyperparameters()}, "SquaresCV"),
        ({"likelihood": "hinge"}, "SquaresCV"),
        ({"coupling": "independent"}, "SquaresCV"),
        ({"kernel": "linear"}, None),
        ({"lengthscale": 2.0}, None),
        ({"lengthscale": "squares-cv"}, "SquaresCV"),
    ],
    ids=str,
)
def test_the_default_way_follows_the_model(settings, expected, monkeypatch):
    asked = []

    def choose(self, X, y, *, hyperparameters, **model):
        asked.append(type(self).__name__)
        return Selection(Gaussian(), 3.0, hyperparameters, len(X))

    for method in (ModeCV, SquaresCV):
        monkeypatch.setattr(method, "select", choose)
    quick = {**QUICK, "num_samples": 5, "sampler": Paper(thinning=1), **settings}
    fitted = BMSVMClassifier(**quick).fit(*data(24))
    assert asked == ([] if expected is None else [expected])
    assert fitted.lengthscale_ == (3.0 if expected else settings.get("lengthscale"))
