"""Every conditional against the joint density, and against dense linear algebra.

A full conditional must differ between two values exactly as ``log_joint`` does. What integrates
something out is compared with an explicit Gaussian or Student density of the scores, built here
from the Gram matrix with NumPy and SciPy alone.
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from hypothesis import given, settings
from jax.flatten_util import ravel_pytree
from scipy import stats

from bmsvm.models import (
    Hyperparameters,
    Position,
    Problem,
    coefficients,
    conditionals,
    log_joint,
    prepare,
    two_piece,
)
from bmsvm.models.couplings import (
    COUPLINGS,
    class_vector,
    contrast,
    n_columns,
    to_columns,
    to_scores,
)
from bmsvm.models.hierarchy import latent, log_prior, noise_prior, scores_of
from bmsvm.models.whitening import White, colour, white_shapes, whiten

# Not the defaults: no term may be too small to be missed.
HYPER = Hyperparameters(
    noise_shape=2.5,
    noise_rate=4.0,
    precision_shape=3.0,
    precision_rate=0.7,
    intercept_precision=20.0,
)
CLASSES = range(2, 8)
GRAMS = ("gaussian", "duplicates", "linear")
RELATIVE = 1e-8

# Each test of draws raises a false alarm with at most this probability, whatever the seed.
FALSE_ALARM = 1e-6
DRAWS = 20_000
LOG_NOISE = np.linspace(-15, 20, 2001)


class Case(NamedTuple):
    """A problem beside what it was made of."""

    problem: Problem
    gram: np.ndarray
    labels: np.ndarray

    def rows(self, column: int) -> np.ndarray:
        """Indices of the rows that a column observes."""
        if self.problem.coupling == "independent":
            return np.flatnonzero(self.labels != column)
        return np.arange(len(self.labels))


@functools.cache
def make(
    n_classes: int,
    coupling: str,
    gram: str,
    likelihood: str = "hinge",
    n: int = 12,
    lengthscale: float = 1.5,
) -> Case:
    """Build a problem whose Gram matrix is written out; ranks are n, n/2 and 2."""
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(n, 2))
    if gram == "duplicates":
        X[n // 2 :] = X[: n // 2]
    distances = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = X @ X.T if gram == "linear" else np.exp(-distances / (2 * lengthscale**2))
    labels = rng.permutation(np.arange(n) % n_classes)
    problem = prepare(
        X,
        labels,
        kernel="linear" if gram == "linear" else "gaussian",
        lengthscale=lengthscale,
        coupling=coupling,
        likelihood=likelihood,
        hyperparameters=HYPER,
    )
    return Case(problem, K, labels)


class Scales(NamedTuple):
    """What a state is made of: sizes of things, and a seed for their signs and directions."""

    seed: int
    noise_variance: float
    precision: float
    scores: float


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: float(np.exp(exponent)))


SCALES = st.builds(Scales, st.integers(0, 2**32 - 1), powers(-4, 4), powers(-4, 4), powers(-3, 3))
FEW = settings(deadline=None, max_examples=4, derandomize=True, database=None)
every_case = pytest.mark.parametrize(
    ("n_classes", "coupling", "gram"), list(itertools.product(CLASSES, COUPLINGS, GRAMS))
)
# More rows than the basis has columns: part of the scores is outside its span.
TALL = [(3, coupling, "linear", "hinge", 66) for coupling in COUPLINGS]
SOME = [*((3, coupling, gram) for coupling in COUPLINGS for gram in GRAMS), *TALL]


def some_ids(some: Any) -> str:
    return "-".join(map(str, some))


some_cases = pytest.mark.parametrize("some", SOME, ids=some_ids)


columns_of = jax.jit(to_columns, static_argnums=2)


def state(scales: Scales, case: Case) -> Position:
    """Draw a point of the parameter space with the given sizes."""
    rng = np.random.default_rng(scales.seed)
    problem = case.problem
    n, c, k = problem.n_rows, problem.n_classes, problem.n_columns
    scores = scales.scores * rng.normal(size=(n, c))
    scores -= scores.mean(1, keepdims=True)
    in_rank = np.asarray(problem.factor.eigenvalues > 0)
    weights = rng.normal(size=(len(in_rank), k)) * in_rank[:, None]
    return Position(
        columns=columns_of(jnp.asarray(scores), problem.labels, problem.coupling),
        intercept=jnp.asarray(rng.normal(size=k)),
        weights=jnp.asarray(weights),
        noise_variance=jnp.asarray(scales.noise_variance),
        precision=jnp.asarray(scales.precision),
    )


# Programs run a few times each: most of the time is compilation.
QUICKLY = {"xla_backend_optimization_level": 0}
joint = jax.jit(log_joint, compiler_options=QUICKLY)
scores_at = jax.jit(scores_of)


@functools.partial(jax.jit, compiler_options=QUICKLY)
def evaluate(value: Position, given: Position, problem: Problem) -> dict[str, Any]:
    """Log density of each parameter's ``value`` under its conditional at ``given``.

    Everything is in one function, so that one program a shape serves all tests.
    """
    tau, sigma2 = given.precision, given.noise_variance
    projection = conditionals.project(given.columns, problem)
    noise = conditionals.noise_variance_full(given, problem)
    noise_collapsed = conditionals.noise_variance_collapsed(projection, tau, problem)
    precision = conditionals.precision_full(given.weights, sigma2, problem)
    intercept = conditionals.intercept_collapsed(projection, tau, sigma2, problem)
    weights = conditionals.weights_full(projection, given.intercept, tau, sigma2, problem)
    functions = conditionals.class_functions(given, problem)
    scores = scores_of(given.columns, problem)
    return {
        "prior": log_prior(given, problem),
        "noise_variance": noise.log_prob(value.noise_variance),
        "noise_variance_collapsed": noise_collapsed.log_prob(value.noise_variance),
        "noise_grid_collapsed": noise_collapsed.log_prob(jnp.exp(LOG_NOISE)),
        "precision": precision.log_prob(value.precision),
        "precision_collapsed": conditionals.log_density_precision_collapsed(
            value.precision, projection, problem
        ),
        "intercept": (intercept.loc, intercept.scale),
        "intercept_collapsed": intercept.log_prob(value.intercept).sum(),
        "weights": weights.log_prob(value.weights),
        "columns": conditionals.log_density_columns(projection, tau, sigma2, problem),
        "columns_collapsed": conditionals.log_density_columns_collapsed(projection, tau, problem),
        "scores": [
            conditionals.score_moments(scores, functions, sigma2, cls, problem)
            for cls in range(problem.n_classes)
        ],
    }


def gaussian(problem: Problem) -> Problem:
    """Forget the likelihood, which the Gaussian part does not use: one program serves both."""
    return replace(problem, likelihood="hinge")


def assert_same_change(left: Sequence[Any], right: Sequence[Any]) -> None:
    """Check f(a) - f(b) == g(a) - g(b), relative to the size of the terms."""
    terms = np.asarray([*left, *right], dtype=float)
    assert np.all(np.isfinite(terms))
    gap = abs((terms[0] - terms[1]) - (terms[2] - terms[3]))
    assert gap <= RELATIVE * (1 + np.abs(terms).max())


def assert_equal(left: Any, right: Any) -> None:
    np.testing.assert_allclose(left, right, rtol=RELATIVE, atol=RELATIVE)


def dense_covariance(case: Case, column: int, precision: Any, intercept: bool = True) -> np.ndarray:
    """Q = I + K/tau + 11'/eta on the rows a column observes; without the last, R."""
    rows = case.rows(column)
    covariance = np.eye(len(rows)) + case.gram[np.ix_(rows, rows)] / float(precision)
    return covariance + intercept / HYPER.intercept_precision


