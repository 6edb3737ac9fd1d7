"""BMSVMClassifier as scikit-learn's users meet it."""

import pickle
import re
import types
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bmsvm
from bmsvm import BMSVMClassifier, kernels
from bmsvm.estimators import classifier, convergence
from bmsvm.inference import posterior, select
from bmsvm.inference import run as runner
from bmsvm.inference.calibration import Calibration, calibrate

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"num_chains": 2, "num_warmup": 60, "num_samples": 40, "random_state": 0}
RNG = np.random.default_rng(0)
WORDS = np.array(["blue", "green", "red"])
CODES = np.arange(24) % 3
X = RNG.normal(size=(24, 2)) * [1.0, 50.0] + 3 * np.eye(3)[CODES][:, :2] * [1.0, 50.0]
Y = WORDS[CODES]


def model(**settings):
    return BMSVMClassifier(**{"lengthscale": 1.5, **SMALL, **settings})


@pytest.fixture(scope="module", autouse=True)
def one_program_for_all():
    """Fill all data up to the same few sizes: compiling is what takes time here."""
    usual, classifier.ROW_MULTIPLE = classifier.ROW_MULTIPLE, 128
    yield
    classifier.ROW_MULTIPLE = usual


def uncalibrated(fitted, rows):
    """Posterior mean probabilities."""
    given, (power, chance) = fitted.predict_proba(rows), fitted.calibration_
    return calibrate((given - chance / given.shape[1]) / (1 - chance), Calibration(1 / power, 0.0))


@pytest.fixture(scope="module")
def fitted(one_program_for_all):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model().fit(X, Y)


# scikit-learn's own idea of an estimator -------------------------------------------------------

WEIGHTS_ARE_NOT_COUNTS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a weight multiplies the log likelihood of a row; a row given twice has two scores"
    )
}


@parametrize_with_checks(
    [BMSVMClassifier(lengthscale=0.7, preset="paper", **SMALL)],  # the quickest to compile
    expected_failed_checks=lambda estimator: WEIGHTS_ARE_NOT_COUNTS,
)
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


@pytest.mark.long
@parametrize_with_checks(
    [BMSVMClassifier()], expected_failed_checks=lambda estimator: WEIGHTS_ARE_NOT_COUNTS
)
def test_nor_does_it_with_nothing_said(estimator, check):
    check(estimator)


def test_the_default_is_made_of_what_it_says():
    parameters = BMSVMClassifier().get_params()
    assert parameters["likelihood"] == "normalized"
    assert parameters["lengthscale"] == bmsvm.estimators.DEFAULT_LENGTHSCALE
    assert clone(model(kernel=kernels.gaussian(2.0))).kernel == kernels.gaussian(2.0)


def test_pipelines_grids_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), model())
    assert pipeline.fit(X, Y).score(X, Y) > 0.7
    search = GridSearchCV(model(), {"lengthscale": [1.0, 3.0]}, cv=2, scoring="neg_log_loss")
    search.fit(X, Y)
    assert search.best_params_["lengthscale"] in (1.0, 3.0)
    assert search.predict_proba(X).shape == (24, 3)
    assert np.all(cross_val_score(model(), X, Y, cv=2) > 0.4)


