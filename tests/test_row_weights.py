"""Rows that count more or less: the log likelihood of a row times its weight."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from numpyro import handlers
from scipy import integrate, stats

from bmsvm import HMC, BMSVMGibbs, prepare
from bmsvm.inference.sweep import block_sweep
from bmsvm.models import hierarchical_model, log_joint, log_likelihood, two_piece
from bmsvm.models.couplings import contrast
from bmsvm.models.hierarchy import log_prior

WEIGHTS = (0.3, 2.0, 0.0, 1.0)
CASES = (
    oracle.Case(3, "sum_to_zero", "hinge", (0, 1, 2, 2), weights=WEIGHTS),
    oracle.Case(3, "independent", "hinge", (0, 1, 2, 1), seed=1, weights=WEIGHTS),
    oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 1), seed=2, weights=WEIGHTS),
)
BLOCKS = [
    (CASES[0], "exact_scores"),
    pytest.param(CASES[0], "hamiltonian", marks=pytest.mark.long),
    (CASES[1], "exact_scores"),
    *((CASES[2], name) for name in ("metropolis_scores", "hamiltonian")),
    pytest.param(CASES[2], "scale", marks=pytest.mark.long),
]
DRAWS = 20_000
# At most 3000 z-scores are looked at in this file, with 1e-4 for all of them.
BOUND = oracle.threshold(1e-4, 3_000)


@pytest.mark.parametrize(("case", "name"), BLOCKS, ids=str)
def test_block_leaves_the_weighted_posterior_invariant(case, name):
    """Three steps from exact draws change no moment. False alarm: 1e-4 for the whole file."""
    problem, before = oracle.exact_draws(case, DRAWS)
    sweep = block_sweep((oracle.all_blocks(case.likelihood)[name],))
    after, _ = oracle.after_sweeps(sweep, problem, before, sweeps=3, seed=10)
    assert oracle.largest(oracle.drift(problem, before, after)) < BOUND


def test_a_block_that_forgets_the_weights_is_noticed():
    case = CASES[0]
    problem, before = oracle.exact_draws(case, DRAWS)
    forgetful = oracle.Case(3, "sum_to_zero", "hinge", case.labels).problem()
    sweep = block_sweep((oracle.all_blocks("hinge")["exact_scores"],))
    after, _ = oracle.after_sweeps(sweep, forgetful, before, sweeps=3, seed=10)
    assert oracle.largest(oracle.drift(problem, before, after)) > 2 * BOUND


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_joint_is_the_prior_times_powers_of_the_likelihood(case):
    problem = case.problem()
    draws = oracle.prior_draws(np.random.default_rng(0), 200, problem)
    likelihood = oracle.likelihood_of(draws.columns, problem)

    @oracle.quick_jit
    def both(draws):
        return jax.vmap(lambda p: (log_joint(p, problem), log_prior(p, problem)))(draws)

    joint, prior = both(jax.tree.map(jnp.asarray, draws))
    np.testing.assert_allclose(np.exp(joint - prior), likelihood, rtol=1e-9)


def test_the_numpyro_model_has_the_same_likelihood():
    problem = CASES[2].problem()
    run = handlers.trace(handlers.seed(hierarchical_model, jax.random.key(0)))
    site = run.get_trace(problem)
    columns = jnp.asarray(np.asarray(site["scores"]["value"]) @ contrast(3))
    found = site["y"]["fn"].log_prob(problem.labels)
    np.testing.assert_allclose(found, log_likelihood(columns, problem), atol=1e-12)
    assert found[2] == 0


def test_a_row_of_weight_zero_says_nothing():
    problem = CASES[2].problem()
    columns = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)))
    slope = jax.grad(lambda t: jnp.sum(log_likelihood(t, problem)))(columns)
    np.testing.assert_array_equal(slope[2], 0)
    assert np.all(np.abs(np.delete(slope, 2, 0)).sum(1) > 0)


def test_weights_of_one_change_nothing():
    problem, weighted = (
        oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 1), weights=w).problem()
        for w in (None, (1.0,) * 4)
    )
    columns = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)))
    np.testing.assert_array_equal(
        log_likelihood(columns, problem), log_likelihood(columns, weighted)
    )


@pytest.mark.parametrize("slope", [0.0, 0.03, 2.5])
def test_draws_with_a_slope_follow_the_density(slope):
    """Kolmogorov-Smirnov, 20,000 draws, within Massart's bound of false alarm 1e-6 each."""
    mean, scale, offset, size = 0.7, 1.3, 0.5, 20_000
    draws = np.asarray(
        two_piece.draw(jax.random.key(0), jnp.full(size, mean), scale, offset, slope)
    )
    grid = np.linspace(mean - 12, mean + 12, 40_001)
    density = stats.norm.pdf(grid, mean, scale) * np.exp(-slope * np.maximum(grid + offset, 0))
    cdf = integrate.cumulative_trapezoid(density, grid, initial=0)
    distance = stats.kstest(draws, lambda z: np.interp(z, grid, cdf / cdf[-1])).statistic
    assert distance < np.sqrt(np.log(2 / 1e-6) / (2 * size))


