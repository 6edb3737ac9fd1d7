"""Fuzzing of the machines: finite scores, or an error that says what is wrong."""

import hypothesis.strategies as st
import numpy as np
import pytest
from fuzz_cases import (
    EXTREMES,
    REFUSED,
    assert_executed,
    cases,
    count,
    fuzz,
    quiet,
    says_something,
)
from fuzz_data import DATA, LABELS, NEW, ROWS, N, P, anything
from hypothesis import given

from bmsvm import AltMSVM, LeastSquaresSVM, MSVMClassifier, OneVsRestSVC

SHARE = 0.15


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


@fuzz(SHARE)
@given(
    case=cases(DATA),
    machine=st.sampled_from([MSVMClassifier, AltMSVM, LeastSquaresSVM, OneVsRestSVC]),
    gamma=st.one_of(st.just(0.1), st.just(0.1), EXTREMES, anything),
    lengthscale=st.one_of(st.just(1.0), st.just(1.0), EXTREMES, anything),
)
def test_machines_work_or_say_what_is_wrong(case, machine, gamma, lengthscale):
    count("machines", gamma, lengthscale)
    model = machine(gamma=gamma, lengthscale=lengthscale)
    try:
        model.fit(case["X"], case["y"], case["weights"])
        scores = model.decision_function(NEW)
    except REFUSED as error:
        says_something(error)
        return
    assert np.isfinite(scores).all()
    assert np.isin(model.predict(NEW), model.classes_).all()


def test_as_many_cases_were_run_as_are_promised():
    assert_executed(machines=SHARE)


def test_rows_that_overflow_are_refused():
    model = MSVMClassifier(gamma=0.1, kernel="linear").fit(ROWS, LABELS)
    far = np.where(np.arange(4) == 2, 1e308, 1.0)[:, None] * NEW
    with pytest.raises(ValueError, match=r"^X .*X\[2\]"):
        model.predict(far)


@pytest.mark.parametrize("machine", [MSVMClassifier, AltMSVM, LeastSquaresSVM, OneVsRestSVC])
def test_weights_beyond_the_solvers_are_refused(machine):
    """Rows alike to the kernel, and such weights: LIBSVM would step towards them for ever."""
    with pytest.raises(ValueError, match=r"^sample_weight .*1e\+12"):
        machine(gamma=0.1).fit(ROWS * 1e-300, LABELS, np.full(N, 1e300))


def test_the_largest_weights_of_rows_that_are_alike_come_to_an_end():
    model = OneVsRestSVC(gamma=1e-6).fit(np.zeros((N, P)), LABELS, np.full(N, 1e12))
    assert np.isfinite(model.decision_function(NEW)).all()
