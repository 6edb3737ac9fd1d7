"""Bad input is refused by name, with its value, before anything is compiled or sampled."""

from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse
from numpyro.infer import MCMC, NUTS

import bmsvm
from bmsvm.models import hierarchical_model

N, P = 9, 2
X = np.random.default_rng(0).normal(size=(N, P))
y = np.arange(N) % 3
GRAM = X @ X.T


def put(array: Any, index: Any, value: Any, dtype: Any = None) -> np.ndarray:
    changed = np.array(array, dtype=dtype)
    changed[index] = value
    return changed


def by_prepare(X: Any, y: Any, **settings: Any) -> None:
    bmsvm.prepare(X, y, **{"lengthscale": 1.0, **settings})


def by_sampler(X: Any, y: Any, **settings: Any) -> None:
    sampler = bmsvm.BMSVMGibbs(**{"lengthscale": 1.0, **settings})
    MCMC(sampler, num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), X, y)


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sampling, and every loop that could be compiled for it, an error of its own."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the sampler ran on bad input")

    monkeypatch.setattr(bmsvm.BMSVMGibbs, "sample", refuse)
    monkeypatch.setattr(jax.lax, "scan", refuse)
    monkeypatch.setattr(jax.lax, "fori_loop", refuse)
    monkeypatch.setattr(jax.lax, "while_loop", refuse)


both_ways = pytest.mark.parametrize("run", [by_prepare, by_sampler])

BAD_DATA = {
    "NaN in X": (put(X, (4, 1), np.nan), y, "X", "X[4, 1] = nan"),
    "infinite X": (put(X, (0, 0), -np.inf), y, "X", "X[0, 0] = -inf"),
    "1-D X": (X[:, 0], y, "X", "got shape (9,)"),
    "3-D X": (X[:, :, None], y, "X", "got shape (9, 2, 1)"),
    "scalar X": (3.0, y, "X", "got shape ()"),
    "no features": (X[:, :0], y, "X", "got shape (9, 0)"),
    "ragged X": ([[1.0, 2.0], [3.0]], y, "X", "inhomogeneous"),
    "words in X": (np.full((N, P), "red"), y, "X", "'red'"),
    "numbers as strings": (X.astype(str), y, "X", "dtype <U32"),
    "complex X": (X + 1j, y, "X", "dtype complex128"),
    "dates in X": (np.zeros((N, P), "datetime64[D]"), y, "X", "datetime"),
    "word in an object X": (put(X, (2, 0), "b", object), y, "X", "X[2, 0] = 'b'"),
    "None in an object X": (put(X, (8, 1), None, object), y, "X", "X[8, 1] = None"),
    "NaN in an object X": (put(X, (1, 1), np.nan, object), y, "X", "X[1, 1] = nan"),
    "sparse X": (scipy.sparse.csr_matrix(X), y, "X", "csr_matrix"),
    "sparse array X": (scipy.sparse.coo_array(X), y, "X", "coo_array"),
    "too few labels": (X, y[:-1], "X and y", "X has 9, y has 8"),
    "too many labels": (X, [*y, 0], "X and y", "X has 9, y has 10"),
    "one row": (X[:1], y[:1], "X", "got 1"),
    "no rows": (X[:0], y[:0], "X", "got 0"),
    "one class": (X, np.full(N, 7), "y", "7"),
    "one word": (X, ["a"] * N, "y", "'a'"),
    "2-D y": (X, y[:, None], "y", "got shape (9, 1)"),
    "one-hot y": (X, np.eye(3)[y], "y", "got shape (9, 3)"),
    "scalar y": (X, 1, "y", "got shape ()"),
    "ragged y": (X, [[0], [0, 1]], "y", "inhomogeneous"),
    "NaN label": (X, put(y, 5, np.nan, float), "y", "y[5] = nan"),
    "infinite label": (X, put(y, 0, np.inf, float), "y", "y[0] = inf"),
    "NaN in object labels": (X, put(y, 3, np.nan, object), "y", "y[3] = nan"),
    "None for all labels": (X, [None] * N, "y", "y[0] = None"),
    "NaT label": (X, put(y, 2, "NaT", "datetime64[D]"), "y", "y[2] = NaT"),
    "mixed list": (X, [*y[:-1], "a"], "y", "y[8] = 'a'"),
    "mixed objects": (X, put(y, 0, "a", object), "y", "y[0] = 'a'"),
    "NaN among words": (X, ["a", "b", np.nan] * 3, "y", "y[2] = nan"),
    "None among words": (X, ["a", "b", None] * 3, "y", "y[2] = None"),
    "continuous target": (X, y + 0.5, "y", "y[0] = 0.5"),
    "continuous target in objects": (X, (y + 0.25).astype(object), "y", "y[0] = 0.25"),
    "unsortable": (X, [object() for _ in y], "y", "object"),
}


