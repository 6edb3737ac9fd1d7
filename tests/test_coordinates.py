"""Scores, columns, white coordinates and coefficients: one point in several coordinates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense import (
    CLASSES,
    DRAWS,
    FALSE_ALARM,
    FEW,
    SCALES,
    Scales,
    dense_covariance,
    evaluate,
    every_case,
    make,
    some_cases,
    state,
)
from hypothesis import given
from jax.flatten_util import ravel_pytree
from scipy import stats

from bmsvm.models import coefficients
from bmsvm.models.conditionals import (
    WeightsConditional,
    weights_given_rest,
    weights_given_white,
)
from bmsvm.models.couplings import (
    COUPLINGS,
    class_vector,
    contrast,
    n_columns,
    to_columns,
    to_scores,
)
from bmsvm.models.hierarchy import latent
from bmsvm.models.problem import Problem
from bmsvm.models.whitening import White, colour, white_shapes, whiten


def normals(key: jax.Array, problem: Problem) -> White:
    """Standard normals of the shapes of white coordinates."""
    keys, shapes = jax.random.split(key), white_shapes(problem)
    drawn = [
        None if shape is None else jax.random.normal(key, shape)
        for key, shape in zip(keys, shapes, strict=True)
    ]
    return White(*drawn)


@pytest.mark.parametrize("n_classes", CLASSES)
def test_contrasts_are_orthonormal_and_sum_to_zero(n_classes: int) -> None:
    C = contrast(n_classes)
    H = np.eye(n_classes) - 1 / n_classes
    np.testing.assert_allclose(C.T @ C, np.eye(n_classes - 1), atol=1e-14)
    np.testing.assert_allclose(C @ C.T, H, atol=1e-14)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n_classes", CLASSES)
@FEW
@given(scales=SCALES)
def test_scores_and_columns_are_two_names_of_one_thing(
    n_classes: int, coupling: str, scales: Scales
) -> None:
    case = make(n_classes, coupling, "gaussian")
    labels = case.problem.labels
    columns = state(scales, case).columns
    assert columns.shape[1] == n_columns(coupling, n_classes) == case.problem.n_columns
    scores = to_scores(columns, labels, coupling)
    atol = 1e-12 * scales.scores
    np.testing.assert_allclose(scores.sum(1), 0, atol=atol)
    np.testing.assert_allclose(to_columns(scores, labels, coupling), columns, atol=atol)
    again = to_scores(to_columns(scores, labels, coupling), labels, coupling)
    np.testing.assert_allclose(again, scores, atol=atol)
    if coupling == "independent":  # what a column does not observe says nothing
        own = np.asarray(labels)[:, None] == np.arange(n_classes)
        garbled = jnp.where(own, 1e3, columns)
        np.testing.assert_array_equal(to_scores(garbled, labels, coupling), scores)
    assert int(np.sum([len(case.rows(j)) for j in range(columns.shape[1])])) == (
        case.problem.n_scores
    )


@some_cases
@pytest.mark.parametrize("precision", [0.05, 3.0])
def test_coloured_normals_have_covariance_r(some: Any, precision: float) -> None:
    case = make(*some)
    problem = case.problem
    inside, outside = white_shapes(problem)
    size = int(np.prod(inside)) + (int(np.prod(outside)) if outside else 0)

    def unit(direction: jax.Array) -> jax.Array:
        split = int(np.prod(inside))
        rest = direction[split:].reshape(outside) if outside else None
        return colour(White(direction[:split].reshape(inside), rest), precision, problem).ravel()

    # The map is linear: its matrix A has the images of the axes as columns, and A A' is Cov.
    root = np.asarray(jax.jit(jax.vmap(unit))(jnp.eye(size)))
    n, k = problem.n_rows, problem.n_columns
    covariance = (root.T @ root).reshape(n, k, n, k)
    expected = np.zeros_like(covariance)
    for j in range(k):
        rows = case.rows(j)
        dense = dense_covariance(case, j, precision, intercept=False)
        expected[np.ix_(rows, [j], rows, [j])] = dense[:, None, :, None]
    np.testing.assert_allclose(covariance, expected, atol=1e-9 / precision)


@some_cases
def test_whitening_undoes_colouring(some: Any) -> None:
    case = make(*some)
    here = state(Scales(0, 1.0, 0.3, 2.0), case)

    @jax.jit
    def there_and_back(noise: White, columns: jax.Array) -> jax.Array:
        white = whiten(noise, columns, here.precision, case.problem)
        return colour(white, here.precision, case.problem)

    back = there_and_back(normals(jax.random.key(0), case.problem), here.columns)
    np.testing.assert_allclose(back, here.columns, atol=1e-10)


@every_case
def test_white_coordinates_give_the_weights_that_the_columns_give(
    n_classes: int, coupling: str, gram: str
) -> None:
    case = make(n_classes, coupling, gram)
    here = state(Scales(0, 0.7, 0.3, 2.0), case)

    @jax.jit
    def both(noise: White) -> tuple[WeightsConditional, WeightsConditional]:
        residual = (here.columns - here.intercept) * (case.problem.design.mask > 0).T
        residual = residual / jnp.sqrt(here.noise_variance)
        white = whiten(noise, residual, here.precision, case.problem)
        return (
            weights_given_white(white, here, case.problem),
            weights_given_rest(here, case.problem),
        )

    found, expected = both(normals(jax.random.key(0), case.problem))
    np.testing.assert_allclose(found.loc, expected.loc, atol=1e-9)
    np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-12)


@some_cases
def test_white_coordinates_of_the_columns_of_the_model_are_standard_normal(some: Any) -> None:
    """First and second moments, of what the columns do not determine too."""
    case = make(*some)
    precision = jnp.asarray(0.3)

    @jax.jit
    @jax.vmap
    def there_and_back(key: jax.Array) -> jax.Array:
        first, other = (normals(each, case.problem) for each in jax.random.split(key))
        columns = colour(first, precision, case.problem)
        return ravel_pytree(whiten(other, columns, precision, case.problem))[0]

    white = np.asarray(there_and_back(jax.random.split(jax.random.key(1), DRAWS)))
    unit = np.eye(white.shape[1])
    covariance = (white.T @ white / DRAWS - unit) / np.sqrt((1 + unit) / DRAWS)
    z = np.append(covariance[np.triu_indices(len(unit))], white.mean(0) * np.sqrt(DRAWS))
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / z.size / 2)


@every_case
@FEW
@given(scales=SCALES)
def test_coefficients_represent_the_functions(
    n_classes: int, coupling: str, gram: str, scales: Scales
) -> None:
    case = make(n_classes, coupling, gram)
    here = state(scales, case)
    W = np.asarray(coefficients(here.weights, case.problem))
    np.testing.assert_allclose(W.sum(1), 0, atol=1e-9 * np.abs(W).max())  # eq. (4)
    functions = class_vector(latent(here.intercept, here.weights, case.problem), coupling)
    offset = class_vector(here.intercept, coupling)
    np.testing.assert_allclose(case.gram @ W, functions - offset, atol=1e-6)
    # The Moore-Penrose reading: W has no part that K cannot see.
    basis = np.asarray(case.problem.factor.basis)[:, : int(case.problem.rank)]
    np.testing.assert_allclose(basis @ (basis.T @ W), W, atol=1e-9 * np.abs(W).max())


@every_case
@FEW
@given(scales=SCALES)
def test_coefficients_have_the_singular_matrix_normal_prior(
    n_classes: int, coupling: str, gram: str, scales: Scales
) -> None:
    # Eq. (10): log q(W) = -tau/(2 sigma2) tr(K W W') + constant.
    case = make(n_classes, coupling, gram)
    here = state(scales, case)
    zero = here._replace(weights=jnp.zeros_like(here.weights))
    W = np.asarray(coefficients(here.weights, case.problem))
    log_q = -scales.precision / (2 * scales.noise_variance) * np.trace(case.gram @ W @ W.T)
    v = np.asarray(here.weights)
    if coupling == "independent":
        # W = B H leaves out the classes' mean, which is independent of it.
        means = v.mean(1)
        log_q -= n_classes * scales.precision / (2 * scales.noise_variance) * (means @ means)
    # Noise has no part in this: take the residuals of both out of the prior.
    log_prior_of = []
    for position in (here, zero):
        functions = latent(position.intercept, position.weights, case.problem)
        exact = position._replace(columns=functions)
        log_prior_of.append(evaluate(exact, exact, case.problem)["prior"])
    assert abs(log_prior_of[0] - log_prior_of[1] - log_q) <= 1e-6 * (1 + abs(log_q))
