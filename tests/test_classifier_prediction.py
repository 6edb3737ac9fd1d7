"""Predictions of a fitted classifier, and the lengthscale it was fitted at."""

import dataclasses
import pickle

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from classifier_cases import SMALL, WORDS, X, Y, model
from few_draws import few_draws
from sklearn.preprocessing import StandardScaler

from bmsvm import (
    BMSVMClassifier,
    Hyperparameters,
    ModeCV,
    Nystrom,
    Paper,
    Predictive,
    Sampled,
    SquaresCV,
    kernels,
)
from bmsvm.kernels import Gaussian, gram
from bmsvm.models import DEFAULT
from bmsvm.prediction import evaluate
from bmsvm.selection import Method, Selection

QUICK = Paper(thinning=1)  # quick to compile


@pytest.fixture(scope="module")
def fitted():
    with few_draws():
        return model().fit(X, Y)


@pytest.mark.few_draws
@pytest.mark.parametrize("number", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_predict_is_the_largest_probability_on_many_points(monkeypatch, number):
    monkeypatch.setattr(evaluate, "DRAWS", 8)
    quick = model(num_samples=4).fit(X, Y)
    points = np.random.default_rng(5).normal(size=(number, 2)) * [4.0, 200.0]
    probabilities = quick.predict_proba(points)
    np.testing.assert_array_equal(quick.predict(points), WORDS[probabilities.argmax(1)])
    np.testing.assert_array_equal(
        quick.decision_function(points).argmax(1), probabilities.argmax(1)
    )
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_the_largest_score_is_the_largest_probability_where_logarithms_round(fitted, monkeypatch):
    third = 1 / 3
    ties = np.array(
        [
            [0.34, np.nextafter(0.34, 1), 0.32],  # whose logarithms may be the same
            [np.nextafter(third, 0), third, np.nextafter(third, 1)],
            [third, third, third],
            [1e-300, 0.5, np.nextafter(0.5, 1)],  # differences lost beside the mean
            [1e-300, 1.0, 1e-300],
        ]
    )
    best, logs = ties.argmax(1), np.log(ties)
    assert not np.array_equal((logs - logs.mean(1, keepdims=True)).argmax(1), best)
    monkeypatch.setattr(fitted, "predict_proba", lambda X: ties)
    np.testing.assert_array_equal(fitted.predict(X), WORDS[best])
    np.testing.assert_array_equal(fitted.decision_function(X).argmax(1), best)
    np.testing.assert_allclose(fitted.decision_function(X).sum(1), 0, atol=1e-9)


def test_pieces_are_told_what_the_whole_is_told(fitted):
    points = np.random.default_rng(6).normal(size=(300, 2)) * [4.0, 200.0]
    for method in ("predict_proba", "decision_function", "class_functions", "predict_exclusion"):
        predict = getattr(fitted, method)
        pieces = [predict(points[:1]), predict(points[1:140]), predict(points[140:])]
        np.testing.assert_array_equal(np.concatenate(pieces), predict(points))


@pytest.mark.few_draws
@pytest.mark.parametrize(
    ("settings", "remainder"),
    [({"predictive": Predictive(decision="exclusion")}, True), ({"predictive": "paper"}, False)],
    ids=["process", "paper"],
)
def test_the_papers_rule_is_equation_20(settings, remainder):
    fitted = model(likelihood="hinge", sampler=QUICK, **settings).fit(X, Y)
    assert_equation_20(fitted)
    assert fitted.posterior_.remainder is remainder


def assert_equation_20(fitted):
    exclusion = fitted.predict_exclusion(X)
    np.testing.assert_array_equal(fitted.predict(X), WORDS[exclusion.argmin(1)])
    np.testing.assert_array_equal(fitted.decision_function(X).argmax(1), exclusion.argmin(1))
    draws = fitted.posterior_predictive(X)["f"]
    direct = np.exp(-np.maximum(draws.values + 0.5, 0)).mean((0, 1))
    np.testing.assert_allclose(exclusion, direct, atol=0.05)


@pytest.mark.few_draws
def test_the_papers_classifier_predicts_by_equation_20():
    """Its settings but for the length of the chains; theta is sampled on the default grid."""
    fitted = BMSVMClassifier.paper(num_warmup=40, num_samples=30, random_state=0).fit(X, Y)
    assert_equation_20(fitted)
    assert fitted.n_iter_ == 40 + 30 * 10
    problem = fitted.posterior_.problem
    assert (problem.coupling, problem.likelihood) == ("independent", "hinge")
    assert float(problem.hyper.noise_shape) == 3.0
    np.testing.assert_allclose(np.asarray(problem.grid.values)[[0, -1]], [0.1, 200.0])
    drawn = fitted.run_.samples["lengthscale"]
    assert fitted.lengthscale_ == np.median(drawn)
    assert fitted.predictive_.calibration is None
    assert fitted.predictive_.squares is None


@pytest.mark.few_draws
def test_theta_moves_by_the_printed_ratio():
    """Rows of weight zero would make K singular, and every proposal would be rejected."""
    paper = BMSVMClassifier.paper(printed_ratio=True, random_state=0)
    fitted = paper.set_params(num_warmup=50, num_samples=10).fit(X, Y)
    assert len(np.unique(fitted.run_.samples["lengthscale"])) > 1
    assert fitted.posterior_.problem.n_scores == 24 * 2
    assert fitted.run_.samples["scores"].shape == (1, 10, 24, 3)


def test_the_printed_ratio_refuses_repeated_rows():
    paper = BMSVMClassifier.paper(printed_ratio=True, num_warmup=1, num_samples=1)
    with pytest.raises(ValueError, match=r"^printed_ratio .*rank is 24 with 25 rows.*repeated"):
        paper.fit(X[[0, *range(24)]], Y[[0, *range(24)]])


def test_posterior_predictive_is_ready_for_arviz(fitted):
    draws = fitted.posterior_predictive(X[:5])
    assert set(draws.data_vars) == set("fpy")
    for name in "fp":
        assert draws[name].dims == ("chain", "draw", "row", "class")
        assert draws[name].shape == (2, 40, 5, 3)
    assert draws["y"].dims == ("chain", "draw", "row")
    assert set(np.unique(draws["y"])) <= set(WORDS)
    mean = draws["p"].mean(("chain", "draw")).values
    np.testing.assert_allclose(mean, fitted.predict_proba(X[:5]), rtol=1e-12)
    np.testing.assert_allclose(
        draws["f"].mean(("chain", "draw")), fitted.class_functions(X[:5]), atol=1e-3
    )
    again = fitted.posterior_predictive(X[:5])
    for name in "fpy":
        np.testing.assert_array_equal(draws[name], again[name])


@pytest.mark.few_draws
@pytest.mark.parametrize(
    ("likelihood", "coupling"), [("hinge", "independent"), ("squared", "independent")]
)
def test_other_models_predict_too(likelihood, coupling):
    other = model(likelihood=likelihood, coupling=coupling, sampler=QUICK).fit(X, Y)
    probabilities = other.predict_proba(X)
    assert np.all(probabilities > 0)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(other.predict(X), WORDS[probabilities.argmax(1)])


# Kernels ---------------------------------------------------------------------------------------


@pytest.mark.few_draws
def test_a_precomputed_gram_matrix_is_the_representer_form():
    rows = StandardScaler().fit_transform(X)
    kernel = Gaussian().at(1.5)
    given = model(kernel="precomputed").fit(gram(kernel, rows), Y)
    expansion = Predictive(remainder=False)
    named = model(predictive=expansion, standardize="standard").fit(X, Y)
    new = rows[:7] + 0.3
    np.testing.assert_allclose(
        given.predict_proba(gram(kernel, new, rows)),
        named.predict_proba(new * X.std(0) + X.mean(0)),
        atol=1e-6,
    )
    weights = np.where(np.arange(24) < 4, 0, 1)
    part = model(kernel="precomputed").fit(gram(kernel, rows), Y, weights)
    assert part.predict(gram(kernel, new, rows)).shape == (7,)
    assert given.__sklearn_tags__().input_tags.pairwise


@pytest.mark.few_draws
def test_callables_and_linear_kernels_predict():
    new = X[:3] + 1
    own = model(kernel=lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 4.5)).fit(X, Y)
    named = dataclasses.replace(own.posterior_, kernel="gaussian", lengthscale=1.5)
    squares = own.predictive_.squares._replace(kernels=(Gaussian(),), lengthscales=(1.5,))
    same = dataclasses.replace(own.predictive_, posterior=named, squares=squares)
    expected = same.probabilities(own.standardized_rows(new))
    np.testing.assert_allclose(own.predict_proba(new), expected, atol=1e-6)
    assert own.lengthscale_ is None
    assert model(kernel="linear").fit(X, Y).predict(new).shape == (3,)
    without = BMSVMClassifier(kernel="linear", **SMALL)  # and so no lengthscale to be found
    assert without.fit(X, Y).predict(new).shape == (3,)
    assert without.selection_ is None
    assert model(lengthscale=[1.0, 2.0]).fit(X, Y).predict(new).shape == (3,)