def dense_log_density(case: Case, position: Position) -> float:
    """Log density of the columns given (sigma2, tau), an explicit normal."""
    columns, sigma2 = np.asarray(position.columns), float(position.noise_variance)
    return sum(
        stats.multivariate_normal.logpdf(
            columns[case.rows(j), j], cov=sigma2 * dense_covariance(case, j, position.precision)
        )
        for j in range(columns.shape[1])
    )


def dense_log_density_collapsed(case: Case, columns: Any, precision: Any) -> float:
    """Log density of the columns given tau alone: the inverse gamma makes it a Student t."""
    k = columns.shape[1]
    shape = scipy.linalg.block_diag(*(dense_covariance(case, j, precision) for j in range(k)))
    values = np.concatenate([np.asarray(columns)[case.rows(j), j] for j in range(k)])
    a, b = HYPER.noise_shape, HYPER.noise_rate
    return stats.multivariate_t.logpdf(values, shape=b / a * shape, df=a)


def log_prior_noise(noise_variance: Any) -> Any:
    return stats.invgamma.logpdf(noise_variance, HYPER.noise_shape / 2, scale=HYPER.noise_rate / 2)


def log_prior_precision(precision: Any) -> Any:
    shape, rate = HYPER.precision_shape / 2, HYPER.precision_rate / 2
    return stats.gamma.logpdf(precision, shape, scale=1 / rate)


