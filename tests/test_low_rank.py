"""Gram matrices of low rank: Nystrom and Fourier bases, and the classifier on them."""

import functools
import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest
from few_draws import few_draws

from bmsvm import (
    BMSVMClassifier,
    Fourier,
    Nystrom,
    _fitting,
    load,
    prepare,
    save,
)
from bmsvm.kernels import Gaussian, Laplacian, Linear, Matern32, Matern52, gram
from bmsvm.kernels.low_rank import (
    build_basis_map,
    landmarks_of,
    low_rank_factor,
    pivoted_cholesky,
)
from bmsvm.models import DEFAULT
from bmsvm.selection.base import Method, Selection

ROWS = np.random.default_rng(0).normal(size=(200, 2))


def data(n):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    heights = np.stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 1]), X[:, 0] * X[:, 1]], axis=1)
    return X, np.argmax(2 * heights + rng.gumbel(size=(n, 3)), axis=1)


def test_a_basis_of_all_rows_is_the_gram_matrix():
    """With every row a landmark nothing is lost; with fewer, what is lost is positive and told."""
    kernel, rows = Gaussian(), ROWS[:40]
    function = kernel.at(1.0)
    K = gram(function, rows)
    whole = build_basis_map(rows, kernel, Nystrom(rank=40), 1.0)
    np.testing.assert_allclose(whole(rows, function) @ whole(rows, function).T, K, atol=1e-5)
    some = build_basis_map(rows, kernel, Nystrom(rank=10), 1.0)
    factor, left = low_rank_factor(some, rows, kernel, 1.0)
    np.testing.assert_allclose(factor.basis.T @ factor.basis, np.eye(10), atol=1e-8)
    error = K - (factor.basis * factor.eigenvalues) @ factor.basis.T
    assert np.linalg.eigvalsh(error).min() > -1e-8
    np.testing.assert_allclose(np.diag(error), left, atol=1e-8)
    np.testing.assert_allclose(np.trace(error) / 40, some.error, atol=1e-8)
    # New rows: Nystrom's formula, written out.
    new, points = ROWS[40:50], np.asarray(some.points)
    across, inner = gram(function, new, points), gram(function, points)
    expected = across @ np.linalg.solve(inner, gram(function, points, rows))
    here, there = some(new, function), some(rows, function)
    np.testing.assert_allclose(here @ there.T, expected, atol=1e-6)


def test_pivots_state_their_error_and_stop_at_it():
    kernel = Gaussian()
    numbers, errors = pivoted_cholesky(kernel, 0.5, ROWS, 200, tolerance=0.05)
    assert errors[-1] <= 0.05 < errors[-2]
    K = gram(kernel.at(0.5), ROWS)
    lost = K - K[:, numbers] @ np.linalg.solve(K[np.ix_(numbers, numbers)], K[numbers])
    np.testing.assert_allclose(np.trace(lost) / len(ROWS), errors[-1], rtol=1e-6)
    chosen = build_basis_map(ROWS, kernel, Nystrom(tolerance=0.05), 0.5)
    assert chosen.rotation.shape[1] == len(numbers)
    assert chosen.error < 0.06
    assert len(landmarks_of(Linear(), None, ROWS, Nystrom())) == 2  # its rank


@pytest.mark.parametrize("theta", [1.0, 2.0])
def test_landmarks_lose_less_than_rows_chosen_at_random(theta):
    rows, how = np.random.default_rng(5).normal(size=(2000, 3)), Nystrom(rank=60)
    some = build_basis_map(rows, Gaussian(), how, theta, points=rows[:60])
    assert build_basis_map(rows, Gaussian(), how, theta).error < 0.8 * some.error
    # Rows that occur often, or lie closer than numbers can tell apart, are no obstacle.
    for scale in (1.0, 1e-170):
        repeated = scale * np.repeat(rows[:30], 100, axis=0)
        points = landmarks_of(Gaussian(), 1.0, repeated, Nystrom(rank=20))
        assert points.shape == (20, 3)
        assert np.all(np.isfinite(points))


@pytest.mark.parametrize("kernel", [Gaussian(), Matern32(), Matern52(), Laplacian()], ids=str)
def test_waves_have_the_kernel_as_their_mean(kernel):
    """Products of Fourier features average to the kernel over frequencies; nothing remains.

    A mean over 2000 frequencies, each of variance at most 1/2: five standard errors are 0.08.
    """
    rows, theta, products = ROWS[:30], np.array([1.0, 2.0]), []
    for seed in range(20):
        basis_map = build_basis_map(rows, kernel, Fourier(rank=200, seed=seed), theta)
        phi = basis_map(rows, None)
        products.append(phi @ phi.T)
    np.testing.assert_allclose(np.diag(products[0]), 1.0, atol=1e-6)
    expected = gram(kernel.at(theta), rows)
    np.testing.assert_allclose(np.mean(products, axis=0), expected, atol=0.08)


