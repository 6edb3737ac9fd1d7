"""Kernels against scikit-learn's, and the factorisation of their Gram matrices."""

import re
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel
from tinygp import kernels as tinygp_kernels

from bmsvm import prepare
from bmsvm.kernels import (
    Factor,
    Function,
    Gaussian,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    Precomputed,
    as_kernel,
    factorize,
    gram,
)
from bmsvm.kernels.functions import gram_of

RNG = np.random.default_rng(0)
X1 = RNG.normal(size=(7, 3))
X2 = RNG.normal(size=(5, 3))
SCALES = [0.3, 3.5, [0.5, 2.0, 7.0]]
STATIONARY = {
    Gaussian(): lambda scale: RBF(scale),
    Matern32(): lambda scale: Matern(scale, nu=1.5),
    Matern52(): lambda scale: Matern(scale, nu=2.5),
    Laplacian(): lambda scale: (
        lambda *rows: laplacian_kernel(*(each / np.asarray(scale) for each in rows), gamma=1.0)
    ),
}


@pytest.mark.parametrize("lengthscale", SCALES, ids=str)
@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_stationary_kernels_are_those_of_scikit_learn(kernel: Any, lengthscale: Any) -> None:
    theirs = STATIONARY[kernel](lengthscale)
    np.testing.assert_allclose(gram(kernel.at(lengthscale), X1, X2), theirs(X1, X2), rtol=1e-12)
    square = gram_of(kernel, X1, lengthscale)
    np.testing.assert_allclose(square, theirs(X1), rtol=1e-12)
    np.testing.assert_allclose(np.diag(square), 1.0)


@pytest.mark.parametrize("lengthscale", [1.7, [0.5, 2.0, 7.0]], ids=str)
@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_a_lengthscale_that_is_traced_gives_the_same_kernel(kernel: Any, lengthscale: Any) -> None:
    traced = jax.jit(lambda scale: kernel.traced(scale)(X1, X2))
    found = traced(np.asarray(lengthscale))
    np.testing.assert_allclose(found, STATIONARY[kernel](lengthscale)(X1, X2), rtol=1e-12)


def test_the_gaussian_kernel_is_the_one_of_the_paper() -> None:
    # exp(-|x - x'|^2 / (2 theta^2)), not exp(-|x - x'|^2 / theta).
    found = gram(Gaussian().at(2.0), [[0.0]], [[3.0]])
    np.testing.assert_allclose(found, np.exp(-9 / 8))


