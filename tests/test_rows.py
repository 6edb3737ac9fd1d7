"""Rows that are read in pieces give the model of the same rows in memory."""

import pickle
import tracemalloc

import numpy as np
import pytest
from few_draws import few_draws
from sklearn.preprocessing import StandardScaler

from bmsvm import (
    HMC,
    BMSVMClassifier,
    Nystrom,
    from_batches,
    load,
    prepare,
    save,
)
from bmsvm import rows as module
from bmsvm.rows import PiecewiseRows, in_pieces, pieces_of
from bmsvm.scaling import Scaling

RNG = np.random.default_rng(0)
N = 500
X = (3.0 * RNG.normal(size=(N, 3)) + [0.0, 5.0, -2.0]).astype(np.float32)
NOISY = X + 2.0 * RNG.normal(size=(N, 3))
Y = np.array(["a", "b", "c"])[(NOISY[:, 0] > 0).astype(int) + (NOISY[:, 1] > 6)]
NEW = RNG.normal(size=(300, 3)).astype(np.float32)


class Chunked:
    """An array that can only be sliced, as those of Zarr; it counts what is read at most."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.chunks = array, array.shape, array.dtype, (50, 3)
        self.most = 0

    def __getitem__(self, index):
        assert isinstance(index, slice)
        found = self.array[index]
        self.most = max(self.most, len(found))
        return found


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", 128)
        yield


def mapped(path, array):
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def fit(rows, labels=Y, sample_weight=None, **settings):
    """Fit without standardising, so that the rows are bit for bit those of the source."""
    with few_draws():
        return BMSVMClassifier(
            **{"lengthscale": 3.0, "approximation": Nystrom(rank=10), "num_chains": 2,
               "sampler": HMC(), "num_warmup": 10, "num_samples": 10,
               "standardize": False, "random_state": 0, **settings}
        ).fit(rows, labels, sample_weight)  # fmt: skip


@pytest.fixture(scope="module")
def in_memory():
    return fit(X)


def test_rows_are_those_of_the_source(tmp_path):
    how = Scaling(
        np.array([1.0, 2, 3]), np.full(3, 2.0), np.full(3, np.inf), np.zeros(3), np.ones(3)
    )
    rows = PiecewiseRows(Chunked(X)).scaled(how)
    expected = (X.astype(float) - [1, 2, 3]) / 2
    np.testing.assert_array_equal(np.asarray(rows), expected)
    for index in (slice(100, 300), slice(10, 20), slice(0, 500, 7), slice(5, 5), 3, -1):
        np.testing.assert_array_equal(rows[index], expected[index])
    numbers = RNG.permutation(N)[:77]
    np.testing.assert_array_equal(rows[numbers], expected[numbers])
    some = rows.taking(np.sort(numbers))
    np.testing.assert_array_equal(np.concatenate(list(pieces_of(some))), expected[np.sort(numbers)])
    assert rows.source.most <= N
    assert pickle.loads(pickle.dumps(rows)).shape == (N, 3)
    assert in_pieces(mapped(tmp_path / "x.npy", X))
    assert not in_pieces(X)


def same_model(one, other):
    read, kept = one.posterior_.training_rows, other.posterior_.training_rows
    assert isinstance(read, PiecewiseRows)
    np.testing.assert_array_equal(np.asarray(read), kept)
    for name in ("precision", "weights"):
        np.testing.assert_array_equal(one.run_.samples[name], other.run_.samples[name])
    np.testing.assert_array_equal(one.predict_proba(NEW), other.predict_proba(NEW))


def test_a_memory_map_gives_the_model_of_the_array(tmp_path, in_memory):
    model = fit(mapped(tmp_path / "x.npy", X))
    same_model(model, in_memory)
    new = mapped(tmp_path / "new.npy", NEW)
    np.testing.assert_array_equal(model.predict_proba(new), model.predict_proba(NEW))
    save(model, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))


def test_what_can_only_be_sliced_is_enough():
    """Never more than a piece is read; rows of weight zero are left out."""
    source, weights = Chunked(X), np.ones(N)
    weights[::5] = 0
    model = fit(source, sample_weight=weights)
    assert source.most <= 128 * 5 // 4
    same_model(model, fit(X, sample_weight=weights))
    few = Chunked(NEW)
    np.testing.assert_array_equal(model.predict(few), model.predict(NEW))
    assert few.most <= 128


def test_moments_are_summed_over_the_pieces():
    model = fit(Chunked(X), standardize="standard", lengthscale=1.0)
    scaler = StandardScaler().fit(X.astype(float))
    np.testing.assert_allclose(model.scaling_.centre, scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(model.scaling_.scale, scaler.scale_, rtol=1e-12)
    expected = scaler.transform(X.astype(float))
    np.testing.assert_allclose(np.asarray(model.posterior_.training_rows), expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict_proba(Chunked(NEW)), model.predict_proba(NEW))


def test_robust_scaling_of_pieces_gives_the_model_of_the_array():
    source = Chunked(X)
    model = fit(source, standardize="robust", lengthscale=1.0)
    assert source.most <= 128
    same_model(model, fit(X, standardize="robust", lengthscale=1.0))
    np.testing.assert_array_equal(model.predict_proba(Chunked(NEW)), model.predict_proba(NEW))


def test_a_zarr_array_is_read(in_memory):
    zarr = pytest.importorskip("zarr")
    array = zarr.array(X, chunks=(100, 3))
    assert in_pieces(array)
    same_model(fit(array), in_memory)
    labels = zarr.array((X[:, 0] > 0).astype(int))
    assert fit(array, labels, num_samples=1).classes_.tolist() == [0, 1]


def test_batches_become_a_memory_map(tmp_path):
    parts = [slice(0, 10), slice(10, 400), slice(400, 500)]
    batches = ((X[part], Y[part]) for part in parts)
    rows, labels = from_batches(batches, tmp_path / "rows.npy")
    assert isinstance(rows, np.memmap)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(labels, Y)
    with pytest.raises(FileExistsError):
        from_batches([(X, Y)], tmp_path / "rows.npy")
    with pytest.raises(ValueError, match=r"batch 1 has shapes \(3, 3\) and \(2,\)"):
        from_batches([(X, Y), (X[:3], Y[:2])], tmp_path / "other.npy")
    with pytest.raises(ValueError, match="rows of 3 features, as the first has; batch 1 has 2"):
        from_batches([(X, Y), (X[:, :2], Y)], tmp_path / "third.npy")


def test_memory_is_that_of_the_basis(tmp_path, monkeypatch):
    """Preparing 400,000 rows of 32 features holds no copy of them: 51 MB in the file."""
    monkeypatch.setattr(module, "PIECE", 8192)
    rows = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (400_000, 32))
    rows[:] = RNG.normal(size=32)
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


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (np.where(np.arange(1500).reshape(500, 3) == 901, np.nan, X), Y, r"X\[300, 1\] = nan"),
        (X.astype(complex), Y, "real numbers; got dtype complex128"),
        (X, Y[:3], "inconsistent numbers of samples"),
        (X[:, :0], Y, "at least one feature"),
    ],
)
def test_bad_rows_are_named(rows, labels, message, in_memory):
    with pytest.raises(ValueError, match=message):
        fit(Chunked(rows), labels)
    with pytest.raises(ValueError, match="expecting 3 features"):
        in_memory.predict(Chunked(X[:, :2]))
