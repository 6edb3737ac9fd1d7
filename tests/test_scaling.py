"""Scaling of features: what is learned, its inverse, and values at the ends of float64."""

import warnings

import numpy as np
import pytest
from few_draws import few_draws
from sklearn.preprocessing import RobustScaler, StandardScaler

from bmsvm import BMSVMClassifier, MSVMClassifier, load, save, scaling
from bmsvm.scaling import Scaling, as_standardize, learn

RNG = np.random.default_rng(0)
X = RNG.standard_t(2, size=(401, 5)) * [1.0, 50.0, 1e-6, 1e8, 3.0] + [0.0, 7.0, 1.0, -1e9, 4.0]
NEW = 3 * RNG.standard_t(2, size=(100, 5)) * [1.0, 50.0, 1e-6, 1e8, 3.0]


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def by_hand(train, rows):
    """Return robustly scaled rows, by scikit-learn and the formula of the clip."""
    scaler = RobustScaler(quantile_range=(25, 75)).fit(train)

    def clipped(rows):
        u = (rows - scaler.center_) / (scaler.scale_ / 1.349)
        return u / np.sqrt(1 + (u / 5) ** 2)

    return StandardScaler().fit(clipped(train)).transform(clipped(rows))


def test_robust_scaling_is_a_robust_scaler_and_a_clip():
    found = learn(X, "robust")
    np.testing.assert_allclose(found.apply(X), by_hand(X, X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.apply(NEW), by_hand(X, NEW), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.apply(X).mean(0), 0, atol=1e-14)
    np.testing.assert_allclose(found.apply(X).std(0), 1)
    np.testing.assert_array_equal(found.limit, 5)


def test_an_outlier_hardly_moves_the_other_rows():
    rows = np.random.default_rng(1).normal(size=(200, 1))
    far = np.append(rows, [[1e6]], axis=0)
    robust = learn(far, "robust").apply(rows) - learn(rows, "robust").apply(rows)
    assert np.abs(robust).max() < 0.2
    assert learn(far, "standard").apply(rows).std() < 1e-4


def test_standard_scaling_is_a_standard_scaler():
    found, expected = learn(X, "standard"), StandardScaler().fit(X)
    np.testing.assert_array_equal(found.apply(NEW), (NEW - expected.mean_) / expected.scale_)
    np.testing.assert_array_equal(found.limit, np.inf)
    weights = RNG.uniform(size=len(X))
    expected = StandardScaler().fit(X, sample_weight=weights)
    found = learn(X, "standard", weights)
    np.testing.assert_array_equal(found.apply(NEW), (NEW - expected.mean_) / expected.scale_)
    same = learn(X, "robust", weights).apply(NEW)
    np.testing.assert_array_equal(same, learn(X, "robust").apply(NEW))


@pytest.mark.parametrize("how", ["robust", "standard"])
def test_the_inverse_returns_the_rows(how):
    found = learn(X, how)
    for rows in (X, NEW):
        error = np.abs(found.invert(found.apply(rows)) - rows)
        u = np.abs(rows - found.centre) / found.scale
        assert np.all(error <= 1e-14 * (1 + u) ** 3 * (found.scale + np.abs(found.centre)))
    grid = np.linspace(-1.5, 1.5, 13)[:, None] * np.ones(5)
    np.testing.assert_allclose(found.apply(found.invert(grid)), grid, atol=1e-5)


def test_the_inverse_is_finite_and_monotone_beyond_the_clip():
    found = learn(X, "robust")
    far = np.geomspace(1e-3, 1e300, 1000)[:, None] * np.ones(5)
    for sign in (-1, 1):
        rows = found.invert(sign * far)
        assert np.isfinite(rows).all()
        assert np.all(sign * np.diff(rows, axis=0) >= 0)
        bound = (sign * found.limit - found.mean_after) / found.scale_after
        np.testing.assert_allclose(found.apply(rows[-1:])[0], bound, rtol=1e-12)


def test_constant_features_become_zero():
    rows = np.column_stack(
        [np.full(50, 0.1), np.zeros(50), np.full(50, 1e300), RNG.normal(size=50)]
    )
    rows[::2, 2] = np.nextafter(1e300, 0)  # equal values that differ by rounding
    found = learn(rows, "robust")
    np.testing.assert_array_equal(found.scale[:2], 1)
    np.testing.assert_array_equal(found.scale_after[:3], 1)
    np.testing.assert_array_equal(found.apply(rows)[:, :2], 0)
    np.testing.assert_allclose(found.apply(rows)[:, 2], 0, atol=1e-7)
    np.testing.assert_array_equal(found.invert(found.apply(rows))[:, :2], rows[:, :2])
    found = learn(rows[:, :2], "standard")
    np.testing.assert_array_equal(found.scale, 1)
    np.testing.assert_allclose(found.apply(rows[:, :2]), 0, atol=1e-15)


def test_a_rare_binary_feature_has_the_scale_of_its_standard_deviation():
    rare = np.zeros((200, 1))
    rare[:10] = 1
    found = learn(rare, "robust")
    np.testing.assert_allclose(found.scale, rare.std())
    u = 1 / rare.std()
    assert found.centre == 0
    np.testing.assert_allclose(found.mean_after, 0.05 * u / np.sqrt(1 + (u / 5) ** 2))
    # two values have one shape: mean 0 and variance 1 leave nothing else
    np.testing.assert_allclose(found.apply(rare), StandardScaler().fit_transform(rare))


@pytest.mark.parametrize("outlier", [1e300, -1e300, 1.7e308, 1e160])
def test_one_huge_value_is_finite(outlier):
    rows = np.column_stack([RNG.normal(size=60), np.arange(60) % 10 == 0, np.zeros(60)])
    with_it = rows.copy()
    with_it[0] = outlier
    found = learn(with_it, "robust")
    scaled = found.apply(with_it)
    assert np.isfinite(scaled).all()
    assert np.isfinite(found.invert(scaled)).all()
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-14)
    np.testing.assert_allclose(scaled.std(0), 1)
    assert np.std(scaled[1:, 0]) > 0.5
    at_home = learn(rows, "robust")
    assert np.isfinite(at_home.apply(with_it)).all()


