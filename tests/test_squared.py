"""The closed forms of the squared pseudo-likelihood, against dense linear algebra."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bmsvm.models import squared
from bmsvm.models.couplings import contrast
from bmsvm.models.likelihoods import LIKELIHOODS, class_codes, squared_scale

TAU, SIGMA2, ETA = 0.3, 0.7, 5.0
N_CLASSES = 3


def data(n=12, seed=0):
    """Design (n, r), codes (n, k), weights of rows (n,) and labels."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 2))
    gram = np.exp(-0.5 * np.sum((rows[:, None] - rows) ** 2, axis=-1))
    labels = rng.integers(N_CLASSES, size=n)
    weights = rng.uniform(0.2, 3.0, size=n)
    return gram, labels, squared.code_columns(labels, N_CLASSES), weights


def dense(gram, noise):
    """Covariance A of the codes, written out."""
    return SIGMA2 * (gram / TAU + 1 / ETA) + np.diag(np.broadcast_to(noise, len(gram)))


def row_noise(weights):
    return SIGMA2 + squared_scale(N_CLASSES) ** 2 / weights


class Regression(NamedTuple):
    """The regression of the codes: A^-1 C and the diagonal of A^-1, then what they give."""

    solved: np.ndarray
    diagonal: np.ndarray
    logdet: float
    quad: float
    weights: np.ndarray
    intercept: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


def regression(gram, codes, noise, *, orthonormal=False):
    """Solve it by the closed forms; ``noise`` is a number or shape (n,)."""
    eigen, noise = squared.eigen_of(gram), np.asarray(noise, np.float64)
    even = noise.ndim == 0
    moments = squared.moments_of(eigen, codes, 1.0 if even else 1 / noise, orthonormal=orthonormal)
    cell = squared.cell_at(moments, TAU, SIGMA2, ETA, noise if even else 1.0)
    mean, variance = squared.functions_at(eigen.basis * np.sqrt(eigen.eigenvalues), moments, cell)
    information = np.broadcast_to(1 / noise, (len(codes),))
    weights = cell.shrink[:, None] * (moments.codes - moments.ones[:, None] * cell.intercept)
    return Regression(
        information[:, None] * (codes - mean),
        information * (1 - information * variance),
        float(cell.logdet),
        float(cell.quad),
        weights if moments.rotation is None else moments.rotation @ weights,
        cell.intercept,
        mean,
        variance,
    )


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_codes_sum_to_zero_and_have_the_margin_of_a_perfect_row(n_classes):
    codes = class_codes(n_classes)
    assert np.allclose(codes.sum(axis=1), 0)
    assert np.allclose(np.diag(codes), 1)
    assert np.allclose(codes[~np.eye(n_classes, dtype=bool)], -1 / (n_classes - 1))
    assert np.allclose(np.sum(codes**2, axis=1), n_classes / (n_classes - 1))
    columns = squared.code_columns(np.arange(n_classes), n_classes)
    assert np.allclose(columns @ contrast(n_classes).T, codes)


def test_the_likelihood_is_its_equation():
    scores = np.random.default_rng(1).normal(size=(5, 4))
    labels = np.array([0, 3, 1, 1, 2])
    expected = []
    for z, y in zip(scores, labels, strict=True):
        code = np.full(4, -1 / 3)
        code[y] = 1.0
        expected.append(-np.sum((z - code) ** 2) / (2 * (1 / 6) ** 2))
    with jax.enable_x64(True):
        found = LIKELIHOODS["squared"](jnp.asarray(scores), jnp.asarray(labels))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("uneven", [False, True])
