"""Theta sampled on a grid whose Gram matrices are of low rank."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import BMSVMClassifier, LowRank, load, prepare
from bmsvm.experiments.simulate import draw_parameters
from bmsvm.inference.blocks import Phase, collapsed, in_turn, memories, transported_lengthscale
from bmsvm.inference.laplace import with_reference
from bmsvm.kernels import gaussian, gram
from bmsvm.models import collapsed as model
from bmsvm.models.couplings import class_vector

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(5, 2)), np.array([0, 1, 2, 1, 0])
GRID = np.geomspace(0.4, 6.0, 4)
DRAWS = 8000


def on_grid(how, grid=GRID, rows=X, labels=Y, **settings):
    return prepare(
        rows, labels, lengthscale="sample", lengthscale_grid=grid, likelihood="normalized",
        hyperparameters=oracle.LIVELY, features=how, **settings,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["nystrom", "fourier"])
def test_a_value_of_the_grid_is_the_problem_prepared_at_it(kind):
    rows, labels = RNG.normal(size=(30, 2)), np.arange(30) % 3
    problem = on_grid(LowRank(kind, rank=8, landmarks="kmeans"), rows=rows, labels=labels)
    for number, theta in enumerate(GRID):
        here = problem.at(number)
        alone = prepare(rows, labels, lengthscale=theta, features=LowRank(kind, rank=8))
        ours, theirs = (
            (each.factor.basis * each.factor.eigenvalues) @ each.factor.basis.T
            for each in (here, alone)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        if kind == "nystrom":
            left = 1 - np.diag(gram(gaussian(theta), rows, here.features.points) @ np.linalg.solve(
                gram(gaussian(theta), here.features.points) + 1e-12 * np.eye(8),
                gram(gaussian(theta), here.features.points, rows),
            ))  # fmt: skip
            np.testing.assert_allclose(here.remainder, left, atol=1e-6)


@functools.cache
def exact_draws(kind):
    """Theta and the rest by rejection from the prior, the remainder being noise of the rows."""
    problem, rng = on_grid(LowRank(kind, rank=4)), np.random.default_rng(5)
    kept, found = [], 0
    while found < DRAWS:
        size = 1 << 15
        kernel = rng.choice(GRID.size, size, p=GRID / GRID.sum())  # uniform, of log-even cells
        here = problem.at(kernel)
        position, functions = draw_parameters(rng, size, here)
        left = 0.0 if here.remainder is None else np.asarray(here.remainder)
        noise = position.noise_variance[:, None] * (1 + left / position.precision[:, None])
        columns = functions + np.sqrt(noise)[..., None] * rng.normal(size=functions.shape)
        keep = rng.uniform(size=size) < oracle.likelihood_of(columns, problem)
        draws = position._replace(columns=columns, kernel=kernel)
        kept.append(jax.tree.map(lambda part, keep=keep: np.asarray(part)[keep], draws))
        found += int(keep.sum())
    return problem, jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)[:DRAWS]), *kept)


def watched(positions, problem):
    def one(position):
        here = problem.at(position.kernel)
        x = jnp.append(position.weights.T, position.intercept[:, None], axis=1)
        functions = model.functions_of(x, here, 1.0)
        values = [
            class_vector(functions.T[:2], "sum_to_zero").ravel(),
            position.columns[:2].ravel(),
        ]
        logs = jnp.log(jnp.stack([position.noise_variance, position.precision]))
        theta = jax.nn.one_hot(position.kernel, GRID.size)
        return jnp.concatenate([logs, jnp.arcsinh(jnp.concatenate(values)), theta])

    return np.asarray(oracle.quick_jit(jax.vmap(one))(positions))


def after_sweeps(problem, before, sweeps=2, seed=5):
    blocks = transported_lengthscale(), collapsed(max_steps=3)  # as the preset has, but shorter
    phase = Phase(jnp.array(1), jnp.array(1))

    def run(key, position):
        memory = memories(blocks, position._replace(columns=None), problem)

        def sweep(carry, key):
            keys = jax.random.split(key, len(blocks))
            *carry, info = in_turn(blocks, keys, *carry, problem, phase)
            return tuple(carry), info["lengthscale_accept_prob"]

        key, draw = jax.random.split(key)
        start = position._replace(columns=None), memory
        (position, _), accept = jax.lax.scan(sweep, start, jax.random.split(key, sweeps))
        columns = model.draw_columns(draw, position, problem.at(position.kernel))
        return position._replace(columns=columns), accept

    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return oracle.quick_jit(jax.vmap(run))(keys, before)


@pytest.mark.parametrize("kind", ["nystrom", pytest.param("fourier", marks=pytest.mark.long)])
def test_sweeps_with_theta_leave_exact_draws_where_they_are(kind):
    """Moments of exact posterior draws do not drift. False alarm: 1e-4; 256 points of noise."""
    problem, before = exact_draws(kind)
    problem = with_reference(problem, num_nodes=256)
    after, accept = after_sweeps(problem, before)
    assert np.mean(accept) > 0.2
    assert np.mean(np.asarray(after.kernel) != np.asarray(before.kernel)) > 0.3
    old, new = watched(before, problem), watched(after, problem)
    z = oracle.paired_z(oracle.second_order(old, old), oracle.second_order(new, old))
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)
