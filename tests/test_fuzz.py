"""Whatever is passed in: finite probabilities that sum to one, or an error that says what is wrong.

Cases are built of good data and settings with one to three things changed. Most are refused; the
others are fitted, a few draws each, by programs that cases share. BMSVM_FUZZ sets the number of
cases (make fuzz: 100,000).
"""

import collections
import contextlib
import os
import warnings
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from sklearn.exceptions import NotFittedError

import bmsvm
from bmsvm import AltMSVM, BMSVMClassifier, Hyperparameters, MSVMClassifier, OneVsRestSVC, kernels
from bmsvm.inference import run as run_module
from bmsvm.inference.finite import NonFiniteError

CASES = int(os.environ.get("BMSVM_FUZZ", "2000"))
N, P = 9, 2
ROWS = np.random.default_rng(0).normal(size=(N, P))
LABELS = np.arange(N) % 3
NEW = np.random.default_rng(1).normal(size=(4, P))
QUICK = {
    "likelihood": "hinge",
    "lengthscale": 1.0,
    "preset": "paper",
    "num_chains": 1,
    "num_warmup": 1,
    "num_samples": 4,
    "calibration": None,
    "random_state": 0,
}
REFUSED = (ValueError, TypeError)


def fuzz(share: float) -> Any:
    """Run a share of the cases, the same each time."""
    return settings(
        max_examples=max(10, int(share * CASES)),
        deadline=None,
        database=None,
        derandomize=CASES <= 2000,
        suppress_health_check=list(HealthCheck),
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.shrink),
    )


class Case(dict):
    """Rows X, labels y, weights, new rows, and settings of a model."""

    def __repr__(self) -> str:
        return f"Case({super().__repr__()})"


def whole_case() -> Case:
    return Case(X=ROWS.copy(), y=LABELS.copy(), weights=None, new=NEW.copy(), settings={})


numbers = st.sampled_from(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-12,
        1000000000000.0,
        1e-150,
        1e150,
        5e-324,
        -1e308,
        1e308,
        np.nan,
        np.inf,
        -np.inf,
    ]
)
anything = st.one_of(
    numbers,
    st.sampled_from(
        [
            None,
            "",
            "word",
            "☃",
            "\x00",
            b"bytes",
            1j,
            (),
            [],
            {},
            object,
            True,
            False,
            10**400,
            -1,
            0,
            np.array([]),
            np.array(["a"]),
            np.float32(2),
            np.int8(1),
            [1.0, 2.0],
            [1.0, np.nan],
            np.zeros((2, 2)),
            lambda *args: None,
            np.datetime64("NaT"),
            "sample",
            "cv",
        ]
    ),
)

# Things that may happen to a case: each takes the case and Hypothesis' draw


def put_in_rows(case, draw):
    rows = np.array(case["X"], dtype=float)
    rows[draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, rows.shape[1] - 1))] = draw(
        numbers
    )
    case["X"] = rows


def put_in_new_rows(case, draw):
    case["new"][draw(st.integers(0, 3)), draw(st.integers(0, P - 1))] = draw(numbers)


def scale_rows(case, draw):
    power = draw(st.sampled_from([-300, -150, -12, -6, 6, 12, 150, 300]))
    scale = 10.0**power if draw(st.booleans()) else np.array([10.0**power, 1.0])
    with np.errstate(all="ignore"):
        case["X"], case["new"] = case["X"] * scale, case["new"] * scale


def shift_rows(case, draw):
    case["X"] = case["X"] + draw(st.sampled_from([1e6, -1e12, 1e300]))