def test_the_regression_of_the_codes_is_that_of_dense_algebra(uneven):
    gram, _, codes, weights = data()
    noise = row_noise(weights if uneven else 1.0)
    covariance = dense(gram, noise)
    inverse = np.linalg.inv(covariance)
    eigen = squared.eigen_of(gram)
    for orthonormal in (False, True):
        found = regression(gram, codes, noise, orthonormal=orthonormal)
        np.testing.assert_allclose(found.solved, inverse @ codes, rtol=1e-8)
        np.testing.assert_allclose(found.diagonal, np.diag(inverse), rtol=1e-8)
        assert found.logdet == pytest.approx(np.linalg.slogdet(covariance)[1])
        assert found.quad == pytest.approx(np.trace(codes.T @ inverse @ codes))
        design = eigen.basis * np.sqrt(eigen.eigenvalues)
        np.testing.assert_allclose(
            found.weights, SIGMA2 / TAU * design.T @ inverse @ codes, atol=1e-9
        )
        np.testing.assert_allclose(
            found.intercept, SIGMA2 / ETA * np.sum(inverse @ codes, axis=0), atol=1e-9
        )
        prior = SIGMA2 * (gram / TAU + 1 / ETA)
        np.testing.assert_allclose(found.mean, prior @ inverse @ codes, atol=1e-9)
        np.testing.assert_allclose(
            found.variance, np.diag(prior - prior @ inverse @ prior), atol=1e-9
        )


def test_the_evidence_is_the_normal_density_of_the_codes():
    gram, _, codes, weights = data()
    noise = row_noise(weights)
    moments = squared.moments_of(squared.eigen_of(gram), codes, 1 / noise)
    cell = squared.cell_at(moments, TAU, SIGMA2, ETA)
    density = scipy.stats.multivariate_normal(cov=dense(gram, noise)).logpdf(codes.T).sum()
    found = squared.log_evidence(cell, 2) - codes.size / 2 * np.log(2 * np.pi)
    assert found == pytest.approx(density)


def test_many_values_of_the_parameters_at_once_are_those_of_each():
    gram, _, codes, _ = data()
    moments = squared.moments_of(squared.eigen_of(gram), codes, orthonormal=True)
    tau, sigma2 = np.array([0.1, 2.0, 30.0]), np.array([0.5, 0.01, 4.0])
    together = squared.cell_at(moments, tau, sigma2, ETA, sigma2 + 0.25)
    for i in range(3):
        alone = squared.cell_at(moments, tau[i], sigma2[i], ETA, sigma2[i] + 0.25)
        for name in squared.Cell._fields:
            np.testing.assert_allclose(getattr(together, name)[i], getattr(alone, name))


@pytest.mark.parametrize("uneven", [False, True])
def test_leave_one_out_is_what_a_fit_without_the_row_predicts(uneven):
    gram, _, codes, weights = data()
    noise = np.broadcast_to(row_noise(weights if uneven else 1.0), len(gram))
    found = regression(gram, codes, noise)
    mean, variance = squared.without_own_label(found.mean, found.variance, codes, 1 / noise)
    prior = SIGMA2 * (gram / TAU + 1 / ETA)
    for i in range(len(gram)):
        rest = np.delete(np.arange(len(gram)), i)
        gain = prior[i, rest] @ np.linalg.inv(dense(gram, noise)[np.ix_(rest, rest)])
        np.testing.assert_allclose(mean[i], gain @ codes[rest], atol=1e-9)
        assert variance[i] == pytest.approx(prior[i, i] - gain @ prior[rest, i])


def test_a_row_without_weight_has_no_part():
    gram, _, codes, _ = data()
    noise = np.append(np.inf, np.full(len(gram) - 1, 1.3))
    found = regression(gram, codes, noise)
    rest = regression(gram[1:, 1:], codes[1:], 1.3, orthonormal=True)
    assert found.logdet == pytest.approx(rest.logdet)
    assert found.quad == pytest.approx(rest.quad)
    np.testing.assert_allclose(found.intercept, rest.intercept)
    np.testing.assert_allclose(found.mean[1:], rest.mean, atol=1e-9)
    mean, variance = squared.without_own_label(found.mean, found.variance, codes, 1 / noise)
    np.testing.assert_allclose(mean[0], found.mean[0])
    assert variance[0] == pytest.approx(found.variance[0])


def test_sums_over_many_rows_are_made_in_pieces(monkeypatch):
    gram, _, codes, weights = data(40)
    eigen = squared.eigen_of(gram)
    whole = squared.moments_of(eigen, codes, weights)
    monkeypatch.setattr(squared, "ROWS", 7)
    pieces = squared.moments_of(eigen, codes, weights)
    np.testing.assert_allclose(
        squared.cell_at(pieces, TAU, SIGMA2, ETA).quad,
        squared.cell_at(whole, TAU, SIGMA2, ETA).quad,
    )
