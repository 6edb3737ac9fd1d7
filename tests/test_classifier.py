"""BMSVMClassifier as scikit-learn's users meet it: parameters, pipelines, errors."""

import inspect

import jax
import numpy as np
import pandas as pd
import pytest
from classifier_cases import CODES, WORDS, X, Y, model
from few_draws import few_draws
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bmsvm
from bmsvm import (
    HMC,
    PAPER,
    BMSVMClassifier,
    Fourier,
    Gibbs,
    Hyperparameters,
    ModeCV,
    Nystrom,
    Paper,
    Predictive,
    Sampled,
    SquaresCV,
    classifier,
    kernels,
)
from bmsvm.inference import run as runner
from bmsvm.inference.samplers import as_sampler
from bmsvm.kernels import as_kernel
from bmsvm.selection import as_method


@pytest.fixture(scope="module", autouse=True)
def one_program_for_all():
    """Fill all data up to the same few sizes: compiling is what takes time here."""
    usual, classifier.ROW_MULTIPLE = classifier.ROW_MULTIPLE, 128
    yield
    classifier.ROW_MULTIPLE = usual


@pytest.fixture(scope="module")
def fitted(one_program_for_all):
    with few_draws():
        return model().fit(X, Y)


# scikit-learn's own idea of an estimator -------------------------------------------------------

WEIGHTS_ARE_NOT_COUNTS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a weight multiplies the log likelihood of a row; a row given twice has two scores"
    )
}


# Independent draws, which need no program compiled for each shape; chains are below.
QUICKEST = {"likelihood": "squared", "num_chains": 2, "num_samples": 20, "random_state": 0}


@parametrize_with_checks(
    [BMSVMClassifier(lengthscale=0.7, **QUICKEST)],
    expected_failed_checks=lambda estimator: WEIGHTS_ARE_NOT_COUNTS,
)
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


@pytest.mark.few_draws
@pytest.mark.long
@parametrize_with_checks(
    [BMSVMClassifier()], expected_failed_checks=lambda estimator: WEIGHTS_ARE_NOT_COUNTS
)
def test_nor_does_it_with_nothing_said(estimator, check):
    check(estimator)


# Parameters ------------------------------------------------------------------------------------


def test_there_are_at_most_fourteen_parameters_all_by_keyword():
    parameters = inspect.signature(BMSVMClassifier).parameters.values()
    assert len(parameters) <= 14
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters)
    defaults = BMSVMClassifier().get_params()
    assert defaults["likelihood"] == "auto"
    assert defaults["lengthscale"] == "auto"
    assert defaults["hyperparameters"] is None


def test_the_paper_is_its_settings():
    """Sections 3 to 5: the model, the hyperparameters, M1, M2 and M, and the decision (20)."""
    found = BMSVMClassifier.paper().get_params()
    expected = {
        "likelihood": "hinge",
        "coupling": "independent",
        "kernel": "gaussian",
        "lengthscale": "sample",
        "hyperparameters": PAPER,
        "approximation": "exact",
        "sampler": Paper(thinning=10, printed_ratio=False),
        "num_warmup": 5000,
        "num_samples": 500,
        "predictive": "paper",
    }
    assert {name: found[name] for name in expected} == expected
    assert Hyperparameters(3.0, 10.0, 4.0, 0.1, 1000.0) == PAPER
    printed = BMSVMClassifier.paper(printed_ratio=True, num_samples=7, random_state=3)
    assert printed.sampler == Paper(printed_ratio=True)
    assert (printed.num_samples, printed.random_state) == (7, 3)


def test_names_are_shorthand_for_objects():
    for name, kernel in {
        "gaussian": kernels.Gaussian(),
        "rbf": kernels.Gaussian(),
        "matern32": kernels.Matern32(),
        "matern52": kernels.Matern52(),
        "linear": kernels.Linear(),
        "poly": kernels.Polynomial(degree=3),
        "precomputed": kernels.Precomputed(),
    }.items():
        assert as_kernel(name) == as_kernel(kernel) == kernel
    for name, sampler in {
        "auto": HMC(),
        "hmc": HMC(),
        "gibbs": Gibbs(),
        "paper": Paper(),
    }.items():
        assert as_sampler(name) == as_sampler(sampler) == sampler
    for name, method in {"mode-cv": ModeCV(), "squares-cv": SquaresCV()}.items():
        assert type(as_method(name)) is type(method)
        assert vars(as_method(name)) == vars(method)
    assert as_method("sample") is None
    assert as_method(2.0) is None


@pytest.mark.few_draws
@pytest.mark.parametrize(
    ("named", "objects"),
    [
        ({"kernel": "gaussian", "sampler": "hmc"}, {"kernel": kernels.Gaussian()}),
        ({"kernel": "rbf"}, {"sampler": HMC()}),
        ({"predictive": "posterior"}, {"predictive": Predictive(calibrate=False)}),
        ({"approximation": "exact"}, {"hyperparameters": Hyperparameters()}),
    ],
    ids=str,
)
def test_a_name_and_its_object_fit_the_same_model(named, objects):
    one, other = model(**named).fit(X, Y), model(**objects).fit(X, Y)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