def retype_rows(case, draw):
    dtype = draw(
        st.sampled_from(["f2", "f4", "g", "i1", "u8", "?", "O", "U9", "c16", "S5", "M8[s]"])
    )
    with contextlib.suppress(TypeError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case["X"] = np.asarray(case["X"]).astype(dtype)


def wrap_rows(case, draw):
    case["X"] = draw(
        st.sampled_from(
            [
                scipy.sparse.csr_matrix,
                scipy.sparse.coo_array,
                pd.DataFrame,
                lambda rows: pd.DataFrame(rows, columns=["ü", "\N{SNOWMAN}"]),
                lambda rows: pd.DataFrame(rows).astype("Float64"),
                lambda rows: rows.tolist(),
                lambda rows: tuple(map(tuple, rows)),
                np.ma.masked_array,
                jax.numpy.asarray,
                np.asfortranarray,
                lambda rows: rows[::-1],
                lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
                lambda rows: np.broadcast_to(rows[:1], rows.shape),
                lambda rows: rows.T,
                lambda rows: rows[:, 0],
                lambda rows: rows[None],
                lambda rows: rows[:, :0],
                lambda rows: rows[:0],
                lambda rows: rows[:1],
                lambda rows: iter(rows),
                lambda rows: memoryview(np.ascontiguousarray(rows)),
                lambda rows: np.zeros_like(rows),
                lambda rows: np.concatenate([rows[:3]] * 3),
                lambda rows: rows.view(np.recarray),
                lambda rows: [list(rows[0]), *rows[1:].tolist(), [1.0]],
                lambda rows: None,
                lambda rows: "rows",
            ]
        )
    )(np.asarray(case["X"], dtype=float))


def freeze_rows(case, draw):
    case["X"] = np.array(case["X"])
    case["X"].flags.writeable = False


WORDS = np.array(["naïve", "\N{SNOWMAN}", "‮right to left"])


def change_labels(case, draw):
    case["y"] = draw(
        st.sampled_from(
            [
                lambda y: WORDS[y],
                lambda y: WORDS.astype(object)[y],
                lambda y: np.array(["", " ", "\x00a"])[y],
                lambda y: np.array(["\ud800", "b", "c"], object)[y],
                lambda y: y * 0,
                lambda y: y > 0,
                lambda y: y - 1,
                lambda y: y.astype(float),
                lambda y: y + 0.5,
                lambda y: y.astype("u8") + 2**63,
                lambda y: np.where(y == 0, np.nan, y),
                lambda y: np.where(y == 0, np.inf, y),
                lambda y: y.astype("S1"),
                lambda y: y.astype("c8"),
                lambda y: y[:, None],
                lambda y: np.eye(3)[y],
                lambda y: y[:-1],
                lambda y: y[:0],
                lambda y: y.tolist(),
                lambda y: [0, 1.0, 2] * 3,
                lambda y: [0, "1", 2] * 3,
                lambda y: [None, 1, 2] * 3,
                lambda y: [(0,), (1,), (2,)] * 3,
                lambda y: pd.Series(y, dtype="category"),
                lambda y: pd.Series(WORDS[y], dtype="string"),
                lambda y: pd.Series([pd.NA, "b", "c"] * 3, dtype="string"),
                lambda y: np.array(["2001-01-01", "NaT", "2003-01-01"], "M8[D]")[y],
                lambda y: None,
                lambda y: 3,
                lambda y: "labels!!!",
                lambda y: iter(y),
                lambda y: scipy.sparse.csr_matrix(y),
                lambda y: np.array([0, 1, 2] + [2] * 6),
                lambda y: np.array([0] + [1] * 8),
                lambda y: np.array([{}, [], 1] * 3, dtype=object),
            ]
        )
    )(LABELS)


def change_weights(case, draw):
    case["weights"] = draw(
        st.sampled_from(
            [
                np.ones(N),
                np.zeros(N),
                -np.ones(N),
                np.full(N, np.nan),
                np.full(N, 1e300),
                np.full(N, 1e-300),
                np.where(LABELS == 0, 0.0, 1.0),
                np.where(LABELS == 0, 1.0, 0.0),
                np.where(np.arange(N) == 0, np.inf, 1.0),
                np.ones(N - 1),
                np.ones((N, 1)),
                np.array(["1"] * N),
                np.ones(N, bool),
                2.0,
                "balanced",
                [None] * N,
                list(range(N)),
            ]
        )
    )


def change_new_rows(case, draw):
    case["new"] = draw(
        st.sampled_from(
            [
                lambda rows: rows[:, :1],
                lambda rows: rows[:0],
                lambda rows: rows[0],
                lambda rows: scipy.sparse.csr_matrix(rows),
                lambda rows: rows.tolist(),
                lambda rows: rows.astype("O"),
                lambda rows: rows.astype("f4"),
                lambda rows: rows.astype(str),
                lambda rows: rows * 1e12,
                lambda rows: rows * 1e200,
                lambda rows: rows * 1e308 * 10,
                lambda rows: np.asfortranarray(rows)[::-1],
                lambda rows: pd.DataFrame(rows, columns=["a", "b"]),
                lambda rows: None,
                lambda rows: ROWS[:4].copy(),
            ]
        )
    )(NEW.copy())


EXTREMES = st.sampled_from([1e-300, 1e-30, 1e-6, 1e-3, 1e3, 1e6, 1e30, 1e300, 5e-324, 1.7e308])


def change_hyperparameters(case, draw):
    names = st.sampled_from(["noise_shape", "noise_rate", "precision_shape", "precision_rate"])
    name = draw(st.one_of(names, st.just("intercept_precision")))
    value = draw(st.one_of(EXTREMES, EXTREMES, anything))
    case["settings"]["hyperparameters"] = Hyperparameters(**{name: value})


def change_setting(case, draw):
    name = draw(st.sampled_from(sorted(BMSVMClassifier().get_params())))
    if name != "progress_bar":
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
                "",
                None,
                3,
                np.eye(2),
                kernels.polynomial(2),
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
                ("likelihood", "probit"),
                ("coupling", "independent"),
                ("standardize", False),
                ("decision", "paper"),
                ("uncertainty", "representer"),
                ("preset", "gibbs"),
            ]
        )
    )
    case["settings"][name] = value


