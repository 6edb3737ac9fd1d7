"""Small problems whose Gram matrix is written out, and densities by dense linear algebra.

What a conditional integrates out is compared with an explicit Gaussian or Student density of the
scores, built here from the Gram matrix with NumPy and SciPy alone.
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
import numpyro.distributions as dist
import pytest
import scipy.linalg
from hypothesis import settings
from scipy import stats

from bmsvm.models import Hyperparameters, Position, Problem, conditionals, log_joint, prepare
from bmsvm.models.couplings import COUPLINGS, to_columns
from bmsvm.models.hierarchy import latent, log_prior, scores_of

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
    """Sizes of the parameters of a state, and a seed for their signs and directions."""

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


def noise_variance_full(position: Position, problem: Problem) -> dist.Distribution:
    """``sigma2 | T, b, B, tau``: nothing integrated out."""
    hyper = problem.hyper
    observed = problem.design.mask.T
    residual = position.columns - latent(position.intercept, position.weights, problem)
    total = (
        jnp.sum(jnp.where(observed > 0, residual, 0.0) ** 2)
        + hyper.intercept_precision * jnp.sum(position.intercept**2)
        + position.precision * jnp.sum(position.weights**2)
    )
    size = problem.n_scores + problem.n_columns * (1 + problem.rank)
    return dist.InverseGamma((hyper.noise_shape + size) / 2, (hyper.noise_rate + total) / 2)


@functools.partial(jax.jit, compiler_options=QUICKLY)
def evaluate(value: Position, given: Position, problem: Problem) -> dict[str, Any]:
    """Log density of each parameter's ``value`` under its conditional at ``given``.

    Everything is in one function, so that one program a shape serves all tests.
    """
    tau, sigma2 = given.precision, given.noise_variance
    projection = conditionals.project(given.columns, problem)
    noise = noise_variance_full(given, problem)
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
    """Drop the likelihood, which the Gaussian part does not use: one program serves both."""
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