# The joint density -------------------------------------------------------------------------


@some_cases
@FEW
@given(scales=SCALES)
def test_prior_is_the_hierarchy_written_out(some: Any, scales: Scales) -> None:
    case = make(*some)
    position = state(scales, case)
    sigma2, tau = scales.noise_variance, scales.precision
    basis, eigenvalues = map(np.asarray, case.problem.factor)
    rank = np.linalg.matrix_rank(case.gram, tol=1e-9)
    assert int(case.problem.rank) == rank
    columns, b, v = map(np.asarray, position[:3])
    functions = b + (basis * np.sqrt(eigenvalues)) @ v
    noise = np.sqrt(sigma2)
    expected = log_prior_noise(sigma2) + log_prior_precision(tau)
    expected += stats.norm.logpdf(b, 0, noise / np.sqrt(HYPER.intercept_precision)).sum()
    expected += stats.norm.logpdf(v[:rank], 0, noise / np.sqrt(tau)).sum()
    for j in range(columns.shape[1]):
        rows = case.rows(j)
        expected += stats.norm.logpdf(columns[rows, j], functions[rows, j], noise).sum()
    assert_equal(evaluate(position, position, case.problem)["prior"], expected)


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
@every_case
@FEW
@given(scales=SCALES, other=SCALES)
def test_full_conditionals_follow_the_joint(
    n_classes: int, coupling: str, gram: str, likelihood: str, scales: Scales, other: Scales
) -> None:
    case = make(n_classes, coupling, gram, likelihood)
    problem = gaussian(case.problem)
    here, there = state(scales, case), state(other, case)
    at_here = evaluate(here, here, problem)
    at_there = evaluate(there, here, problem)
    start = joint(here, case.problem)
    for site in ("noise_variance", "precision", "weights"):
        moved = here._replace(**{site: getattr(there, site)})
        assert_same_change((at_there[site], at_here[site]), (joint(moved, case.problem), start))


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
@every_case
@FEW
@given(scales=SCALES, step=st.floats(-3, 3))
def test_score_conditional_follows_the_joint(
    n_classes: int, coupling: str, gram: str, likelihood: str, scales: Scales, step: float
) -> None:
    # All rows move at once: given the functions they are independent.
    case = make(n_classes, coupling, gram, likelihood)
    here = state(scales, case)
    scores = scores_at(here.columns, gaussian(case.problem))
    start = joint(here, case.problem)
    rows = np.arange(len(case.labels))
    means_and_scales = evaluate(here, here, gaussian(case.problem))["scores"]
    for cls, (mean, scale) in enumerate(means_and_scales):
        free = case.labels != cls
        change = np.where(free, step * scales.scores * np.cos(rows), 0.0)
        moved = np.array(scores)
        moved[:, cls] += change
        moved[rows, case.labels] -= change  # the row's own class absorbs it, eq. (12)
        there = here._replace(columns=columns_of(jnp.asarray(moved), case.problem.labels, coupling))
        offset = 1 / (n_classes - 1)
        densities = []
        for z in (moved, np.asarray(scores)):
            if likelihood == "hinge":
                density = two_piece.log_density(z[:, cls], mean, scale, offset)
                densities.append(np.sum(density, where=free))
            else:
                log_p = scipy.special.log_softmax(np.maximum(z + offset, 0), axis=1)
                density = stats.norm.logpdf(z[:, cls], mean, scale)
                densities.append(np.sum(density, where=free) + log_p[rows, case.labels].sum())
        assert_same_change(densities, (joint(there, case.problem), start))


# What has the weights, the intercept or the noise integrated out ----------------------------


@every_case
@FEW
@given(scales=SCALES)
def test_columns_are_normal_with_the_dense_covariance(
    n_classes: int, coupling: str, gram: str, scales: Scales
) -> None:
    case = make(n_classes, coupling, gram)
    here = state(scales, case)
    found = evaluate(here, here, case.problem)["columns"]
    assert_equal(found, dense_log_density(case, here))


