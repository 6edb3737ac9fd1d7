"""Fuzzing of the classifier: finite probabilities, or an error before the sampler runs.

Most cases are refused, which takes no time; the others are fitted, a few draws each, by programs
that cases share.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from fuzz_cases import (
    OF_THE_CLASSIFIER,
    QUICK,
    REFUSED,
    SEARCHES,
    assert_executed,
    cases,
    count,
    fuzz,
    quiet,
    says_something,
)
from fuzz_data import DATA, LABELS, NEW, ROWS, N
from hypothesis import given
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_predict

from bmsvm import HMC, BMSVMClassifier, Hyperparameters
from bmsvm.inference import NonFiniteError
from bmsvm.inference import run as runner

SHARE = 0.45


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


def check_probabilities(model, probabilities, rows):
    assert probabilities.shape == (rows, len(model.classes_))
    assert np.isfinite(probabilities).all()
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-9)


@fuzz(SHARE)
@given(case=cases((*DATA, *OF_THE_CLASSIFIER)))
def test_the_classifier_works_or_says_what_is_wrong(case):
    chosen = {**QUICK, **case["settings"]}
    count("classifier", chosen["lengthscale"])
    check_classifier(case, chosen)


def test_as_many_cases_were_run_as_are_promised():
    assert_executed(classifier=SHARE)


@pytest.mark.long
@fuzz(0.005)
@given(case=cases(DATA), search=st.sampled_from(SEARCHES))
def test_searches_for_theta_work_or_say_what_is_wrong(case, search):
    check_classifier(case, {**QUICK, "lengthscale": search})


def check_classifier(case, chosen):
    """Fit and predict, or be told why not, before the sampler runs."""
    ran = []
    original = runner.advance_chains

    def counted(*args, **kwargs):
        ran.append(True)
        return original(*args, **kwargs)

    runner.advance_chains = counted
    try:
        model = BMSVMClassifier(**chosen)
        try:
            model.fit(case["X"], case["y"], case["weights"])
        except NonFiniteError as error:
            says_something(error, "sweep", "chain")
            return
        except REFUSED as error:
            says_something(error)
            if ran:
                pytest.fail(f"the sampler ran before {error!r}")
            with pytest.raises(NotFittedError):
                model.predict(NEW)
            return
    finally:
        runner.advance_chains = original
    try:
        probabilities = model.predict_proba(case["new"])
    except REFUSED as error:
        says_something(error)
        return
    check_probabilities(model, probabilities, len(probabilities))
    predicted = model.predict(case["new"])
    assert np.isin(predicted, model.classes_).all()
    by_name = "exclusion" if model.predictive == "paper" else "probability"
    if getattr(model.predictive, "decision", by_name) == "probability":
        np.testing.assert_array_equal(predicted, model.classes_[probabilities.argmax(1)])


def test_rows_that_overflow_are_refused():
    far = np.where(np.arange(4) == 2, 1e308, 1.0)[:, None] * NEW
    model = BMSVMClassifier(**QUICK, kernel="linear", standardize="standard").fit(ROWS, LABELS)
    with pytest.raises(ValueError, match=r"^X .*X\[2\]"):
        model.predict(far)
    clipped = BMSVMClassifier(**QUICK, kernel="linear").fit(ROWS, LABELS)
    check_probabilities(clipped, clipped.predict_proba(far), len(far))


@pytest.mark.parametrize("name", ["num_chains", "num_warmup", "num_samples"])
def test_sweeps_without_end_are_refused(name):
    """More than can be counted: draws would be made until memory is full."""
    with pytest.raises(ValueError, match=rf"^{name} .*2147483647.*1{'0' * 400}"):
        BMSVMClassifier(**{**QUICK, name: 10**400}).fit(ROWS, LABELS)


def test_thinning_without_end_is_refused():
    with pytest.raises(ValueError, match=r"^thinning .*2147483647"):
        HMC(thinning=10**400)


def test_noise_beyond_single_precision_has_probabilities():
    fit_and_check(ROWS, LABELS, hyperparameters=Hyperparameters(noise_rate=1e300))


# Large or awkward shapes, once each: programs of their own


def fit_and_check(X, y, **changes):
    model = BMSVMClassifier(**{**QUICK, **changes}).fit(X, y)
    check_probabilities(model, model.predict_proba(X), len(X))
    return model


def test_fifty_classes_with_one_row_each():
    rng = np.random.default_rng(2)
    fit_and_check(rng.normal(size=(50, 3)), [f"class {i}" for i in range(50)])


def test_more_features_than_rows():
    rng = np.random.default_rng(3)
    fit_and_check(rng.normal(size=(N, 5000)), LABELS, lengthscale=70.0)


def test_two_rows_of_two_classes():
    fit_and_check(np.array([[0.0], [1.0]]), ["a", "b"])


def test_labels_missing_from_a_fold():
    """Cross-validation whose folds lack a class trains on what there is."""
    order = np.argsort(LABELS)
    rows, labels = ROWS[order], LABELS[order]
    model = BMSVMClassifier(**QUICK)
    predicted = cross_val_predict(model, rows, labels, cv=KFold(3))
    assert all(
        label not in predicted[start : start + 3]
        for label, start in zip(range(3), (0, 3, 6), strict=True)
    )