SPARE = [
    oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 1), seed=2, spare_rows=2),
    oracle.Case(3, "independent", "hinge", (0, 1, 2, 1), seed=1, spare_rows=2),
]


@pytest.mark.parametrize("case", SPARE, ids=str)
def test_spare_rows_have_no_part_in_the_model(case):
    """Exact draws with and without them have the same moments, two samples of 20,000.

    False alarm: 1e-4.
    """
    with_spares, draws = oracle.exact_draws(case, DRAWS)
    without, others = oracle.exact_draws(dataclasses.replace(case, spare_rows=0), DRAWS)
    assert with_spares.n_rows == without.n_rows + 2 == 6
    basis, eigenvalues = map(np.asarray, with_spares.factor)
    gram = np.zeros((6, 6))
    gram[:4, :4] = (np.asarray(without.factor[0]) * np.asarray(without.factor[1])) @ np.asarray(
        without.factor[0]
    ).T
    np.testing.assert_allclose((basis * eigenvalues) @ basis.T, gram, atol=1e-12)
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-12)

    def watched(draws, problem):
        cut = draws._replace(columns=draws.columns[:, :4], weights=draws.weights[:, :4])
        return oracle.coordinates(cut, problem)

    one, other = watched(draws, without), watched(others, without)
    one, other = oracle.second_order(one, other), oracle.second_order(other, other)
    error = np.sqrt((one.var(0) + other.var(0)) / DRAWS)
    z = (one.mean(0) - other.mean(0)) / error
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


def test_the_default_sampler_leaves_the_posterior_with_spare_rows_invariant():
    """No moment moves in three sweeps. False alarm: 1e-4 for the whole file."""
    problem, before = oracle.exact_draws(SPARE[0], DRAWS)
    after, _ = oracle.after_sweeps(HMC().algorithm(problem), problem, before, sweeps=3, seed=12)
    assert oracle.largest(oracle.drift(problem, before, after)) < BOUND


def test_spare_rows_leave_a_truncated_basis_truncated():
    rows = np.random.default_rng(0).normal(size=(70, 2))
    problem = prepare(rows, np.arange(70) % 3, kernel="linear", spare_rows=10)
    assert problem.factor.basis.shape == (80, 32)
    np.testing.assert_array_equal(problem.factor.basis[70:], 0)


X, Y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6) % 3


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(5), r"row_weights must have one weight for each of 6 rows; got shape \(5,\)"),
        ([1, 1, -2, 1, 1, 1], r"row_weights must be finite and not negative; .*\[2\] = -2.0"),
        ([1, 1, np.nan, 1, 1, 1], r"row_weights must be finite .*\[2\] = nan"),
        (np.zeros(6), "row_weights must not all be zero"),
        ("heavy", "row_weights must be numbers; got 'heavy'"),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        prepare(X, Y, lengthscale=1.0, row_weights=weights)


def test_the_sampler_takes_the_weights_of_each_call():
    kernel = BMSVMGibbs(lengthscale=1.0)
    weighted = kernel.prepare(X, Y, np.arange(6))
    np.testing.assert_array_equal(weighted.row_weights, np.arange(6))
    assert kernel.prepare(X, Y).row_weights is None