@both_ways
@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_named(run: Any, name: str) -> None:
    rows, labels, argument, value = BAD_DATA[name]
    with pytest.raises(ValueError, match=rf"^{argument}\b") as caught:
        run(rows, labels)
    assert value in str(caught.value)


BAD_GRAMS = {
    "not square": (GRAM[:, :5], "X", "(9, 5)"),
    "not symmetric": (put(GRAM, (0, 1), 9.0), "X", "|K - K'|"),
    "negative eigenvalue": (GRAM - 0.1 * np.eye(N), "X", "-0.1"),
    "barely negative": (GRAM - 1e-9 * np.eye(N), "X", "-1e-09"),
    "zero": (np.zeros((N, N)), "X", ""),
    "NaN": (put(GRAM, (3, 3), np.nan), "X", "X[3, 3] = nan"),
}


@both_ways
@pytest.mark.parametrize("name", BAD_GRAMS)
def test_bad_gram_matrices_are_named(run: Any, name: str) -> None:
    matrix, argument, value = BAD_GRAMS[name]
    with pytest.raises(ValueError, match=rf"^{argument}\b") as caught:
        run(matrix, y, kernel="precomputed")
    assert value in str(caught.value)


BAD_NUMBERS = [0.0, -1.0, np.nan, np.inf, "3", None, [1.0], 1j, 10**400]


@both_ways
@pytest.mark.parametrize("value", BAD_NUMBERS, ids=lambda value: repr(value)[:5])
@pytest.mark.parametrize("field", [field.name for field in fields(bmsvm.Hyperparameters)])
def test_bad_hyperparameters_are_named(run: Any, field: str, value: Any) -> None:
    bad = replace(bmsvm.PAPER, **{field: value})
    with pytest.raises(ValueError, match=rf"^hyperparameters\.{field}\b") as caught:
        run(X, y, hyperparameters=bad)
    assert repr(value) in str(caught.value)


def asymmetric(a: Any, b: Any) -> Any:
    return np.asarray(a)[:, :1] - 2 * np.asarray(b)[:, :1].T


def indefinite(a: Any, b: Any) -> Any:
    return -np.asarray(a) @ np.asarray(b).T


BAD_SETTINGS = {
    "coupling": ({"coupling": "sum"}, "coupling", "'sum'"),
    "coupling type": ({"coupling": ["independent"]}, "coupling", "['independent']"),
    "coupling None": ({"coupling": None}, "coupling", "None"),
    "likelihood": ({"likelihood": "softmax"}, "likelihood", "'softmax'"),
    "likelihood type": ({"likelihood": ["hinge"]}, "likelihood", "['hinge']"),
    "kernel": ({"kernel": "rbfs"}, "kernel", "'rbfs'"),
    "kernel type": ({"kernel": 3.0}, "kernel", "3.0"),
    "kernel matrix": ({"kernel": np.eye(2)}, "kernel", "array"),
    "kernel shape": ({"kernel": lambda a, b: a}, "kernel", "(9, 2)"),
    "asymmetric": ({"kernel": asymmetric}, "kernel", "|K - K'|"),
    "indefinite": ({"kernel": indefinite}, "kernel", "-"),
    "lengthscale": ({"lengthscale": 0.0}, "lengthscale", "0.0"),
    "lengthscale NaN": ({"lengthscale": np.nan}, "lengthscale", "nan"),
    "lengthscale word": ({"lengthscale": "long"}, "lengthscale", "'long'"),
    "lengthscales": ({"lengthscale": [1.0, 2.0, 3.0]}, "lengthscale", "X has 2"),
    "no lengthscale": ({"lengthscale": None}, "lengthscale", "gaussian"),
    "lengthscale off": (
        {"lengthscale": bmsvm.Sampled(), "kernel": "linear"},
        "lengthscale",
        "linear",
    ),
    "approximation": ({"approximation": "nystrom"}, "approximation", "'nystrom'"),
    "low rank": (
        {"approximation": bmsvm.Nystrom(), "coupling": "independent"},
        "approximation",
        "'independent'",
    ),
    "hyperparameters": ({"hyperparameters": {"eta": 1}}, "hyperparameters", "{'eta': 1}"),
}