def test_linear_is_the_inner_product() -> None:
    np.testing.assert_allclose(gram(Linear().at(), X1, X2), X1 @ X2.T, rtol=1e-12)
    np.testing.assert_allclose(gram_of(Linear(), X1), X1 @ X1.T, rtol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_polynomial_is_the_one_of_scikit_learn(degree: int) -> None:
    found = gram(Polynomial(degree, scale=1.7, offset=0.6).at(), X1, X2)
    expected = polynomial_kernel(X1, X2, degree=degree, gamma=1.7**-2, coef0=0.6**2)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_sums_and_products_are_those_of_the_matrices() -> None:
    a, b, c = Gaussian().at(1.5), Matern32().at([1.0, 2.0, 3.0]), Linear().at()
    found = gram(2.0 * a + b * c, X1, X2)
    expected = 2 * gram(a, X1, X2) + gram(b, X1, X2) * gram(c, X1, X2)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("lengthscale", SCALES, ids=str)
@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_a_kernel_takes_numpy_and_jax_arrays(kernel: Any, lengthscale: Any) -> None:
    function = kernel.at(lengthscale)
    expected = STATIONARY[kernel](lengthscale)(X1, X2)
    assert type(function(X1, X2)) is np.ndarray
    np.testing.assert_allclose(function(X1, X2), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(function)(X1, X2), expected, rtol=1e-12)
    many = np.repeat(X1, 10_000, axis=0)  # more than are computed at a time
    np.testing.assert_array_equal(function(many, X2), np.repeat(function(X1, X2), 10_000, axis=0))


@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_gradients_are_finite_where_rows_are_equal(kernel: Any) -> None:
    def total(rows: Any, scale: Any) -> Any:
        return kernel.traced(scale)(rows, rows).sum()

    for gradient in jax.grad(total, argnums=(0, 1))(np.ones((3, 2)), 2.0):
        assert np.all(np.isfinite(gradient))


def test_a_sum_may_have_a_kernel_of_tinygp_on_its_right() -> None:
    linear = tinygp_kernels.DotProduct()
    mixed = Gaussian().at(2.0) + 0.5 * linear
    expected = gram(Gaussian().at(2.0), X1, X2) + 0.5 * X1 @ X2.T
    np.testing.assert_allclose(gram(mixed, X1, X2), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(mixed)(X1, X2), expected, rtol=1e-12)


def test_kernels_of_tinygp_are_accepted_as_they_come() -> None:
    kernel = tinygp_kernels.RationalQuadratic(alpha=1.5, scale=2.0)
    np.testing.assert_allclose(
        gram_of(Function(kernel), X1), np.asarray(kernel(X1, X1)), rtol=1e-12
    )
    problem = prepare(X1, np.arange(7) % 3, kernel=kernel)
    assert int(problem.rank) == 7


def test_any_callable_is_a_kernel() -> None:
    def both(a: Any, b: Any) -> Any:
        return 1.0 + np.asarray(a) @ np.asarray(b).T

    np.testing.assert_allclose(gram_of(Function(both), X1), 1 + X1 @ X1.T)


def test_a_precomputed_gram_matrix_gives_the_same_problem() -> None:
    y = np.arange(7) % 3
    K = gram(Gaussian().at(2.0), X1)
    assert gram_of(Precomputed(), K) is K
    named = prepare(X1, y, lengthscale=2.0)
    given = prepare(K, y, kernel="precomputed")
    np.testing.assert_allclose(given.factor.eigenvalues, named.factor.eigenvalues, rtol=1e-12)


@pytest.mark.parametrize("lengthscale", [1.1, [1.1, 2.3, 0.7]], ids=str)
@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_gram_matrices_are_float64_whatever_jax_is_set_to(kernel: Any, lengthscale: Any) -> None:
    def both() -> tuple[np.ndarray, np.ndarray]:
        mixed = kernel.at(lengthscale) + Polynomial(2).at()
        return gram_of(kernel, X1, lengthscale), gram(mixed, X1)

    expected = both()
    with jax.enable_x64(False):
        found = both()
        factor = factorize(found[0])
    assert found[0].dtype == found[1].dtype == factor.basis.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_the_problem_itself_follows_the_precision_of_jax() -> None:
    y = np.arange(7) % 3
    with jax.enable_x64(False):
        for coupling in ("sum_to_zero", "independent"):
            problem = prepare(X1, y, lengthscale=1.0, coupling=coupling)
            floats = [a for a in jax.tree.leaves(problem) if np.issubdtype(a.dtype, np.floating)]
            assert {a.dtype.name for a in floats} == {"float32"}
    assert prepare(X1, y, lengthscale=1.0).factor.basis.dtype == np.float64


# Factorisation -----------------------------------------------------------------------------


def rebuild(factor: Factor) -> np.ndarray:
    return np.asarray((factor.basis * factor.eigenvalues) @ factor.basis.T)


ROWS = np.random.default_rng(1).normal(size=(50, 4))
TALL = np.random.default_rng(2).normal(size=(70, 4))
DUPLICATED = np.repeat(ROWS[:20], 2, axis=0)
GRAMS = {
    "gaussian": (gram(Gaussian().at(0.8), ROWS), 50, 50),
    "duplicates": (gram(Gaussian().at(0.8), DUPLICATED), 20, 40),
    "linear": (TALL @ TALL.T, 4, 32),
    "over half": (ROWS @ ROWS.T, 4, 50),
    "small": (ROWS[:6] @ ROWS[:6].T, 4, 6),
    "integers": (np.diag([3, 0, 2]), 2, 3),
    "large": (1e12 * TALL @ TALL.T, 4, 32),
    "tiny": (1e-12 * TALL @ TALL.T, 4, 32),
}


@pytest.mark.parametrize("name", sorted(GRAMS))
def test_factors_rebuild_the_matrix_at_its_rank(name: str) -> None:
    K, rank, kept = GRAMS[name]
    factor = factorize(K)
    largest = np.abs(K).max()
    assert factor.basis.shape == (len(K), kept)
    assert np.sum(factor.eigenvalues > 0) == rank
    assert np.all(factor.eigenvalues[rank:] == 0)
    assert np.all(np.diff(factor.eigenvalues) <= 0)
    np.testing.assert_allclose(rebuild(factor), K, atol=1e-12 * largest * len(K))
    np.testing.assert_allclose(factor.basis.T @ factor.basis, np.eye(kept), atol=1e-12)


def test_rounding_is_forgiven_in_the_precision_of_the_matrix() -> None:
    K = GRAMS["duplicates"][0]
    single = factorize(K.astype(np.float32))
    np.testing.assert_allclose(rebuild(single), K, atol=1e-4)
    assert np.sum(single.eigenvalues > 0) == 20
    extended = factorize(K.astype(np.longdouble))
    np.testing.assert_allclose(rebuild(extended), K, atol=1e-12)
    noise = 1e-16 * np.random.default_rng(2).normal(size=K.shape)
    np.testing.assert_allclose(rebuild(factorize(K + noise)), K, atol=1e-12)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((3, 2)), r"must be square; got shape \(3, 2\)"),
        (np.ones(3), r"must be square; got shape \(3,\)"),
        ([[1.0, np.nan], [np.nan, 1.0]], r"must be finite; its entry \[0, 1\] is nan"),
        ([[1.0, 0.0], [0.0, np.inf]], r"must be finite; its entry \[1, 1\] is inf"),
        ([[1.0, 0.5], [0.4, 1.0]], r"must be symmetric; the largest \|K - K'\| is 0.1"),
        ([[1.0, 2.0], [2.0, 1.0]], "must be positive semi-definite; its smallest eigenvalue is -1"),
        (-np.eye(3), "must be positive semi-definite; its smallest eigenvalue is -1"),
        (np.zeros((3, 3)), "is zero"),
    ],
)
def test_what_is_no_gram_matrix_is_refused(matrix: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"similarity: the Gram matrix " + message):
        factorize(matrix, name="similarity")