@pytest.mark.few_draws
def test_units_do_not_matter_and_constants_do_no_harm():
    """Rounding drives the chains apart; the probabilities of two such fits differ by 0.02 at most.

    That is the largest of 12 differences, of two seeds and both scalings; the bound is 0.05.
    """
    settings = {"predictive": "posterior", "num_warmup": 300, "num_samples": 1000}
    plain = model(**settings).fit(X, Y)
    scaled = model(**settings).fit(np.column_stack([X * 1e3 + 7, np.full(24, 3.0)]), Y)
    new = np.column_stack([X * 1e3 + 7, np.full(24, 3.0)])
    rows = scaled.posterior_.training_rows
    np.testing.assert_allclose(rows[:, :2], plain.posterior_.training_rows, atol=1e-12)
    np.testing.assert_allclose(scaled.predict_proba(new), plain.predict_proba(X), atol=0.05)
    assert np.all(rows[:, 2] == 0)
    np.testing.assert_allclose(scaled.in_original_units(rows), new)
    raw = model(standardize=False).fit(X, Y)
    np.testing.assert_array_equal(raw.posterior_.training_rows, X)


PARAMETRIC = kernels.Parametric(
    lambda p: lambda a, b: p["amplitude"] * Gaussian().traced(p["scale"])(a, b),
    {"amplitude": dist.LogNormal(0.0, 0.5), "scale": dist.LogNormal(0.5, 0.5)},
    every=2,
)