DATA = (
    *(put_in_rows, scale_rows, shift_rows, retype_rows, wrap_rows, freeze_rows),
    *(change_labels, change_labels, change_weights),
)
OF_THE_CLASSIFIER = (
    *(put_in_new_rows, change_new_rows, change_hyperparameters, change_setting),
    *(change_lengthscale, change_kernel, change_weights_of_classes, change_model),
)


UNSUITABLE = (TypeError, ValueError, LookupError, AttributeError, OverflowError, RuntimeError)


@st.composite
def cases(draw, changes):
    case = whole_case()
    for change in draw(st.lists(st.sampled_from(changes), min_size=1, max_size=3)):
        with contextlib.suppress(*UNSUITABLE):
            change(case, draw)  # what one change made of the data may be too odd for the next
    return case


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def check_probabilities(model, probabilities, rows):
    assert probabilities.shape == (rows, len(model.classes_))
    assert np.isfinite(probabilities).all()
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-9)


def says_something(error: BaseException, *words: str) -> None:
    assert len(str(error)) > 10, repr(error)
    assert all(word in str(error) for word in words), repr(error)


SEARCHES = ("cv", "mode-cv", "sample", "marginal-likelihood")
EXECUTED: collections.Counter[str] = collections.Counter()
"""Cases of each test that were run."""


def is_search(value):
    return isinstance(value, str) and value in SEARCHES


def count(test, *values):
    """Count a case of a test; one that searches, which takes long, is put back for another."""
    hypothesis.assume(not any(map(is_search, values)))
    EXECUTED[test] += 1


@fuzz(0.45)
@given(case=cases((*DATA, *OF_THE_CLASSIFIER)))
def test_the_classifier_works_or_says_what_is_wrong(case):
    chosen = {**QUICK, **case["settings"]}
    count("classifier", chosen["lengthscale"])
    check_classifier(case, chosen)


@pytest.mark.long
@fuzz(0.005)
@given(case=cases(DATA), search=st.sampled_from(SEARCHES))
def test_searches_for_theta_work_or_say_what_is_wrong(case, search):
    options = {"grid": [1.0, 3.0], "folds": 3} if search == "cv" else None
    check_classifier(case, {**QUICK, "lengthscale": search, "lengthscale_options": options})


def check_classifier(case, chosen):
    """Fit and predict, or be told why not, before the sampler runs."""
    ran = []
    original = run_module._advance

    def counted(*args, **kwargs):
        ran.append(True)
        return original(*args, **kwargs)

    run_module._advance = counted
    try:
        model = BMSVMClassifier(**chosen)
        try:
            model.fit(case["X"], case["y"], case["weights"])
        except NonFiniteError as error:
            says_something(error, "sweep", "block")
            return
        except REFUSED as error:
            says_something(error)
            if ran:
                pytest.fail(f"the sampler ran before {error!r}")
            with pytest.raises(NotFittedError):
                model.predict(NEW)
            return
    finally:
        run_module._advance = original
    try:
        probabilities = model.predict_proba(case["new"])
    except REFUSED as error:
        says_something(error)
        return
    rows = len(probabilities)
    check_probabilities(model, probabilities, rows)
    predicted = model.predict(case["new"])
    assert np.isin(predicted, model.classes_).all()
    if model.decision == "probability":
        np.testing.assert_array_equal(predicted, model.classes_[probabilities.argmax(1)])


@fuzz(0.3)
@given(
    case=cases((*DATA, change_hyperparameters, change_lengthscale, change_kernel)),
    likelihood=st.one_of(st.sampled_from(["hinge", "normalized", "probit"]), anything),
    coupling=st.one_of(st.sampled_from(["sum_to_zero", "independent"]), anything),
    spare=st.one_of(st.integers(-1, 3), anything),
)
def test_prepare_works_or_says_what_is_wrong(case, likelihood, coupling, spare):
    count("prepare")
    chosen = {"likelihood": likelihood, "coupling": coupling, **case["settings"]}
    chosen.pop("class_weight", None)
    try:
        problem = bmsvm.prepare(
            case["X"], case["y"], row_weights=case["weights"], spare_rows=spare, **chosen
        )
    except REFUSED as error:
        says_something(error)
        return
    for leaf in jax.tree.leaves(problem):
        assert np.isfinite(np.asarray(leaf)).all()


