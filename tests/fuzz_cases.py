"""Cases for fuzzing: good data and settings with one to three things changed.

BMSVM_FUZZ sets the number of cases of all files together (make fuzz: 100,000). Every file counts
the cases that it ran.
"""

import collections
import contextlib
import os
import warnings
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from fuzz_data import (
    anything,
    change_new_rows,
    put_in_new_rows,
    whole_case,
)
from hypothesis import HealthCheck, settings

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
    kernels,
)

CASES = int(os.environ.get("BMSVM_FUZZ", "250"))
QUICK = {
    "likelihood": "hinge",
    "lengthscale": 1.0,
    "sampler": Paper(thinning=1),
    "num_chains": 1,
    "num_warmup": 1,
    "num_samples": 4,
    "predictive": "posterior",
    "random_state": 0,
}
REFUSED = (ValueError, TypeError)


def fuzz(share: float) -> Any:
    """Run a share of the cases, the same each time."""
    return settings(
        max_examples=cases_of(share),
        deadline=None,
        database=None,
        derandomize=CASES <= 2000,
        suppress_health_check=list(HealthCheck),
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.shrink),
    )


def cases_of(share: float) -> int:
    return max(10, int(share * CASES))


EXTREMES = st.sampled_from([1e-300, 1e-30, 1e-6, 1e-3, 1e3, 1e6, 1e30, 1e300, 5e-324, 1.7e308])


def change_hyperparameters(case, draw):
    names = st.sampled_from(["noise_shape", "noise_rate", "precision_shape", "precision_rate"])
    name = draw(st.one_of(names, st.just("intercept_precision")))
    value = draw(st.one_of(EXTREMES, EXTREMES, anything))
    case["settings"]["hyperparameters"] = Hyperparameters(**{name: value})


def change_setting(case, draw):
    name = draw(st.sampled_from(sorted(BMSVMClassifier().get_params())))
    case["settings"][name] = draw(anything)


def change_lengthscale(case, draw):
    case["settings"]["lengthscale"] = draw(
        st.one_of(
            EXTREMES,
            st.sampled_from(
                [[1.0, 2.0], [1.0], [1.0, 2.0, 3.0], [1.0, 0.0], np.float16(2), 3, "x"]
            ),
            st.sampled_from([np.array([1e-300, 1e300]), np.array(2.0), {"a": 1}, True, "2.0"]),
        )
    )


def change_kernel(case, draw):
    case["settings"]["kernel"] = draw(
        st.sampled_from(
            [
                "linear",
                "matern32",
                "matern52",
                "precomputed",
                "rbf",
                "poly",
                "",
                None,
                3,
                np.eye(2),
                kernels.Polynomial(degree=2),
                kernels.Matern32(),
                kernels.Matern32,
                lambda a, b: a @ b.T,
                lambda a, b: a,
                lambda a, b: None,
                lambda a, b: np.full((len(a), len(b)), np.nan),
                lambda a, b: -(a @ b.T),
            ]
        )
    )


def change_weights_of_classes(case, draw):
    case["settings"]["class_weight"] = draw(
        st.sampled_from(
            [
                "balanced",
                "unbalanced",
                {0: 1.0},
                {0: 1.0, 1: 2.0, 2: 3.0},
                {0: 0.0},
                {0: -1.0},
                {"a": 1},
                {0: np.nan},
                [1.0, 2.0, 3.0],
                {0: 1e300, 1: 1, 2: 1},
                {0: 0, 1: 0, 2: 0},
            ]
        )
    )


def change_model(case, draw):
    name, value = draw(
        st.sampled_from(
            [
                ("likelihood", "normalized"),
                ("likelihood", "squared"),
                ("coupling", "independent"),
                ("standardize", False),
                ("standardize", "standard"),
                ("predictive", "paper"),
                ("predictive", "calibrated"),
                ("predictive", Predictive(calibrate=False, remainder=False)),
                ("sampler", "gibbs"),
                ("approximation", Nystrom(rank=3)),
                ("approximation", Fourier(rank=4)),
                ("lengthscale", Sampled(grid=(0.5, 1.0, 2.0))),
            ]
        )
    )
    case["settings"][name] = value


OBJECTS = (
    *(Nystrom(), Sampled(), HMC, Gibbs(), Predictive(), Hyperparameters(), ModeCV, PAPER),
    *(kernels.Linear(), kernels.Precomputed(), BMSVMClassifier()),
)


def misplace_object(case, draw):
    """Give an object, or its class, where another kind is wanted; some places take it."""
    places = ("kernel", "approximation", "sampler", "predictive", "hyperparameters", "class_weight")
    case["settings"][draw(st.sampled_from(places))] = draw(st.sampled_from(OBJECTS))


OF_THE_CLASSIFIER = (
    *(put_in_new_rows, change_new_rows, change_hyperparameters, change_setting),
    *(change_lengthscale, change_kernel, change_weights_of_classes, change_model),
    misplace_object,
)


UNSUITABLE = (TypeError, ValueError, LookupError, AttributeError, OverflowError, RuntimeError)


@st.composite
def cases(draw, changes):
    case = whole_case()
    for change in draw(st.lists(st.sampled_from(changes), min_size=1, max_size=3)):
        with contextlib.suppress(*UNSUITABLE):
            change(case, draw)  # what one change made of the data may be too odd for the next
    return case


def says_something(error: BaseException, *words: str) -> None:
    assert len(str(error)) > 10, repr(error)
    assert all(word in str(error) for word in words), repr(error)


SEARCHES = ("auto", "squares-cv", "mode-cv", "sample")
EXECUTED: collections.Counter[str] = collections.Counter()
"""Cases of each test that were run."""


def is_search(value):
    return isinstance(value, str) and value in SEARCHES


def count(test, *values):
    """Count a case of a test; one that searches, which takes long, is put back for another."""
    hypothesis.assume(not any(map(is_search, values)))
    EXECUTED[test] += 1


def assert_executed(**shares: float) -> None:
    """Fail unless as many cases of each test were run as its share promises."""
    if not set(shares) <= set(EXECUTED):
        pytest.skip("not all tests of this file were run, or not in this process")
    print(dict(EXECUTED))
    for test, share in shares.items():
        assert EXECUTED[test] >= cases_of(share), test


@contextlib.contextmanager
def quiet():
    """Ignore warnings: of data like these there are many."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