@pytest.mark.parametrize(
    "lengthscale", [0.0, -1.0, np.nan, np.inf, "long", None, [], [[1.0]], [1.0, -2.0], True, 1j]
)
@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_lengthscales_are_positive_numbers(kernel: Any, lengthscale: Any) -> None:
    with pytest.raises(ValueError, match=r"lengthscale must be .*" + re.escape(repr(lengthscale))):
        kernel.at(lengthscale)


def test_lengthscales_are_one_or_one_per_feature() -> None:
    with pytest.raises(ValueError, match=r"lengthscale must .*X has 3; got \[1.0, 2.0\]"):
        gram_of(Gaussian(), X1, [1.0, 2.0])
    np.testing.assert_allclose(gram_of(Gaussian(), X1, [2.0]), gram_of(Gaussian(), X1, 2.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"degree": 0}, "degree must be an integer of at least 1; got 0"),
        ({"degree": 10**400}, "degree must be an integer of at most 1000; got 10"),
        ({"degree": 1.5}, "degree must be an integer of at least 1; got 1.5"),
        ({"degree": "two"}, "degree must be an integer of at least 1; got 'two'"),
        ({"scale": 0.0}, "scale must be a positive finite number; got 0.0"),
        ({"offset": np.nan}, "offset must be a finite number; got nan"),
        ({"offset": "one"}, "offset must be a finite number; got 'one'"),
    ],
)
def test_polynomials_check_their_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Polynomial(**arguments)


def test_kernels_are_named_or_callable() -> None:
    names = {"gaussian": Gaussian, "rbf": Gaussian, "matern32": Matern32, "matern52": Matern52}
    names |= {
        "laplacian": Laplacian,
        "linear": Linear,
        "poly": Polynomial,
        "precomputed": Precomputed,
    }
    assert {name: as_kernel(name) for name in names} == {
        name: kind() for name, kind in names.items()
    }
    assert as_kernel(Matern32()) == Matern32()
    assert as_kernel(np.dot) == Function(np.dot)
    with pytest.raises(ValueError, match=r"kernel must be one of 'gaussian', .*; got 'sigmoid'"):
        as_kernel("sigmoid")
    with pytest.raises(ValueError, match=r"kernel must be a name or a callable .*; got 3"):
        as_kernel(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"shape \(7, 5\); it returned shape \(7,\)"):
        gram(lambda a, b: a[:, 0], X1, X2)
    with pytest.raises(ValueError, match=r"precomputed.* cannot be evaluated at rows"):
        Precomputed().at()