@fuzz(0.15)
@given(
    case=cases(DATA),
    machine=st.sampled_from([MSVMClassifier, AltMSVM, OneVsRestSVC]),
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


@fuzz(0.1)
@given(
    make=st.sampled_from(["gaussian", "matern32", "matern52", "polynomial", "stationary"]),
    values=st.lists(st.one_of(EXTREMES, anything), min_size=1, max_size=3),
)
def test_kernels_work_or_say_what_is_wrong(make, values):
    count("kernels")
    try:
        if make == "polynomial":
            names = ("degree", "lengthscale", "offset")
            kernel = kernels.polynomial(**dict(zip(names, values, strict=False)))
        elif make == "stationary":
            kernel = kernels.kernel_at(values[0], *values[1:2])
        else:
            kernel = getattr(kernels, make)(values[0])
        if kernel is None:
            return
        factor = kernels.factorize(kernels.gram(kernel, ROWS))
    except REFUSED as error:
        says_something(error)
        return
    assert np.isfinite(factor.basis).all()
    assert np.isfinite(factor.eigenvalues).all()


def test_as_many_cases_were_run_as_are_promised():
    if len(EXECUTED) < 4:
        pytest.skip("not all tests of this file were run, or not in this process")
    print(dict(EXECUTED))
    assert EXECUTED.total() >= CASES


@pytest.mark.parametrize("model", [BMSVMClassifier(**QUICK), MSVMClassifier(gamma=0.1)])
def test_rows_beyond_the_numbers_are_refused(model):
    model.set_params(kernel="linear").fit(ROWS, LABELS)
    far = np.where(np.arange(4) == 2, 1e308, 1.0)[:, None] * NEW
    with pytest.raises(ValueError, match=r"rows at which the kernel is finite; X\[2\] leads out"):
        model.predict(far)


@pytest.mark.parametrize("machine", [MSVMClassifier, AltMSVM, OneVsRestSVC])
def test_weights_beyond_the_solvers_are_refused(machine):
    """Rows alike to the kernel, and such weights: LIBSVM would step towards them for ever."""
    with pytest.raises(
        ValueError, match=r"sample_weight times class_weight must be at most 1e\+12"
    ):
        machine(gamma=0.1).fit(ROWS * 1e-300, LABELS, np.full(N, 1e300))


def test_the_largest_weights_of_rows_that_are_alike_come_to_an_end():
    model = OneVsRestSVC(gamma=1e-6).fit(np.zeros((N, P)), LABELS, np.full(N, 1e12))
    assert np.isfinite(model.decision_function(NEW)).all()


@pytest.mark.parametrize("name", ["num_chains", "num_warmup", "num_samples", "thinning"])
def test_sweeps_without_end_are_refused(name):
    """More than can be counted: draws would be made until memory is full."""
    with pytest.raises(ValueError, match=rf"^{name} must be an integer of at most 2147483647; got"):
        BMSVMClassifier(**{**QUICK, name: 10**400}).fit(ROWS, LABELS)


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
    from sklearn.model_selection import KFold, cross_val_predict

    order = np.argsort(LABELS)
    rows, labels = ROWS[order], LABELS[order]
    model = BMSVMClassifier(**QUICK)
    predicted = cross_val_predict(model, rows, labels, cv=KFold(3))
    assert all(
        label not in predicted[start : start + 3]
        for label, start in zip(range(3), (0, 3, 6), strict=True)
    )


def test_a_chain_that_leaves_the_numbers_says_where():
    """A block that breaks after some sweeps is named, with the sweep and the parameter."""
    from bmsvm.inference.blocks import collapsed_parameters, exact_scores
    from bmsvm.inference.blocks.base import Block

    def step(key, position, memory, problem, phase):
        broken = jax.numpy.where(phase.sweep == 7, jax.numpy.nan, position.precision)
        return position._replace(precision=broken), memory, {}

    blocks = (exact_scores(), Block("spoiler", lambda *_: (), step), collapsed_parameters())
    sampler = bmsvm.BMSVMGibbs(blocks=blocks)
    with pytest.raises(NonFiniteError, match=r"sweep 7 \(sampling\) the block spoiler left precis"):
        bmsvm.run_chains(
            *(sampler, jax.random.key(0), ROWS, LABELS),
            num_warmup=3,
            num_samples=9,
            num_chains=2,
            progress_bar=False,
        )