@every_case
@FEW
@given(scales=SCALES, other=SCALES)
def test_columns_are_student_without_the_noise(
    n_classes: int, coupling: str, gram: str, scales: Scales, other: Scales
) -> None:
    case = make(n_classes, coupling, gram)
    here, there = state(scales, case), state(other, case)
    dense = [dense_log_density_collapsed(case, p.columns, p.precision) for p in (here, there)]
    found = [evaluate(p, p, case.problem)["columns_collapsed"] for p in (here, there)]
    assert_same_change(found, dense)
    # As a density of tau, the columns stay and the prior comes in.
    taus = scales.precision, other.precision
    dense = [
        dense_log_density_collapsed(case, here.columns, tau) + log_prior_precision(tau)
        for tau in taus
    ]
    found = [evaluate(p, here, case.problem)["precision_collapsed"] for p in (here, there)]
    assert_same_change(found, dense)


def assert_chain(case: Case, here: Position) -> None:
    """p(T, b, v, sigma2, tau) = p(tau) p(T | tau) p(sigma2 | T, tau) p(b | ...) p(v | ...).

    All of them are normalised; the second is dense.
    """
    parts = evaluate(here, here, case.problem)
    chained = (
        log_prior_precision(float(here.precision))
        + dense_log_density_collapsed(case, here.columns, here.precision)
        + parts["noise_variance_collapsed"]
        + parts["intercept_collapsed"]
        + parts["weights"]
    )
    assert_equal(chained, parts["prior"])


@every_case
@FEW
@given(scales=SCALES)
def test_conditionals_chain_to_the_prior(
    n_classes: int, coupling: str, gram: str, scales: Scales
) -> None:
    case = make(n_classes, coupling, gram)
    assert_chain(case, state(scales, case))


@pytest.mark.parametrize("some", TALL, ids=some_ids)
@FEW
@given(scales=SCALES)
def test_designs_with_more_rows_than_rank_agree_too(some: Any, scales: Scales) -> None:
    case = make(*some)
    assert case.problem.factor.basis.shape == (66, 32)
    here = state(scales, case)
    assert_equal(evaluate(here, here, case.problem)["columns"], dense_log_density(case, here))
    assert_chain(case, here)


@some_cases
@FEW
@given(scales=SCALES)
def test_intercept_has_the_dense_conditional(some: Any, scales: Scales) -> None:
    case = make(*some)
    here = state(scales, case)
    loc, scale = evaluate(here, here, case.problem)["intercept"]
    for j in range(case.problem.n_columns):
        ones = np.ones(len(case.rows(j)))
        solved = np.linalg.solve(dense_covariance(case, j, here.precision, intercept=False), ones)
        information = HYPER.intercept_precision + ones @ solved
        mean = solved @ np.asarray(here.columns)[case.rows(j), j] / information
        assert_equal(loc[j], mean)
        assert_equal(scale[j], np.sqrt(scales.noise_variance / information))


