"""Sweeps of the sampler of the weights leave exact posterior draws where they are."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import Fourier, Nystrom, Sampled, prepare
from bmsvm.inference.collapsed import Point, collapsed_hmc, parameters_of
from bmsvm.inference.laplace import laplace_setup
from bmsvm.inference.reference import Coordinates, log_density
from bmsvm.models import Position
from bmsvm.models.integrated import logs_of
from reproduction.fits import draw_columns
from reproduction.simulate import draw_parameters

DRAWS = 8000
NODES = 128
"""Points of the noise. Their error of a log density has a standard deviation of 0.007 here, so that
moments move by less than that many standard deviations; the standard error of a moment is 0.011."""


def point_at(position, setup, problem):
    """Return the coordinates of a position, with their density and its slope."""
    reference = setup.reference
    logs = logs_of(position.noise_variance, position.precision)
    intercept = position.intercept[:, None] / reference.intercept_scale
    x = jnp.append(position.weights.T, intercept, axis=1)
    u = jnp.linalg.solve(reference.spread, logs - reference.logs)
    at = Coordinates(oracle.to_coordinates(x, logs, reference), u)
    return Point(at, *jax.value_and_grad(log_density)(at, setup, problem))


def after_sweeps(problem, before, sweeps):
    """Positions after sweeps past warm-up, and what each sweep says."""
    algorithm, setup = collapsed_hmc(max_steps=3), laplace_setup(problem, num_nodes=NODES)
    first = algorithm.init(jax.random.key(0), {}, setup, problem)

    def run(key, position):
        kernel = None if position.kernel is None else position.kernel.astype(first.kernel.dtype)
        point = point_at(position, setup.at(kernel), problem.at(kernel))

        def sweep(state, key):
            return algorithm.step(key, state, setup, problem, oracle.PAST_WARM_UP)

        key, key_draw = jax.random.split(key)
        state = first._replace(kernel=kernel, point=point)
        state, info = jax.lax.scan(sweep, state, jax.random.split(key, sweeps))
        here = setup.at(state.kernel)
        found = parameters_of(state.point.at, here)
        nodes = here.reference.nodes
        columns = draw_columns(key_draw, *found, nodes, problem.at(state.kernel))
        weights, intercept, *variances = found
        return Position(columns, intercept, weights, *variances, kernel=state.kernel), info

    keys = jax.random.split(jax.random.key(5), len(before.precision))

    @oracle.optimizing_jit
    def run_all(*each):  # in batches, which stay in the cache of the processor
        return jax.lax.map(lambda one: run(*one), each, batch_size=100)

    return run_all(keys, before)


@pytest.mark.parametrize(
    "case",
    [
        oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 1, 0), seed=12),
        pytest.param(
            oracle.Case(3, "sum_to_zero", "hinge", (0, 1, 2, 2), seed=13), marks=pytest.mark.long
        ),
    ],
    ids=str,
)
def test_sweeps_leave_exact_draws_where_they_are(case):
    """Moments of exact posterior draws do not drift. False alarm: 1e-4."""
    problem, before = oracle.exact_draws(case, DRAWS)
    after, info = after_sweeps(problem, before, sweeps=3)
    assert np.mean(info["accept_prob"]) > 0.2
    z = oracle.drift(problem, before, after)
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


X = np.random.default_rng(4).normal(size=(5, 2))
Y = np.array([0, 1, 2, 1, 0])
GRID = np.geomspace(0.4, 6.0, 4)


def exact_draws_with_theta(problem):
    """Theta and the rest by rejection from the prior, the remainder being noise of the rows.

    Each theta has its share of the prior draws, and a draw that is rejected at one row is dropped
    before the noise of the next is drawn.
    """
    rng, size = np.random.default_rng(5), 1 << 15
    kept, found = [], 0
    while found < DRAWS:
        parts = [
            draws_at(rng, kernel, count, problem)
            for kernel, count in enumerate(rng.multinomial(size, GRID / GRID.sum()))
        ]  # the prior is uniform, its cells even in log theta
        draws = jax.tree.map(lambda *each: np.concatenate(each), *parts)
        order = rng.permutation(len(draws.precision))
        kept.append(jax.tree.map(lambda part, order=order: part[order], draws))
        found += len(order)
    return jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)[:DRAWS]), *kept)


def draws_at(rng, kernel, count, problem):
    """Draw from the prior at one theta, and keep what is a draw of the posterior."""
    here = problem.at(kernel)
    position, functions = draw_parameters(rng, count, here)
    left = np.zeros(problem.n_rows) if here.remainder is None else np.asarray(here.remainder)
    columns, alive = np.zeros(functions.shape), np.arange(count)
    for row in range(problem.n_rows):
        variance = position.noise_variance[alive] * (1 + left[row] / position.precision[alive])
        mean = functions[alive, row]
        drawn = mean + np.sqrt(variance)[:, None] * rng.normal(size=mean.shape)
        likelihood = oracle.likelihood_of(drawn[:, None], problem, slice(row, row + 1))
        keep = rng.uniform(size=len(alive)) < likelihood
        alive = alive[keep]
        columns[alive, row] = drawn[keep]
    draws = position._replace(columns=columns, kernel=np.full(count, kernel))
    return jax.tree.map(lambda part: np.asarray(part)[alive], draws)


@pytest.mark.parametrize(
    "how", [Nystrom(rank=4), pytest.param(Fourier(rank=4), marks=pytest.mark.long)], ids=str
)
def test_sweeps_with_theta_leave_exact_draws_where_they_are(how):
    """Moments of exact posterior draws do not drift, theta among them. False alarm: 1e-4."""
    problem = prepare(
        X, Y, lengthscale=Sampled(grid=GRID), hyperparameters=oracle.LIVELY, approximation=how
    )
    before = exact_draws_with_theta(problem)
    after, info = after_sweeps(problem, before, sweeps=2)
    assert np.mean(info["lengthscale_accept_prob"]) > 0.2
    assert np.mean(np.asarray(after.kernel) != np.asarray(before.kernel)) > 0.3
    z = oracle.drift(problem, before, after, rows=(0, 1))
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)