OBJECTS = {
    "kernel": kernels.Matern32(),
    "lengthscale": Sampled(grid=np.geomspace(0.5, 5, 4)),
    "hyperparameters": Hyperparameters(noise_shape=7.0),
    "approximation": Nystrom(rank=8),
    "sampler": Paper(thinning=2),
    "predictive": Predictive(remainder=False),
}


def test_objects_are_parameters_like_others():
    plain = BMSVMClassifier()
    assert plain.set_params(**OBJECTS) is plain
    for name, value in OBJECTS.items():
        assert plain.get_params()[name] is value
    again = clone(plain)
    for name in ("kernel", "hyperparameters", "approximation", "sampler", "predictive"):
        assert getattr(again, name) == OBJECTS[name]
    np.testing.assert_array_equal(again.lengthscale.grid, OBJECTS["lengthscale"].grid)


@pytest.mark.few_draws
def test_grids_search_among_objects():
    choices = {
        "sampler": [Paper(thinning=1), Paper(thinning=2)],
        "predictive": ["auto", Predictive(decision="exclusion")],
    }
    search = GridSearchCV(model(num_samples=10), choices, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_["sampler"] in choices["sampler"]
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.few_draws
def test_pipelines_grids_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), model())
    assert pipeline.fit(X, Y).score(X, Y) > 0.7
    search = GridSearchCV(model(), {"lengthscale": [0.01, 1.5]}, cv=2, scoring="neg_log_loss")
    search.fit(X, Y)
    assert search.best_params_ == {"lengthscale": 1.5}  # at 0.01 no row knows of another
    assert search.predict_proba(X).shape == (24, 3)
    assert np.all(cross_val_score(model(), X, Y, cv=2) > 0.4)


# Data ------------------------------------------------------------------------------------------


