"""The classifier under the squared likelihood: fit, predict, continue, save, show."""

import pickle
import warnings

import matplotlib as mpl
import numpy as np
import pytest
import scipy.spatial
import scipy.special
from sklearn.exceptions import ConvergenceWarning

from bmsvm import HMC, BMSVMClassifier, Nystrom, Sampled, SquaresCV, Table, load, plots, save
from bmsvm.arviz import to_arviz
from bmsvm.datasets import load_wine
from bmsvm.prediction.calibration import best_power

mpl.use("Agg")
X, Y = load_wine(return_X_y=True)
TRAIN = np.arange(len(Y)) % 3 > 0
SETTINGS = {"likelihood": "squared", "num_samples": 60, "random_state": 0}
ON_A_GRID = Sampled(prior="log-uniform", grid=np.geomspace(0.5, 50, 13))


def fitted(**settings):
    return BMSVMClassifier(**{**SETTINGS, **settings}).fit(X[TRAIN], Y[TRAIN])


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return fitted(lengthscale=ON_A_GRID, num_samples=50).fit_more(100)


def log_loss(model):
    own = np.searchsorted(model.classes_, Y[~TRAIN])
    return -np.log(model.predict_proba(X[~TRAIN])[np.arange(len(own)), own]).mean()


def test_it_classifies_wine(model):
    assert model.score(X[~TRAIN], Y[~TRAIN]) > 0.94
    assert log_loss(model) < 0.15
    assert isinstance(model.run_.kernel.sampler_of(model.posterior_.problem), Table)
    assert model.n_iter_ == 150
    assert all(each.r_hat < 1.02 for each in model.diagnostics_.values())


def test_the_lengthscale_is_sampled_on_its_grid(model):
    values = np.asarray(model.posterior_.problem.grid.values)
    np.testing.assert_allclose(values, np.geomspace(0.5, 50, 13))
    drawn = model.posterior_.flat("lengthscale")
    assert np.all(np.isin(drawn, values))
    assert model.lengthscale_ == np.median(drawn)
    assert 1 < model.lengthscale_ < 20


@pytest.mark.slow
def test_chains_predict_the_same():
    """HMC at the same prior of theta; the probabilities differ by Monte Carlo error."""
    table, chains = (
        fitted(lengthscale=ON_A_GRID, predictive="posterior", sampler=sampler, num_samples=200)
        for sampler in ("auto", HMC())
    )
    one, other = (each.predict_proba(X[~TRAIN]) for each in (table, chains))
    assert np.abs(one - other).max() < 0.08
    assert np.abs(one - other).mean() < 0.01


def test_more_draws_are_those_of_a_longer_fit(model):
    longer = fitted(lengthscale=ON_A_GRID, num_samples=40).fit_more(110)
    for name, value in model.run_.samples.items():
        np.testing.assert_array_equal(longer.run_.samples[name], value)
    np.testing.assert_array_equal(longer.predict_proba(X), model.predict_proba(X))


def test_a_fit_can_be_pickled_and_saved(model, tmp_path):
    expected = model.predict_proba(X[~TRAIN])
    save(model, tmp_path / "model.bmsvm")
    for copy in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.bmsvm")):
        np.testing.assert_array_equal(copy.predict_proba(X[~TRAIN]), expected)
        more = copy.fit_more(10)
        assert more.run_.num_samples == 160


def test_a_checkpoint_is_continued(tmp_path):
    fit = BMSVMClassifier(**{**SETTINGS, "lengthscale": 3.5, "num_samples": 100})
    first = fit.fit(X, Y, checkpoint=tmp_path / "draws").predict_proba(X[:5])
    again = fit.fit(X, Y, checkpoint=tmp_path / "draws").predict_proba(X[:5])
    np.testing.assert_array_equal(first, again)