@pytest.mark.parametrize("factor", [1e307, 1e-307, 5e-324])
def test_the_ends_of_float64(factor):
    rows = np.clip(RNG.normal(size=(60, 2)) * 5, -17, 17) * factor
    rows[0], rows[1] = 1.7e308, -1.7e308
    found = learn(rows, "robust")
    assert np.isfinite(found.apply(rows)).all()
    assert np.isfinite(found.invert(found.apply(rows))).all()


def test_a_variance_that_overflows_is_refused_by_the_standard_scaling():
    rows = X.copy()
    rows[0, 3] = 1e300
    warnings.filterwarnings("ignore", "overflow|invalid value", RuntimeWarning)
    with pytest.raises(ValueError, match=r'^X .*feature 3.*"robust"'):
        learn(rows, "standard")


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.float32, bool])
def test_other_types_are_scaled_in_double_precision(dtype):
    rows = RNG.integers(0, 100, size=(80, 3)).astype(dtype)
    found = learn(rows, "robust")
    np.testing.assert_array_equal(found.apply(rows), found.apply(rows.astype(float)))
    assert found.apply(rows).dtype == found.centre.dtype == np.float64


def test_a_sample_is_nearly_as_good_as_all_rows(monkeypatch):
    """The scale of 2000 of 20,000 normal values has a standard error of 2.5%; bounds are at 5."""
    rows = np.random.default_rng(2).normal(size=(20_000, 2))
    for name, value in (("SAMPLE_ROWS", 2000), ("SAMPLE_SIZE", 4000)):
        with monkeypatch.context() as patch:
            patch.setattr(scaling, name, value)
            found = learn(rows, "robust")
        np.testing.assert_allclose(found.scale, 1, atol=0.13)
        np.testing.assert_allclose(found.apply(rows).std(0), 1, atol=0.13)
        assert np.any(found.scale != learn(rows, "robust").scale)


def test_a_scaling_checks_itself():
    good = vars(learn(X, "robust"))
    for name, value, message in (
        ("scale", np.zeros(5), "scale must be positive and finite"),
        ("scale", np.full(5, np.inf), "scale must be positive and finite"),
        ("limit", np.full(5, -1.0), "limit must be positive"),
        ("mean_after", np.full(5, np.nan), "mean_after must be finite"),
        ("scale_after", np.ones(4), r"scale_after must have .* got shape \(4,\)"),
        ("centre", np.zeros((1, 5)), "centre must have one number for each feature"),
    ):
        with pytest.raises(ValueError, match=message):
            Scaling(**{**good, name: value})