def normalise(log_density: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Normalise a log density of exp(grid), given on a fine uniform grid of logarithms."""
    in_logs = log_density + grid
    peak = in_logs.max()
    return log_density - peak - np.log(np.trapezoid(np.exp(in_logs - peak), grid))


@some_cases
@FEW
@given(scales=SCALES)
def test_noise_given_the_columns_is_bayes_theorem_by_quadrature(some: Any, scales: Scales) -> None:
    case = make(*some)
    here = state(scales, case)
    grid, values = LOG_NOISE, np.exp(LOG_NOISE)
    log_posterior = log_prior_noise(values)
    for j in range(case.problem.n_columns):
        column = np.asarray(here.columns)[case.rows(j), j]
        quadratic = column @ np.linalg.solve(dense_covariance(case, j, scales.precision), column)
        log_posterior += -0.5 * (len(column) * grid + quadratic / values)
    found = np.asarray(evaluate(here, here, case.problem)["noise_grid_collapsed"])
    expected = normalise(log_posterior, grid)
    near = expected > expected.max() - 50
    np.testing.assert_allclose(found[near], expected[near], atol=1e-7)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("gram", GRAMS)
def test_precision_given_the_columns_is_bayes_theorem_by_quadrature(
    coupling: str, gram: str
) -> None:
    case = make(3, coupling, gram)
    here = state(Scales(1, 1.0, 1.0, 2.0), case)
    grid = np.linspace(-12, 8, 300)
    dense = [dense_log_density_collapsed(case, here.columns, tau) for tau in np.exp(grid)]
    expected = normalise(np.array(dense) + log_prior_precision(np.exp(grid)), grid)
    found = [
        evaluate(here._replace(precision=tau), here, case.problem)["precision_collapsed"]
        for tau in np.exp(grid)
    ]
    near = expected > expected.max() - 30
    found_normalised = normalise(np.array(found), grid)
    np.testing.assert_allclose(found_normalised[near], expected[near], atol=1e-7)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@FEW
@given(scales=SCALES)
def test_lengthscales_compare_as_dense_normals_do(
    n_classes: int, coupling: str, scales: Scales
) -> None:
    cases = [make(n_classes, coupling, "gaussian", lengthscale=theta) for theta in (0.7, 4.0)]
    here = state(scales, cases[0])
    found = [evaluate(here, here, case.problem) for case in cases]
    assert_same_change(
        [each["columns"] for each in found], [dense_log_density(case, here) for case in cases]
    )
    assert_same_change(
        [each["columns_collapsed"] for each in found],
        [dense_log_density_collapsed(case, here.columns, here.precision) for case in cases],
    )


@pytest.mark.parametrize("noise_variance", [1e-160, 1e-8, 1.0, 1e160])
def test_the_prior_of_the_noise_is_right_at_its_extremes(noise_variance: float) -> None:
    prior = noise_prior(make(3, "sum_to_zero", "gaussian").problem)
    expected = log_prior_noise(noise_variance)
    np.testing.assert_allclose(prior.log_prob(noise_variance), expected, rtol=1e-12)


# Coordinates ---------------------------------------------------------------------------------


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
    def there_and_back(key: jax.Array, columns: jax.Array) -> jax.Array:
        white = whiten(key, columns, here.precision, case.problem)
        return colour(white, here.precision, case.problem)

    back = there_and_back(jax.random.key(0), here.columns)
    np.testing.assert_allclose(back, here.columns, atol=1e-10)


@some_cases
def test_white_coordinates_of_the_columns_of_the_model_are_standard_normal(some: Any) -> None:
    """First and second moments, of what the columns do not determine too."""
    case = make(*some)
    precision = jnp.asarray(0.3)
    shapes = [shape for shape in white_shapes(case.problem) if shape is not None]

    @jax.jit
    @jax.vmap
    def there_and_back(key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(shapes) + 1)
        parts = [jax.random.normal(*each) for each in zip(keys, shapes, strict=False)]
        columns = colour(White(*parts, *[None] * (2 - len(parts))), precision, case.problem)
        return ravel_pytree(whiten(keys[-1], columns, precision, case.problem))[0]

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


# Draws ---------------------------------------------------------------------------------------


def assert_drawn_from(draws: Any, log_density: Any, grid: Any) -> None:
    """Kolmogorov-Smirnov of draws against a log density given on a fine grid."""
    draws, grid = np.asarray(draws), np.asarray(grid)
    weights = np.exp(np.asarray(log_density) - np.max(log_density))
    cells = np.diff(grid) * (weights[1:] + weights[:-1]) / 2
    cdf = np.concatenate([[0.0], np.cumsum(cells)]) / cells.sum()
    assert weights[0] < 1e-7
    assert weights[-1] < 1e-7
    assert stats.kstest(draws, lambda x: np.interp(x, grid, cdf)).pvalue > FALSE_ALARM


def assert_standard_normal(draws: Any) -> None:
    """Rows of independent standard normals: each coordinate by KS, each pair by correlation."""
    draws = np.asarray(draws)
    size, width = draws.shape
    pairs = width * (width - 1) // 2
    level = FALSE_ALARM / (width + pairs)  # Bonferroni
    for column in draws.T:
        assert stats.kstest(column, "norm").pvalue > level
    if pairs:
        products = draws.T @ draws / size
        off_diagonal = products[np.triu_indices(width, 1)]
        assert np.abs(off_diagonal).max() < stats.norm.isf(level / 2) / np.sqrt(size) * 1.05


SAMPLED = [(3, coupling, gram) for coupling in COUPLINGS for gram in ("duplicates", "linear")]
sampled_cases = pytest.mark.parametrize("some", SAMPLED, ids=some_ids)
STATE = Scales(seed=5, noise_variance=0.6, precision=0.4, scores=1.5)


@jax.jit
def draw_all(key: jax.Array, here: Position, problem: Problem) -> dict[str, jax.Array]:
    """Draw from every conditional at ``here``; the weights given the intercept drawn."""
    tau, sigma2 = here.precision, here.noise_variance
    projection = conditionals.project(here.columns, problem)
    intercept = conditionals.intercept_collapsed(projection, tau, sigma2, problem)
    keys = jax.random.split(key, 5)
    intercepts = intercept.sample(keys[3], (DRAWS,))

    def weights_given(key: jax.Array, intercept: jax.Array) -> jax.Array:
        found = conditionals.weights_full(projection, intercept, tau, sigma2, problem)
        return found.sample(key)

    return {
        "noise_variance": conditionals.noise_variance_full(here, problem).sample(keys[0], (DRAWS,)),
        "noise_variance_collapsed": conditionals.noise_variance_collapsed(
            projection, tau, problem
        ).sample(keys[1], (DRAWS,)),
        "precision": conditionals.precision_full(here.weights, sigma2, problem).sample(
            keys[2], (DRAWS,)
        ),
        "intercept": intercepts,
        "weights": jax.vmap(weights_given)(jax.random.split(keys[4], DRAWS), intercepts),
    }


@functools.partial(jax.jit, static_argnames="site")
def joint_along(site: str, values: jax.Array, here: Position, problem: Problem) -> jax.Array:
    return jax.vmap(lambda value: log_joint(here._replace(**{site: value}), problem))(values)


@sampled_cases
@pytest.mark.parametrize("site", ["noise_variance", "precision"])
def test_scale_draws_follow_the_joint(some: Any, site: str) -> None:
    case = make(*some)
    here = state(STATE, case)
    draws = draw_all(jax.random.key(1), here, case.problem)[site]
    grid = np.geomspace(draws.min() / 1000, draws.max() * 10, 4000)
    assert_drawn_from(draws, joint_along(site, grid, here, case.problem), grid)


@sampled_cases
def test_noise_draws_follow_the_dense_marginal(some: Any) -> None:
    case = make(*some)
    here = state(STATE, case)
    draws = draw_all(jax.random.key(2), here, case.problem)["noise_variance_collapsed"]
    grid = np.geomspace(draws.min() / 5, draws.max() * 10, 400)
    densities = [
        dense_log_density(case, here._replace(noise_variance=x)) + log_prior_noise(x) for x in grid
    ]
    assert_drawn_from(draws, densities, grid)


@sampled_cases
def test_intercept_and_weights_draws_have_the_dense_posterior(some: Any) -> None:
    case = make(*some)
    problem = case.problem
    here = state(STATE, case)
    drawn = draw_all(jax.random.key(3), here, problem)
    intercepts, weights = np.asarray(drawn["intercept"]), np.asarray(drawn["weights"])
    rank = int(problem.rank)
    assert np.all(weights[:, rank:] == 0)
    basis, eigenvalues = map(np.asarray, problem.factor)
    for j in range(problem.n_columns):
        # (b, v) jointly: ridge regression on [1, Phi].
        rows = case.rows(j)
        phi = (basis * np.sqrt(eigenvalues))[rows, :rank]
        design = np.column_stack([np.ones(len(rows)), phi])
        penalty = np.diag([HYPER.intercept_precision] + [STATE.precision] * rank)
        precision = design.T @ design + penalty
        mean = np.linalg.solve(precision, design.T @ np.asarray(here.columns)[rows, j])
        draws = np.column_stack([intercepts[:, j], weights[:, :rank, j]]) - mean
        root = np.linalg.cholesky(precision / STATE.noise_variance)
        assert_standard_normal(draws @ root)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_score_draws_follow_the_joint(n_classes: int, coupling: str) -> None:
    case = make(n_classes, coupling, "gaussian")
    here = state(STATE, case)
    cls = 1
    row = int(np.flatnonzero(case.labels != cls)[0])
    mean, scale = evaluate(here, here, case.problem)["scores"][cls]
    draws = two_piece.draw(
        jax.random.key(4), jnp.full(DRAWS, mean[row]), scale, 1 / (n_classes - 1)
    )
    scores = scores_of(here.columns, case.problem)

    def density(z: jax.Array) -> jax.Array:
        change = z - scores[row, cls]
        moved = scores.at[row, cls].add(change).at[row, case.labels[row]].add(-change)
        columns = to_columns(moved, case.problem.labels, coupling)
        return log_joint(here._replace(columns=columns), case.problem)

    grid = np.linspace(mean[row] - 12 * scale, mean[row] + 12 * scale, 20_001)
    assert_drawn_from(draws, jax.jit(jax.vmap(density))(grid), grid)
