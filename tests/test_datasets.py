"""The data sets are what their descriptions say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from bmsvm import datasets
from bmsvm.datasets import _synthetic

# loader, shape, class sizes in the order of target_names
FILES = [
    (datasets.load_wine, {}, (178, 13), [59, 71, 48]),
    (datasets.load_glass, {}, (214, 9), [70, 76, 17, 13, 9, 29]),
    (datasets.load_vehicle, {}, (846, 18), [218, 212, 217, 199]),
    (datasets.load_vehicle, {"classes": 3}, (846, 18), [218, 429, 199]),
]
MAKERS = [(datasets.make_waveform, 21, 3), (datasets.make_eleven, 10, 11)]
EVERY = [
    datasets.load_wine,
    datasets.load_glass,
    datasets.load_vehicle,
    datasets.make_waveform,
    datasets.make_eleven,
]
Loader = Callable[..., Any]


@pytest.mark.parametrize(("load", "options", "shape", "sizes"), FILES)
def test_file_has_the_documented_rows_and_classes(load, options, shape, sizes):
    bunch = load(**options)
    assert bunch.data.shape == shape
    assert bunch.data.dtype == np.float64
    assert np.all(np.isfinite(bunch.data))
    assert np.bincount(bunch.target).tolist() == sizes
    assert len(bunch.target_names) == len(sizes)
    assert len(set(bunch.feature_names)) == shape[1]


def test_first_rows_are_uci_s():
    glass, vehicle = datasets.load_glass(), datasets.load_vehicle()
    assert dict(zip(glass.feature_names, glass.data[0], strict=True)) == {
        "RI": 1.52101, "Na": 13.64, "Mg": 4.49, "Al": 1.1, "Si": 71.78,
        "K": 0.06, "Ca": 8.75, "Ba": 0.0, "Fe": 0.0,
    }  # fmt: skip
    assert glass.target_names[glass.target[0]] == "building_windows_float_processed"
    assert glass.target_names[glass.target[-1]] == "headlamps"
    assert vehicle.data[0, :4].tolist() == [95, 48, 83, 178]
    assert vehicle.target_names[vehicle.target[0]] == "van"


def test_three_vehicle_classes_merge_opel_and_saab_only():
    four, three = datasets.load_vehicle(), datasets.load_vehicle(classes=3)
    names = four.target_names[four.target]
    merged = np.where(np.isin(names, ["opel", "saab"]), "car", names)
    np.testing.assert_array_equal(three.target_names[three.target], merged)
    np.testing.assert_array_equal(three.data, four.data)


@pytest.mark.parametrize("load", [datasets.load_glass, datasets.load_vehicle])
def test_bundled_data_name_their_source_and_licence(load: Loader):
    bunch = load()
    assert "UCI Machine" in bunch.DESCR
    assert "https://doi.org/10.24432/" in bunch.DESCR
    assert "CC BY 4.0" in bunch.DESCR
    assert bunch.filename.endswith(".csv")


@pytest.mark.parametrize("load", EVERY)
def test_pairs_frames_and_arrays_agree(load: Loader):
    bunch, (X, y), framed = load(), load(return_X_y=True), load(as_frame=True)
    assert bunch.frame is None
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)
    assert framed.frame.columns.tolist() == [*bunch.feature_names, "target"]
    np.testing.assert_array_equal(framed.data.to_numpy(), X)
    np.testing.assert_array_equal(framed.target.to_numpy(), y)


@pytest.mark.parametrize(("make", "features", "classes"), MAKERS)
def test_generated_data_are_a_function_of_the_seed(make: Loader, features, classes):
    one, same, other = make(200, 1), make(200, 1), make(200, 2)
    assert one.data.shape == (200, features)
    assert set(one.target) == set(range(classes)) == set(range(len(one.target_names)))
    np.testing.assert_array_equal(one.data, same.data)
    np.testing.assert_array_equal(one.target, same.target)
    assert not np.array_equal(one.data, other.data)


def test_waves_are_breiman_s():
    def h1(i):
        return max(6 - abs(i - 11), 0)

    index = range(1, 22)
    expected = [[h1(i) for i in index], [h1(i - 4) for i in index], [h1(i + 4) for i in index]]
    np.testing.assert_array_equal(_synthetic._waves(), expected)


def test_waveform_class_moments_match_the_formula():
    # E x = (h_a + h_b) / 2; Var x_i = 1 + (h_a - h_b)_i^2 / 12. 63 means and 63 variances, each
    # within 5 standard errors: false-alarm probability below 1e-4, and the seed is fixed.
    n = 60_000
    bunch = datasets.make_waveform(n, seed=3)
    waves = _synthetic._waves()
    sizes = np.bincount(bunch.target)
    np.testing.assert_allclose(sizes, n / 3, atol=5 * np.sqrt(n * 2 / 9))
    for k, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        rows = bunch.data[bunch.target == k]
        variance = 1 + (waves[a] - waves[b]) ** 2 / 12
        mean_error = np.abs(rows.mean(0) - (waves[a] + waves[b]) / 2)
        assert np.all(mean_error < 5 * np.sqrt(variance / sizes[k]))
        # kurtosis of uniform plus normal is at most 3
        variance_error = np.abs(rows.var(0) - variance)
        assert np.all(variance_error < 5 * variance * np.sqrt(2 / sizes[k]))


def test_eleven_means_are_a_centred_regular_simplex():
    means = _synthetic._simplex_means(11)
    np.testing.assert_allclose(means.sum(0), 0, atol=1e-12)
    distances = np.linalg.norm(means[:, None] - means[None], axis=-1)
    edge = np.sqrt(2) * _synthetic.SIMPLEX_SCALE
    np.testing.assert_allclose(distances, edge * (1 - np.eye(11)), atol=1e-12)


def test_eleven_bayes_error_is_six_percent():
    # The nearest of 11 simplex vertices: P(correct) = E Phi(z + scale)^10, z standard normal.
    scale = _synthetic.SIMPLEX_SCALE
    bayes_error = 1 - quad(lambda z: norm.pdf(z) * norm.cdf(z + scale) ** 10, -10, 10)[0]
    assert 0.055 < bayes_error < 0.065
    # 5 standard errors: false-alarm probability below 1e-6, and the seed is fixed.
    n = 20_000
    X, y = datasets.make_eleven(n, seed=5, return_X_y=True)
    error = np.mean(np.argmax(X @ _synthetic._simplex_means(11).T, axis=1) != y)
    assert abs(error - bayes_error) < 5 * np.sqrt(bayes_error * (1 - bayes_error) / n)


@pytest.mark.parametrize("classes", [2, 5, 3.5, "4", None, True])
def test_vehicle_rejects_other_class_counts(classes):
    with pytest.raises(ValueError, match=r"classes must be 4, or 3 to merge.*; got") as caught:
        datasets.load_vehicle(classes=classes)
    assert repr(classes) in str(caught.value)


@pytest.mark.parametrize("make", [datasets.make_waveform, datasets.make_eleven])
@pytest.mark.parametrize(
    ("argument", "value", "minimum"),
    [
        ("n_samples", 0, 1),
        ("n_samples", 2.5, 1),
        ("n_samples", True, 1),
        ("seed", -1, 0),
        ("seed", "zero", 0),
        ("seed", None, 0),
    ],
)
def test_makers_reject_bad_numbers(make: Loader, argument, value, minimum):
    with pytest.raises(ValueError, match=f"{argument} must be an integer") as caught:
        make(**{argument: value})
    assert f"at least {minimum}; got {value!r}" in str(caught.value)


@pytest.mark.parametrize("load", EVERY)
@pytest.mark.parametrize("argument", ["as_frame", "return_X_y"])
def test_flags_must_be_booleans(load: Loader, argument):
    with pytest.raises(ValueError, match=f"{argument} must be True or False; got 'yes'"):
        load(**{argument: "yes"})