def test_preparing_many_rows_takes_little_beyond_them():
    """400,000 rows of 32 features, 51 MB, are neither copied nor multiplied at once."""
    rows = np.empty((400_000, 32), np.float32)
    rows[:] = np.random.default_rng(0).normal(size=32)
    rows[::3] += 1
    labels = np.arange(400_000) % 2
    tracemalloc.start()
    try:
        problem = prepare(rows, labels, lengthscale=1.0, approximation=Nystrom(rank=1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problem.factor.basis.shape == (400_000, 1)
    assert peak < 51e6


class Stop(Exception):
    """Ends a fit before its chains run."""


@dataclass(frozen=True)
class Watched(Method):
    """Choose 1.25, and keep the arguments."""

    given: list
    max_rows: int = 60

    def select(self, X, y, *, row_weights=None, hyperparameters=DEFAULT, **model):
        self.given.append((X, y, row_weights))
        return Selection(Gaussian(), 1.25, hyperparameters, len(y))


def test_the_lengthscale_is_chosen_on_some_of_the_rows(monkeypatch):
    """As many of each class as its share; and all rows are then prepared at what was chosen."""
    X, y = data(400)
    weights, given, prepared = X[:, 0] + 10, [], []

    def stop(kernel, key, problem, **settings):
        prepared.append(problem)
        raise Stop

    monkeypatch.setattr(_fitting, "run_chains", stop)
    how = Nystrom(rank=5, dtype="float64")
    model = BMSVMClassifier(lengthscale=Watched(given), approximation=how, standardize=False)
    with pytest.raises(Stop):
        model.fit(X, y, sample_weight=weights)
    ((rows, labels, own),) = given
    assert rows.shape == (60, 2)
    np.testing.assert_array_equal(own, rows[:, 0] + 10)
    assert {tuple(row) for row in rows} <= {tuple(row) for row in X}
    np.testing.assert_allclose(np.bincount(labels) / 60, np.bincount(y) / 400, atol=0.02)
    assert model.selection_.lengthscale == 1.25
    expected = prepare(X, y, lengthscale=1.25, approximation=how).factor.eigenvalues
    np.testing.assert_allclose(prepared[0].factor.eigenvalues, expected, rtol=1e-6)


@functools.cache
def fitted():
    X, y = data(400)
    with few_draws():
        return BMSVMClassifier(
            lengthscale=1.0, approximation=Nystrom(rank=20), num_chains=2, num_warmup=50,
            num_samples=40, random_state=0,
        ).fit(X, y)  # fmt: skip


def test_the_classifier_predicts_from_landmarks():
    X, y = data(400)
    fit = fitted()
    assert fit.posterior_.problem.basis_map.kind == "nystrom"
    assert fit.posterior_.problem.factor.basis.shape[1] == 20
    assert fit.posterior_.problem.factor.basis.dtype == np.float64
    assert fit.run_.samples["scores"].shape[2:] == (416, 3)  # with spare rows
    chances = fit.predict_proba(X)
    np.testing.assert_allclose(chances.sum(1), 1.0)
    assert fit.score(X, y) > 0.5
    # It predicts from landmarks alone.
    alone = replace(fit.posterior_, training_rows=np.empty((0, 2)))
    without = replace(fit.predictive_, posterior=alone)
    np.testing.assert_array_equal(without.probabilities(fit.standardized_rows(X)), chances)
    assert alone.problem.basis_map.points.shape == (20, 2)
    assert fit.predictive_.squares.points.shape == (20, 2)
    far = fit.predict_uncertainty(np.array([[100.0, 100.0], [0.0, 0.0]]))
    assert far.epistemic[0] > 2 * far.epistemic[1]


def test_a_memory_map_is_read_as_an_array(tmp_path):
    X, y = data(400)
    np.save(tmp_path / "rows.npy", X)
    mapped, how = np.load(tmp_path / "rows.npy", mmap_mode="r"), Nystrom(rank=20)
    one, other = (prepare(rows, y, lengthscale=1.0, approximation=how) for rows in (mapped, X))
    np.testing.assert_array_equal(one.factor.basis, other.factor.basis)
    fit = fitted()
    np.testing.assert_array_equal(fit.predict_proba(mapped), fit.predict_proba(X))


@pytest.mark.few_draws
@pytest.mark.parametrize(
    "how", [Nystrom(rank=32, dtype="float32"), Fourier(rank=32, dtype="float32")]
)
def test_chains_run_on_a_basis_in_float32(how):
    X, y = data(60)
    settings = {"likelihood": "normalized", "num_warmup": 20, "num_samples": 10, "random_state": 0}
    model = BMSVMClassifier(approximation=how, lengthscale=2.0, **settings).fit(X, y)
    assert model.posterior_.problem.factor.basis.dtype == np.float32
    assert model.posterior_.samples["weights"].dtype == np.float64
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.few_draws
def test_saved_and_continued(tmp_path):
    fit = fitted()
    save(fit, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    X, _ = data(20)
    np.testing.assert_array_equal(again.predict_proba(X), fit.predict_proba(X))
    assert again.fit_more(5).run_.num_samples == 45


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"approximation": "some"}, "approximation must be one of"),
        ({"approximation": "fourier", "kernel": "linear"}, "needs a stationary kernel"),
        ({"approximation": "nystrom", "kernel": "precomputed"}, "precomputed"),
        ({"approximation": "nystrom", "coupling": "independent"}, "sum_to_zero"),
        ({"approximation": "nystrom", "lengthscale": "sample"}, "sampled on a given grid"),
    ],
)
def test_bad_settings_are_named(settings, message):
    X, y = data(30)
    X = X @ X.T if settings.get("kernel") == "precomputed" else X
    with pytest.raises(ValueError, match=message):
        BMSVMClassifier(**{"lengthscale": 1.0, "num_samples": 1, **settings}).fit(X, y)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (Nystrom, {"rank": 0}, "rank must be"),
        (Nystrom, {"tolerance": -1.0}, "tolerance must be"),
        (Nystrom, {"max_rank": 1}, "max_rank must be"),
        (Nystrom, {"dtype": "float16"}, "dtype must be one of"),
        (Fourier, {"rank": 1}, "rank must be"),
        (Fourier, {"seed": -1}, "seed must be"),
    ],
)
def test_bad_approximations_are_named(make, settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)