def test_what_does_not_fit_is_refused():
    found = learn(X, "robust")
    for refused, message in (
        (lambda: learn(X, "Robust"), "how must be one of 'robust', 'standard'; got 'Robust'"),
        (lambda: learn(X, "auto"), "how must be one of 'robust', 'standard'; got 'auto'"),
        (lambda: learn(np.where(X > 0, np.nan, X), "robust"), "X must be finite; .* = nan"),
        (lambda: learn(X[:, 0], "standard"), "X must have two dimensions"),
        (lambda: found.apply(X[:, :4]), r"rows must have 5 columns, .*; got shape \(401, 4\)"),
        (lambda: found.apply(X[:, :1]), r"rows must have 5 columns, .*; got shape \(401, 1\)"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            refused()


# In estimators ---------------------------------------------------------------------------------

LABELS = np.arange(30) % 3
ROWS = RNG.normal(size=(30, 2)) + 2 * np.eye(3)[LABELS][:, :2]
ROWS[0, 0] = 1e300
QUICK = {"lengthscale": 1.5, "num_chains": 2, "num_warmup": 20, "num_samples": 10,
         "random_state": 0}  # fmt: skip


@pytest.fixture(scope="module")
def robust():
    with few_draws():
        return BMSVMClassifier(**QUICK).fit(ROWS, LABELS)


def test_values_of_standardize():
    named = (True, "robust", "auto", np.True_)
    assert [as_standardize(each) for each in named] == ["robust"] * 4
    assert as_standardize("standard") == "standard"
    assert as_standardize(False) is as_standardize(None) is None
    assert BMSVMClassifier().standardize == "auto"
    assert BMSVMClassifier.paper().standardize == MSVMClassifier().standardize == "standard"


@pytest.mark.parametrize("value", ["yes", "Robust", 1, 0, 0.5, ["robust"], np.ones(2)])
@pytest.mark.parametrize("estimator", [BMSVMClassifier, MSVMClassifier])
def test_other_values_are_refused(estimator, value):
    with pytest.raises(ValueError, match=r'^standardize must be "auto", .*; got ') as caught:
        estimator(standardize=value).fit(ROWS[1:], LABELS[1:])
    assert repr(value) in str(caught.value)


def test_the_classifier_scales_robustly(robust):
    expected = learn(ROWS, "robust")
    np.testing.assert_array_equal(robust.posterior_.training_rows, expected.apply(ROWS))
    np.testing.assert_allclose(
        robust.in_original_units(robust.posterior_.training_rows)[1:], ROWS[1:], rtol=1e-12
    )
    assert np.isfinite(robust.predict_proba([[1e300, -1e300], [-1.7e308, 0]])).all()


def test_rows_of_weight_zero_are_not_learned_from():
    weights = np.where(np.arange(30) % 4 == 0, 0.0, RNG.uniform(0.5, 2, size=30))
    for standardize in ("robust", True):
        model = MSVMClassifier(standardize=standardize).fit(ROWS, LABELS, weights)
        expected = learn(ROWS[weights > 0], "robust")
        np.testing.assert_array_equal(model.scaling_.apply(ROWS), expected.apply(ROWS))
    model = MSVMClassifier().fit(ROWS[1:], LABELS[1:], weights[1:])
    expected = learn(ROWS[weights > 0], "standard", weights[weights > 0])
    np.testing.assert_allclose(model.scaling_.centre, expected.centre)
    np.testing.assert_allclose(model.scaling_.scale, expected.scale)
    assert MSVMClassifier(standardize=None).fit(ROWS[1:], LABELS[1:]).scaling_ is None


def test_a_saved_model_has_its_scaling(robust, tmp_path):
    machine = MSVMClassifier(standardize="robust").fit(ROWS, LABELS)
    for model, predict in ((robust, "predict_proba"), (machine, "class_functions")):
        save(model, tmp_path / "model.bmsvm")
        loaded = load(tmp_path / "model.bmsvm")
        for name, value in vars(model.scaling_).items():
            np.testing.assert_array_equal(getattr(loaded.scaling_, name), value)
        new = RNG.normal(size=(9, 2)) * 100
        np.testing.assert_array_equal(getattr(loaded, predict)(new), getattr(model, predict)(new))