def test_it_is_seen_by_arviz_and_plots(model):
    data = to_arviz(model)
    assert data["posterior"]["lengthscale"].shape == (4, 150)
    logs = np.asarray(data["log_likelihood"]["y"])
    assert np.all(np.isfinite(logs))
    assert plots.trace(model) is not None
    draws = model.predictive_.sample(model.standardized_rows(X[:3]))
    np.testing.assert_allclose(draws.probabilities.sum(axis=-1), 1)
    # Probabilities given functions, softmax(kappa f / (sigma2 + s^2)), are those that are averaged.
    plain = fitted(lengthscale=ON_A_GRID, predictive="posterior", num_samples=150)
    found = plain.predictive_.sample(plain.standardized_rows(X[:3]))
    c = len(plain.classes_)
    noise = plain.posterior_.flat("noise_variance") + (0.5 / (c - 1)) ** 2
    logits = c / (c - 1) * found.functions / noise[:, None, None]
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    expected = (shares / shares.sum(axis=-1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(expected, plain.predict_proba(X[:3]), atol=1e-5)


def test_weights_of_classes_are_those_of_rows():
    counts = {label: 1.0 + label % 2 for label in np.unique(Y)}
    by_class = fitted(lengthscale=3.5, class_weight=counts)
    by_row = BMSVMClassifier(**{**SETTINGS, "lengthscale": 3.5})
    by_row.fit(X[TRAIN], Y[TRAIN], sample_weight=[counts[label] for label in Y[TRAIN]])
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X), atol=1e-12)


def left_out_by_refitting(rows, codes, theta, tau):
    """Functions of ridge regression with an intercept, each row predicted by a fit without it."""
    distances = ((rows[:, None] - rows) ** 2).sum(-1)
    gram = np.exp(-0.5 * distances / theta**2) / tau + 1 / 0.01
    predicted = np.empty_like(codes)
    for i in range(len(rows)):
        rest = np.arange(len(rows)) != i
        solved = np.linalg.solve(gram[np.ix_(rest, rest)] + np.eye(rest.sum()), codes[rest])
        predicted[i] = gram[i, rest] @ solved
    return predicted


def test_lengthscale_by_rows_left_out_against_refitting():
    """theta is the mean of log theta weighted by the log scores of fits without each row."""
    rows = fitted(lengthscale=3.5).standardized_rows(X[TRAIN])[:40]
    _, labels = np.unique(Y[TRAIN][:40], return_inverse=True)
    c = labels.max() + 1
    codes = (c * np.eye(c)[labels] - 1) / (c - 1)
    median = np.median(scipy.spatial.distance.pdist(rows))
    thetas = median * 2.0 ** (np.arange(-4, 5) / 2)
    scores = [
        [
            best_power(left_out_by_refitting(rows, codes, theta, tau), labels)[1]
            for tau in 10.0 ** (np.arange(-7, 3) / 2)
        ]
        for theta in thetas
    ]
    shares = scipy.special.softmax(scores)
    expected = np.exp(shares.sum(1) @ np.log(thetas))
    found = SquaresCV().select(rows, labels, kernel="gaussian")
    assert found.lengthscale == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("how", ["exact", Nystrom(rank=60)], ids=str)
def test_the_lengthscale_is_chosen_by_rows_left_out(how):
    model = fitted(approximation=how)
    assert ("scores" in model.posterior_.samples) == (how == "exact")
    assert model.selection_.lengthscale == model.lengthscale_
    rows = model.standardized_rows(X[TRAIN])
    found = SquaresCV().select(rows, Y[TRAIN])
    assert found.lengthscale == model.lengthscale_
    assert found.kernel == model.kernel_
    assert model.score(X[~TRAIN], Y[~TRAIN]) > 0.94
    few = SquaresCV(max_rows=50).select(rows, Y[TRAIN], row_weights=np.ones(len(rows)))
    assert few.num_rows == 50
    assert 0.3 < few.lengthscale / found.lengthscale < 3
    with pytest.raises(ValueError, match="kernel"):
        fitted(kernel="linear", lengthscale=SquaresCV())


def test_a_kernel_without_a_lengthscale():
    model = fitted(kernel="linear")
    assert model.lengthscale_ is None
    assert model.score(X[~TRAIN], Y[~TRAIN]) > 0.94