@both_ways
@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_bad_settings_are_named(run: Any, name: str) -> None:
    settings, argument, value = BAD_SETTINGS[name]
    with pytest.raises(ValueError, match=rf"^{argument}\b") as caught:
        run(X, y, **settings)
    assert value in str(caught.value).removeprefix(argument)


@pytest.mark.parametrize("sampler", ["fast", None, 1, ["paper"]])
def test_unknown_samplers_are_named(sampler: Any) -> None:
    with pytest.raises(ValueError, match=r"^sampler\b") as caught:
        bmsvm.BMSVMGibbs(sampler=sampler)
    assert repr(sampler) in str(caught.value)


def test_labels_must_be_given() -> None:
    sampler = bmsvm.BMSVMGibbs(lengthscale=1.0)
    with pytest.raises(ValueError, match=r"^y\b"):
        MCMC(sampler, num_warmup=1, num_samples=1).run(jax.random.key(0), X)


@pytest.mark.parametrize(
    ("key", "got"),
    [(0, "0"), (None, "None"), (X, r"shape \(9, 2\)"), (jax.random.split(jax.random.key(0)), "sh")],
)
def test_a_key_that_is_none_is_named(key: Any, got: str) -> None:
    with pytest.raises(ValueError, match=rf"^rng_key must be .*jax\.random\.key\(0\).*; got {got}"):
        bmsvm.run_chains(bmsvm.BMSVMGibbs(lengthscale=1.0), key, X, y)


def test_a_sampler_of_another_kind_is_named() -> None:
    with pytest.raises(ValueError, match=r"^kernel must be a BMSVMGibbs\(\.\.\.\); got NUTS"):
        bmsvm.run_chains(NUTS(hierarchical_model), jax.random.key(0), X, y)  # type: ignore[arg-type]


def test_the_error_of_a_kernel_of_single_rows_says_what_it_is_called_with() -> None:
    with pytest.raises(TypeError) as caught:
        by_prepare(X, y, kernel=lambda a, b: float(a @ b), lengthscale=None)
    (note,) = (each for each in caught.value.__notes__ if "bmsvm" in each)
    assert "kernel with two matrices of rows, (9, 2) and (9, 2): it must return" in note


GOOD_DATA = {
    "lists": (X.tolist(), y.tolist()),
    "integers": (np.round(10 * X).astype(int), y),
    "booleans": (X > 0, y > 0),
    "objects that are numbers": (X.astype(object), y.astype(object)),
    "single precision": (X.astype(np.float32), y.astype(np.int8)),
    "words": (X, np.array(["b", "c", "a"])[y]),
    "words as objects": (X, np.array(["b", "c", "a"], dtype=object)[y]),
    "whole floats": (X, y.astype(np.float32)),
    "whole floats and integers": (X, [0, 1.0, 2] * 3),
    "dates": (X, np.array(["2001-01-01", "2002-01-01", "2003-01-01"], "datetime64[D]")[y]),
    "JAX arrays": (jax.numpy.asarray(X), jax.numpy.asarray(y)),
    "negative labels": (X, y - 1),
}


@pytest.mark.parametrize("name", GOOD_DATA)
def test_unusual_but_good_data_are_taken(name: str) -> None:
    rows, labels = GOOD_DATA[name]
    problem = bmsvm.prepare(rows, labels, lengthscale=1.0)
    classes = np.unique(np.asarray(labels))
    assert problem.n_classes == len(classes)
    np.testing.assert_array_equal(classes[np.asarray(problem.labels)], np.asarray(labels))


def test_good_data_do_reach_the_sampler() -> None:
    with pytest.raises(AssertionError, match="the sampler ran"):
        by_sampler(X, y)


def test_starting_values_of_sites_that_do_not_start_a_chain_are_refused() -> None:
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 0])
    sampler = bmsvm.BMSVMGibbs(lengthscale=1.0)
    mcmc = MCMC(sampler, num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match=r"^init_params .*intercept"):
        mcmc.run(jax.random.key(0), X, y, init_params={"intercept": np.zeros(2)})