@pytest.mark.few_draws
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"lengthscale": Sampled(bounds=(0.3, 10.0), grid="off", every=2)},
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"lengthscale": Sampled(bounds=(0.3, 10.0), per_feature=True, every=2)},
            marks=pytest.mark.long,
        ),
        {"kernel": PARAMETRIC, "lengthscale": "auto"},
    ],
    ids=["off-grid", "per-feature", "parametric"],
)
def test_parameters_of_the_kernel_may_be_sampled_off_a_grid(settings):
    # Under a wide prior tau has two modes, between which chains of this length do not move.
    narrow = Hyperparameters(precision_shape=200.0, precision_rate=200.0)
    mixing = {"likelihood": "hinge", "sampler": "gibbs", "hyperparameters": narrow}
    mixing |= {"num_warmup": 100, "num_samples": 60}
    free = model(**mixing, **settings).fit(X, Y)
    samples = free.run_.samples
    assert samples["coefficients"].shape[2] == free.posterior_.problem.n_rows
    if "kernel" in settings:
        assert free.lengthscale_ is None
        assert len(np.unique(samples["scale"])) > 5
    else:
        np.testing.assert_allclose(
            free.lengthscale_, np.median(samples["lengthscale"], axis=(0, 1)), rtol=1e-12
        )
        assert np.all((samples["lengthscale"] >= 0.3) & (samples["lengthscale"] <= 10.0))
        assert len(np.unique(samples["lengthscale"])) > 5
    probabilities = free.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(free.predict_proba(X[3:5]), probabilities[3:5])
    fixed = model(**mixing, predictive="posterior").fit(X, Y)
    assert np.mean(np.abs(probabilities - fixed.predict_proba(X))) < 0.1
    longer = free.fit_more(5)
    assert longer.run_.num_samples == 65


# A lengthscale that is chosen first ------------------------------------------------------------


class Told(Method):
    """A way to choose a lengthscale that remembers what it was asked."""

    def select(self, X, y, **asked):
        self.asked = asked
        return Selection(Gaussian(), 1.5, asked["hyperparameters"], len(X))


@pytest.mark.few_draws
def test_a_lengthscale_found_first_is_the_one_that_predicts(fitted):
    chosen = model(lengthscale=Told(), kernel="rbf", standardize="robust").fit(X, Y)
    asked = chosen.lengthscale.asked
    assert asked["likelihood"] == "normalized"
    assert asked["coupling"] == "sum_to_zero"
    assert asked["kernel"] == "rbf"
    np.testing.assert_array_equal(asked["row_weights"], np.ones(24))
    key = jax.random.key(chosen.seed_)
    np.testing.assert_array_equal(jax.random.key_data(asked["rng_key"]), jax.random.key_data(key))
    assert chosen.lengthscale_ == 1.5
    assert chosen.selection_.num_rows == 24
    rows = fitted.standardized_rows(X)
    one, other = (each.posterior_.probabilities(rows) for each in (chosen, fitted))
    np.testing.assert_array_equal(one, other)
    # Least squares, which cost little, average several unless theta was given.
    assert fitted.predictive_.squares.lengthscales == (1.5,)
    assert len(chosen.predictive_.squares.lengthscales) > 1


@pytest.mark.few_draws
def test_ways_to_choose_see_the_weights():
    weights = np.linspace(0.5, 2, 24)
    told = model(lengthscale=Told(), num_samples=5).fit(X, Y, weights).lengthscale.asked
    np.testing.assert_array_equal(told["row_weights"], weights)


@pytest.mark.few_draws
def test_many_rows_are_searched_by_some_of_them():
    searched = model(lengthscale=SquaresCV(max_rows=12)).fit(X, Y)
    assert searched.selection_.num_rows == 12
    assert searched.posterior_.problem.n_rows >= 24
    assert searched.n_iter_ == 60 + 40  # its chains are its own, and warm up
    assert pickle.loads(pickle.dumps(searched)).selection_.num_rows == 12
    assert model().fit(X, Y).selection_ is None


@pytest.mark.few_draws
def test_many_rows_tell_tau_themselves():
    """A basis of low rank: theta is chosen by some rows, and tau keeps its prior."""
    grid = ModeCV(grid=[1.0], precisions=[0.1], max_rows=12)
    searched = model(lengthscale=grid, approximation=Nystrom(rank=5)).fit(X, Y)
    assert searched.selection_.num_rows == 12
    assert searched.selection_.precision == pytest.approx(0.1)
    assert searched.posterior_.problem.hyper == DEFAULT