def test_pandas_in_and_names_checked(fitted):
    frame = pd.DataFrame(X, columns=["width", "height"], index=[f"r{i}" for i in range(24)])
    framed = model().fit(frame, pd.Series(Y, index=frame.index))
    np.testing.assert_array_equal(framed.feature_names_in_, ["width", "height"])
    np.testing.assert_array_equal(framed.predict_proba(frame), fitted.predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        framed.predict(frame[["height", "width"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        framed.predict(X)
    draws = framed.posterior_predictive(frame.iloc[:4])
    assert list(draws.coords["row"].values) == ["r0", "r1", "r2", "r3"]
    assert list(draws.coords["class"].values) == list(WORDS)


def test_output_settings_are_for_transformers_and_do_no_harm(fitted):
    pipeline = make_pipeline(StandardScaler(), model()).set_output(transform="pandas")
    pipeline.fit(pd.DataFrame(X, columns=["width", "height"]), Y)
    assert list(pipeline[-1].feature_names_in_) == ["width", "height"]
    assert not hasattr(fitted, "transform")


def test_words_are_predicted_as_words(fitted):
    np.testing.assert_array_equal(fitted.classes_, WORDS)
    assert set(fitted.predict(X)) <= set(WORDS)
    assert fitted.score(X, Y) > 0.7


def test_two_classes_have_one_decision():
    binary = model(preset="paper").fit(X, CODES == 1)
    decision = binary.decision_function(X)
    assert decision.shape == (24,)
    np.testing.assert_array_equal(decision > 0, binary.predict(X))
    odds = np.diff(binary.predict_log_proba(X), axis=1)[:, 0]
    np.testing.assert_allclose(decision, odds, atol=1e-9)
    assert binary.class_functions(X).shape == (24, 2)


# Prediction ------------------------------------------------------------------------------------


def test_predict_is_the_largest_probability_on_a_hundred_thousand_points(monkeypatch):
    monkeypatch.setattr(posterior, "DRAWS", 8)
    quick = model(num_samples=4).fit(X, Y)
    points = np.random.default_rng(5).normal(size=(100_000, 2)) * [4.0, 200.0]
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


@pytest.mark.filterwarnings("ignore:the ascent of the marginal likelihood has not converged")
def test_many_rows_are_searched_by_some_of_them(monkeypatch):
    monkeypatch.setattr(classifier, "SELECTION_ROWS", 12)
    monkeypatch.setitem(classifier.EVIDENCE, "num_steps", 20)
    searched = model(lengthscale="marginal-likelihood").fit(X, Y)
    assert searched.lengthscale_rows_ == 12
    assert searched.problem_.n_rows >= 24
    assert searched.n_iter_ == 60 + 40  # its chains are its own, and warm up
    assert pickle.loads(pickle.dumps(searched)).lengthscale_rows_ == 12
    assert model().fit(X, Y).lengthscale_rows_ is None


def test_pieces_are_told_what_the_whole_is_told(fitted):
    points = np.random.default_rng(6).normal(size=(300, 2)) * [4.0, 200.0]
    for method in ("predict_proba", "decision_function", "class_functions", "predict_exclusion"):
        predict = getattr(fitted, method)
        pieces = [predict(points[:1]), predict(points[1:140]), predict(points[140:])]
        np.testing.assert_array_equal(np.concatenate(pieces), predict(points))


def test_the_papers_rule_is_equation_20():
    fitted = model(decision="paper", likelihood="hinge", preset="paper").fit(X, Y)
    exclusion = fitted.predict_exclusion(X)
    np.testing.assert_array_equal(fitted.predict(X), WORDS[exclusion.argmin(1)])
    np.testing.assert_array_equal(fitted.decision_function(X).argmax(1), exclusion.argmin(1))
    draws = fitted.posterior_predictive(X)["f"]
    direct = np.exp(-np.maximum(draws.values + 0.5, 0)).mean((0, 1))
    np.testing.assert_allclose(exclusion, direct, atol=0.05)


def test_posterior_predictive_is_ready_for_arviz(fitted):
    draws = fitted.posterior_predictive(X[:5])
    for name in "fzp":
        assert draws[name].dims == ("chain", "draw", "row", "class")
        assert draws[name].shape == (2, 40, 5, 3)
    assert draws["y"].dims == ("chain", "draw", "row")
    assert set(np.unique(draws["y"])) <= set(WORDS)
    mean = draws["p"].mean(("chain", "draw")).values
    np.testing.assert_allclose(mean, uncalibrated(fitted, X[:5]), atol=0.15)
    np.testing.assert_allclose(
        draws["f"].mean(("chain", "draw")), fitted.class_functions(X[:5]), atol=1e-3
    )
    again = fitted.posterior_predictive(X[:5])
    np.testing.assert_array_equal(draws["z"], again["z"])


@pytest.mark.parametrize(
    ("likelihood", "coupling"), [("hinge", "independent"), ("probit", "sum_to_zero")]
)
def test_other_models_predict_too(likelihood, coupling):
    other = model(likelihood=likelihood, coupling=coupling, preset="paper").fit(X, Y)
    probabilities = other.predict_proba(X)
    assert np.all(probabilities > 0)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(other.predict(X), WORDS[probabilities.argmax(1)])


def test_a_precomputed_gram_matrix_is_the_representer_form():
    rows = StandardScaler().fit_transform(X)
    kernel = kernels.gaussian(1.5)
    given = model(kernel="precomputed").fit(kernels.gram(kernel, rows), Y)
    named = model(uncertainty="representer").fit(X, Y)
    new = rows[:7] + 0.3
    np.testing.assert_allclose(
        given.predict_proba(kernels.gram(kernel, new, rows)),
        named.predict_proba(new * X.std(0) + X.mean(0)),
        atol=1e-6,
    )
    weights = np.where(np.arange(24) < 4, 0, 1)
    part = model(kernel="precomputed").fit(kernels.gram(kernel, rows), Y, weights)
    assert part.predict(kernels.gram(kernel, new, rows)).shape == (7,)
    assert given.__sklearn_tags__().input_tags.pairwise


def test_callables_and_linear_kernels_predict():
    new = X[:3] + 1
    own = model(kernel=lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 4.5)).fit(X, Y)
    expected = own.predict_proba(new)
    own.kernel_ = "gaussian"  # of the lengthscale 1.5: the same
    np.testing.assert_allclose(own.predict_proba(new), expected, atol=1e-6)
    assert model(kernel="linear").fit(X, Y).predict(new).shape == (3,)
    without = BMSVMClassifier(kernel="linear", **SMALL)  # and so no lengthscale to be found
    assert without.fit(X, Y).predict(new).shape == (3,)
    with pytest.raises(ValueError, match="lengthscale_options must be a dict; got 5"):
        BMSVMClassifier(lengthscale_options=5).fit(X, Y)
    assert model(lengthscale=[1.0, 2.0]).fit(X, Y).predict(new).shape == (3,)


def test_units_do_not_matter_and_constants_do_no_harm():
    settings = {"calibration": None, "num_samples": 200}  # rounding drives the chains apart
    plain = model(**settings).fit(X, Y)
    scaled = model(**settings).fit(np.column_stack([X * 1e3 + 7, np.full(24, 3.0)]), Y)
    new = np.column_stack([X * 1e3 + 7, np.full(24, 3.0)])
    np.testing.assert_allclose(scaled.training_rows_[:, :2], plain.training_rows_, atol=1e-12)
    np.testing.assert_allclose(scaled.predict_proba(new), plain.predict_proba(X), atol=0.05)
    assert np.all(scaled.training_rows_[:, 2] == 0)
    raw = model(standardize=False).fit(X, Y)
    np.testing.assert_array_equal(raw.training_rows_, X)


@pytest.mark.parametrize("method", ["cv", "marginal-likelihood"])
def test_a_lengthscale_found_first_is_the_one_that_predicts(method, monkeypatch, fitted):
    asked = {}

    def found(method, X, y, *, options, **model):
        asked.update(options, method=method, likelihood=model["likelihood"])
        return types.SimpleNamespace(lengthscale=1.5)

    monkeypatch.setattr(select, "select_lengthscale", found)
    chosen = model(lengthscale=method, lengthscale_options={"grid": [1.5]}).fit(X, Y)
    assert asked["method"] == method
    assert asked["likelihood"] == "normalized"
    assert asked["seed"] == chosen.seed_
    assert asked.get("progress_bar", False) is False
    assert chosen.lengthscale_ == 1.5
    np.testing.assert_array_equal(chosen.predict_proba(X), fitted.predict_proba(X))


def test_progress_is_shown_where_it_is_asked_for(capsys):
    shown = model(progress_bar=True).fit(X, Y)
    assert "warm-up" in capsys.readouterr().err
    shown.predict(X)
    assert "predict" in capsys.readouterr().err
    model().fit(X, Y).predict(X)
    assert capsys.readouterr().err == ""


# Weights ---------------------------------------------------------------------------------------


def test_a_row_of_weight_zero_is_a_row_left_out(fitted):
    far = np.concatenate([X, [[1e4, -1e4]]])
    weights = np.append(np.ones(24), 0.0)
    weighted = model().fit(far, np.append(Y, "unheard of"), sample_weight=weights)
    np.testing.assert_array_equal(weighted.classes_, WORDS)
    np.testing.assert_array_equal(weighted.predict_proba(X), fitted.predict_proba(X))


def test_weights_reach_the_model_and_classes_multiply_them():
    weights = np.linspace(0.5, 2, 24)
    weighted = model(class_weight={"blue": 2.0}).fit(X, Y, sample_weight=weights)
    expected = weights * np.where(Y == "blue", 2.0, 1.0)
    found = weighted.problem_.row_weights
    np.testing.assert_allclose(found[:24], expected)
    np.testing.assert_array_equal(found[24:], 0)
    uneven = np.append(Y[:-4], ["red"] * 4)
    balanced = model(class_weight="balanced").fit(X, uneven).problem_.row_weights[:24]
    for word in WORDS:
        np.testing.assert_allclose(np.sum(balanced[uneven == word]), 8)


# Chains ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"lengthscale": "sample", "thinning": 2}, marks=pytest.mark.long)],
    ids=str,
)
def test_fitting_more_is_having_fitted_longer(settings):
    if "lengthscale" in settings:
        settings = {"lengthscale_grid": np.geomspace(0.5, 5, 6), **settings}
    longer = model(**settings, num_samples=70).fit(X, Y)
    parts = model(**settings, num_samples=15).fit(X, Y).fit_more(5).fit_more(50)
    assert parts.run_.num_samples == 70
    assert parts.n_iter_ == longer.n_iter_ == 60 + 70 * settings.get("thinning", 1)
    for name, value in longer.run_.samples.items():
        np.testing.assert_array_equal(parts.run_.samples[name], value)
    np.testing.assert_array_equal(parts.predict_proba(X), longer.predict_proba(X))


def test_seeds_decide_everything(fitted):
    same, other = model().fit(X, Y), model(random_state=1).fit(X, Y)
    np.testing.assert_array_equal(same.predict_proba(X), fitted.predict_proba(X))
    assert not np.array_equal(other.predict_proba(X), fitted.predict_proba(X))
    state = np.random.RandomState(3)
    first = model(random_state=state).fit(X, Y)
    assert first.seed_ != model(random_state=state).fit(X, Y).seed_


def test_precision_is_double_whatever_jax_is_set_to(fitted):
    with jax.enable_x64(False):
        single = model().fit(X, Y)
        assert not jax.config.jax_enable_x64
        np.testing.assert_array_equal(single.predict_proba(X), fitted.predict_proba(X))
        stored = pickle.loads(pickle.dumps(single))
        np.testing.assert_array_equal(stored.predict_proba(X), fitted.predict_proba(X))
        more = stored.fit_more(5)
    assert more.run_.samples["weights"].dtype == np.float64
    np.testing.assert_array_equal(
        more.run_.samples["weights"], model(num_samples=45).fit(X, Y).run_.samples["weights"]
    )


def test_an_interrupted_fit_is_a_model_of_what_is_finished(monkeypatch):
    whole = model(num_samples=130).fit(X, Y)
    advance, calls = runner._advance, iter(range(1000))

    def interrupted(*args, **kwargs):
        if next(calls) == 2 + 2:  # two pieces of warm-up, two of draws
            raise KeyboardInterrupt
        return advance(*args, **kwargs)

    monkeypatch.setattr(runner, "_advance", interrupted)
    with pytest.warns(UserWarning, match=r"100 of 130 draws .*fit_more\(30\)") as caught:
        part = model(num_samples=130).fit(X, Y)
    assert not any("call more()" in str(warning.message) for warning in caught)
    assert part.run_.interrupted
    assert part.predict(X).shape == (24,)
    part.fit_more(30)
    assert not part.run_.interrupted
    np.testing.assert_array_equal(part.predict_proba(X), whole.predict_proba(X))


def test_an_interruption_before_the_first_draws_leaves_no_model(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_advance", interrupted)
    unfitted = model()
    with pytest.raises(KeyboardInterrupt):
        unfitted.fit(X, Y)
    with pytest.raises(NotFittedError):
        unfitted.predict(X)


def test_what_is_watched_has_names(fitted):
    names = list(fitted.diagnostics_)
    assert names[:2] == ["noise_variance", "precision"]
    assert "f at training row 23, class green" in names
    assert len(names) == 2 + 10 * 2
    assert all(each.ess > 0 and each.r_hat > 0.9 for each in fitted.diagnostics_.values())


def test_chains_that_have_not_met_are_named():
    rng = np.random.default_rng(0)
    good, apart = rng.normal(size=(2, 4, 500))
    apart = apart + 3 * np.arange(4)[:, None]
    slow = np.cumsum(rng.normal(size=(4, 500)), axis=1)
    stuck = np.repeat(np.arange(4.0)[:, None], 500, axis=1)
    found = convergence.diagnose({"a": good, "b": apart, "d": stuck, "e": 0 * good})
    assert list(found) == ["a", "b", "d"]
    assert found["a"].r_hat < 1.01
    assert 1500 < found["a"].ess < 2600
    assert found["b"].r_hat > 2
    assert found["d"].r_hat > 1e3
    settings = {"num_warmup": 300, "num_samples": 500}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convergence.warn_unless_converged(convergence.diagnose({"a": good}), **settings)
    with pytest.warns(ConvergenceWarning, match=r"b has R-hat \d.* effective .* num_warmup.*300"):
        convergence.warn_unless_converged(convergence.diagnose({"a": good, "b": apart}), **settings)
    with pytest.warns(ConvergenceWarning, match=r"s has R-hat .* call fit_more\(\d+\)"):
        convergence.warn_unless_converged(convergence.diagnose({"a": good, "s": slow}), **settings)
    with pytest.warns(ConvergenceWarning, match="5 draws of each chain are too few to tell"):
        convergence.warn_unless_converged({}, num_warmup=300, num_samples=5)


def test_a_short_fit_warns():
    with pytest.warns(ConvergenceWarning, match="have not converged: .* call fit_more"):
        model(num_samples=20).fit(X, Y)


# Errors for people -----------------------------------------------------------------------------

BAD = {
    "chains": ({"num_chains": 0}, "num_chains must be an integer of at least 1; got 0"),
    "warm-up": ({"num_warmup": -1}, "num_warmup must be an integer of at least 0; got -1"),
    "draws": ({"num_samples": 2.5}, "num_samples must be an integer of at least 1; got 2.5"),
    "thinning": ({"thinning": "2"}, "thinning must be an integer of at least 1; got '2'"),
    "decision": ({"decision": "argmax"}, "decision must be one of 'probability', 'paper'"),
    "uncertainty": ({"uncertainty": "none"}, "uncertainty must be one of 'gp', 'representer'"),
    "standardize": ({"standardize": "yes"}, "standardize must be True or False; got 'yes'"),
    "progress bar": ({"progress_bar": None}, "progress_bar must be True or False; got None"),
    "likelihood": ({"likelihood": "softmax"}, "likelihood must be one of 'hinge'"),
    "coupling": ({"coupling": "none"}, "coupling must be one of 'sum_to_zero'"),
    "kernel": ({"kernel": "rbf"}, "kernel must be one of 'gaussian'"),
    "lengthscale": ({"lengthscale": -1.0}, "lengthscale must be a positive number"),
    "preset": ({"preset": "fast"}, "preset must be one of 'default'"),
    "prior": (
        {"lengthscale": "sample", "lengthscale_prior": "flat"},
        "lengthscale_prior must be one of",
    ),
    "off the grid": (
        {"lengthscale": "sample", "lengthscale_grid": "off"},
        'lengthscale="sample" needs a grid here',
    ),
    "hyperparameters": ({"hyperparameters": {"eta": 1}}, "hyperparameters must be a bmsvm"),
    "class weight": ({"class_weight": "even"}, 'class_weight must be a dict, "balanced" or None'),
    "probit": (
        {"likelihood": "probit", "class_weight": {"red": 3}},
        'sample_weight and class_weight must be 0 or 1 with likelihood="probit"',
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_named_before_anything_is_sampled(name, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the sampler ran on bad settings")

    monkeypatch.setattr(runner, "_advance", refuse)
    settings, message = BAD[name]
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        model(**settings).fit(X, Y)


def test_bad_data_are_named():
    with pytest.raises(ValueError, match="y must have at least 2 classes; got 1 class"):
        model().fit(X, np.full(24, "red"))
    with pytest.raises(ValueError, match="at least 2 classes of positive weight; got 1 class"):
        model().fit(X, Y, sample_weight=(Y == "red").astype(float))
    with pytest.raises(ValueError, match=r"sample_weight must be finite and not negative"):
        model().fit(X, Y, sample_weight=-np.ones(24))
    with pytest.raises(ValueError, match="square Gram matrix"):
        model(kernel="precomputed").fit(X, Y)
    with pytest.raises(NotFittedError):
        model().fit_more(3)
    with pytest.raises(ValueError, match="num_samples must be an integer"):
        model().fit(X, Y).fit_more(0)
