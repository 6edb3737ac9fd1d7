"""Draws from every conditional follow its density."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense import (
    DRAWS,
    FALSE_ALARM,
    HYPER,
    Scales,
    dense_log_density,
    evaluate,
    log_prior_noise,
    make,
    noise_variance_full,
    some_ids,
    state,
)
from scipy import stats

from bmsvm.models import Position, Problem, conditionals, log_joint, two_piece
from bmsvm.models.couplings import COUPLINGS, to_columns
from bmsvm.models.hierarchy import scores_of


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
        "noise_variance": noise_variance_full(here, problem).sample(keys[0], (DRAWS,)),
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
