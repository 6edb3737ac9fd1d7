"""Every conditional against the joint density, and against dense linear algebra.

A full conditional must differ between two values exactly as ``log_joint`` does.
"""

from typing import Any

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from dense import (
    FEW,
    GRAMS,
    HYPER,
    LOG_NOISE,
    SCALES,
    TALL,
    Case,
    Scales,
    assert_equal,
    assert_same_change,
    columns_of,
    dense_covariance,
    dense_log_density,
    dense_log_density_collapsed,
    evaluate,
    every_case,
    gaussian,
    joint,
    log_prior_noise,
    log_prior_precision,
    make,
    scores_at,
    some_cases,
    some_ids,
    state,
)
from hypothesis import given
from scipy import stats

from bmsvm.models import Position
from bmsvm.models.couplings import COUPLINGS
from bmsvm.models.hierarchy import noise_prior


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
            density = stats.norm.logpdf(z[:, cls], mean, scale)
            if likelihood == "hinge":  # the tilted normal, up to a constant
                density = density - np.maximum(z[:, cls] + offset, 0)
                densities.append(np.sum(density, where=free))
            else:
                log_p = scipy.special.log_softmax(np.maximum(z + offset, 0), axis=1)
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