@pytest.mark.few_draws
def test_pandas_in_and_names_checked(fitted):
    frame = pd.DataFrame(X, columns=["width", "height"], index=[f"r{i}" for i in range(24)])
    framed = model().fit(frame, pd.Series(Y, index=frame.index))
    np.testing.assert_array_equal(framed.feature_names_in_, ["width", "height"])
    np.testing.assert_array_equal(framed.predict_proba(frame), fitted.predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        framed.predict(frame[["height", "width"]])
    with pytest.warns(UserWarning, match="feature names"):
        framed.predict(X)
    draws = framed.posterior_predictive(frame.iloc[:4])
    assert list(draws.coords["row"].values) == ["r0", "r1", "r2", "r3"]
    assert list(draws.coords["class"].values) == list(WORDS)


@pytest.mark.few_draws
def test_output_settings_are_for_transformers_and_do_no_harm(fitted):
    pipeline = make_pipeline(StandardScaler(), model()).set_output(transform="pandas")
    pipeline.fit(pd.DataFrame(X, columns=["width", "height"]), Y)
    assert list(pipeline[-1].feature_names_in_) == ["width", "height"]
    assert not hasattr(fitted, "transform")


def test_words_are_predicted_as_words(fitted):
    np.testing.assert_array_equal(fitted.classes_, WORDS)
    assert set(fitted.predict(X)) <= set(WORDS)
    assert fitted.score(X, Y) > 0.7


def test_a_class_of_weight_zero_is_left_out_with_a_warning():
    weights = np.where(Y[0] == Y, 0.0, 1.0)
    with pytest.warns(UserWarning, match=f"is 0 for all rows of '{Y[0]}': ") as caught:
        found = model(likelihood="squared").fit(X, Y, sample_weight=weights)
    assert [each.filename for each in caught] == [__file__]
    assert Y[0] not in found.classes_


@pytest.mark.few_draws
def test_a_row_of_weight_zero_is_a_row_left_out(fitted):
    far = np.concatenate([X, [[1e4, -1e4]]])
    weights = np.append(np.ones(24), 0.0)
    weighted = model().fit(far, np.append(Y, "unheard of"), sample_weight=weights)
    np.testing.assert_array_equal(weighted.classes_, WORDS)
    np.testing.assert_array_equal(weighted.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.few_draws
def test_weights_reach_the_model_and_classes_multiply_them():
    weights = np.linspace(0.5, 2, 24)
    weighted = model(class_weight={"blue": 2.0}).fit(X, Y, sample_weight=weights)
    expected = weights * np.where(Y == "blue", 2.0, 1.0)
    found = weighted.posterior_.problem.row_weights
    np.testing.assert_allclose(found[:24], expected)
    np.testing.assert_array_equal(found[24:], 0)
    uneven = np.append(Y[:-4], ["red"] * 4)
    balanced = model(class_weight="balanced").fit(X, uneven).posterior_.problem.row_weights[:24]
    for word in WORDS:
        np.testing.assert_allclose(np.sum(balanced[uneven == word]), 8)


# Errors for people -----------------------------------------------------------------------------

BAD = [
    ({"num_chains": 0}, "num_chains", 0),
    ({"num_warmup": -1}, "num_warmup", -1),
    ({"num_samples": 2.5}, "num_samples", 2.5),
    ({"standardize": "yes"}, "standardize", "yes"),
    ({"likelihood": "softmax"}, "likelihood", "softmax"),
    ({"coupling": "none"}, "coupling", "none"),
    ({"kernel": "exponential"}, "kernel", "exponential"),
    ({"kernel": 3}, "kernel", 3),
    ({"lengthscale": -1.0}, "lengthscale", -1.0),
    ({"lengthscale": "guess"}, "lengthscale", "guess"),
    ({"lengthscale": None}, "lengthscale", "gaussian"),
    ({"lengthscale": [1.0, 2.0, 3.0]}, "lengthscale", np.array([1.0, 2.0, 3.0])),
    ({"lengthscale": "squares-cv", "kernel": "linear"}, "lengthscale", "linear"),
    ({"lengthscale": Sampled(), "kernel": "linear"}, "lengthscale", "linear"),
    ({"lengthscale": "mode-cv", "likelihood": "hinge"}, "likelihood", "hinge"),
    ({"hyperparameters": {"eta": 1}}, "hyperparameters", {"eta": 1}),
    ({"hyperparameters": Hyperparameters(noise_rate=-2.0)}, "hyperparameters.noise_rate", -2.0),
    ({"approximation": "svd"}, "approximation", "svd"),
    ({"approximation": None}, "approximation", None),
    ({"approximation": "nystrom", "coupling": "independent"}, "approximation", "independent"),
    ({"sampler": "fast"}, "sampler", "fast"),
    ({"class_weight": "even"}, "class_weight", "even"),
    ({"predictive": "argmax"}, "predictive", "argmax"),
    ({"predictive": "calibrated", "coupling": "independent"}, "predictive", "independent"),
    ({"predictive": "calibrated", "lengthscale": Sampled(grid="off")}, "predictive", "off"),
]


@pytest.mark.parametrize(("settings", "argument", "value"), BAD, ids=str)
def test_bad_settings_are_named_before_anything_is_sampled(settings, argument, value, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the sampler ran on bad settings")

    monkeypatch.setattr(runner, "advance_chains", refuse)
    with pytest.raises(ValueError, match=f"^{argument}") as caught:
        model(**settings).fit(X, Y)
    shown = repr(value) if not isinstance(value, str) else value
    assert shown in str(caught.value)


BAD_OPTIONS = [
    (HMC, "thinning", "2"),
    (Paper, "step_size", -1.0),
    (Paper, "printed_ratio", "yes"),
    (Predictive, "calibrate", "yes"),
    (Predictive, "remainder", None),
    (Predictive, "decision", "argmax"),
    (Sampled, "prior", "flat"),
    (Sampled, "bounds", (2.0, 1.0)),
    (Sampled, "every", 0),
    (Sampled, "per_feature", 1),
    (ModeCV, "folds", 1),
    (SquaresCV, "max_rows", 1),
    (Nystrom, "rank", 0),
    (Fourier, "rank", -2),
    (kernels.Polynomial, "degree", -1),
]


@pytest.mark.parametrize(("make", "argument", "value"), BAD_OPTIONS, ids=str)
def test_objects_check_their_own_options(make, argument, value):
    with pytest.raises(ValueError, match=argument) as caught:
        make(**{argument: value})
    assert repr(value) in str(caught.value)


def test_the_predictive_of_numpyro_is_told_apart():
    with pytest.raises(ValueError, match=r"calibrate must .*; numpyro.infer.Predictive, .* is ano"):
        Predictive(lambda problem: None, {})


@pytest.mark.few_draws
def test_bad_data_are_named():
    cases = [
        (model(), X, np.full(24, "red"), None, "^y must .* 1 class, .*red"),
        (model(), X, Y, (Y == "red").astype(float), "^y must .* positive weight; .*red"),
        (model(), X, Y, -np.ones(24), r"^sample_weight .*-1\.0"),
        (model(kernel="precomputed"), X, Y, None, r"^X .*\(24, 2\)"),
    ]
    for unfitted, rows, labels, weights, message in cases:
        with pytest.raises(ValueError, match=message):
            unfitted.fit(rows, labels, sample_weight=weights)
    with pytest.raises(NotFittedError):
        model().fit_more(3)
    with pytest.raises(ValueError, match=r"^num_samples .* 0"):
        model().fit(X, Y).fit_more(0)


@pytest.mark.few_draws
def test_two_classes_have_one_decision():
    binary = model(sampler=Paper(thinning=1)).fit(X, CODES == 1)
    decision = binary.decision_function(X)
    assert decision.shape == (24,)
    np.testing.assert_array_equal(decision > 0, binary.predict(X))
    odds = np.diff(binary.predict_log_proba(X), axis=1)[:, 0]
    np.testing.assert_allclose(decision, odds, atol=1e-9)
    assert binary.class_functions(X).shape == (24, 2)


@pytest.mark.few_draws
def test_no_setting_of_jax_is_changed(fitted):
    assert isinstance(fitted, bmsvm.BMSVMClassifier)
    for double in (True, False):
        with jax.enable_x64(double):
            model(num_samples=5).fit(X, Y).predict(X)
            assert jax.config.jax_enable_x64 is double
