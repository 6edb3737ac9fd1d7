"""Theta on its grid: exact draws of the joint posterior, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import bmsvm
from bmsvm import BMSVMGibbs, prepare, run_chains
from bmsvm.inference import preset_blocks
from bmsvm.inference.blocks import Phase
from bmsvm.models import Position, scores_of
from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import latent
from bmsvm.models.whitening import symmetric_colour, symmetric_whiten

GRID = np.geomspace(0.4, 6.0, 6)
DRAWS = 20_000
CASES = (
    ("sum_to_zero", "hinge", "uniform"),
    ("sum_to_zero", "normalized", "log-uniform"),
    ("independent", "normalized", "uniform"),
)
X = np.random.default_rng(3).normal(size=(4, 2))
Y = np.array([0, 1, 2, 1])


def problem_of(coupling, likelihood, prior):
    return prepare(
        X,
        Y,
        lengthscale="sample",
        lengthscale_grid=GRID,
        lengthscale_prior=prior,
        coupling=coupling,
        likelihood=likelihood,
        hyperparameters=oracle.LIVELY,
    )


@functools.cache
def exact_draws(case):
    """Joint draws of theta and the rest, by rejection from the prior."""
    problem, rng = problem_of(*case), np.random.default_rng(5)
    weight = {"uniform": GRID, "log-uniform": np.ones_like(GRID)}[case[2]]  # of log-even cells
    kept = []
    while sum(len(part.kernel) for part in kept) < DRAWS:
        for index, size in enumerate(rng.multinomial(4 * DRAWS, weight / weight.sum())):
            if size == 0:
                continue
            here = problem.at(index)
            draws = oracle.prior_draws(rng, size, here)
            keep = rng.uniform(size=size) < oracle.likelihood_of(draws.columns, here)
            parts = [part[keep] for part in draws[:5]]
            kept.append(Position(*parts, np.full(keep.sum(), index)))
    joined = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
    order = rng.permutation(len(joined[0]))[:DRAWS]
    return problem, Position(*(jnp.asarray(part[order]) for part in joined))


def watched(positions, problem):
    def one(position):
        here = problem.at(position.kernel)
        functions = latent(position.intercept, position.weights, here)[:2]
        parts = (
            class_vector(position.intercept, problem.coupling),
            class_vector(functions, problem.coupling),
            scores_of(position.columns, here)[:2],
        )
        logs = jnp.log(jnp.stack([position.noise_variance, position.precision]))
        values = jnp.arcsinh(jnp.concatenate([part.ravel() for part in parts]))
        cells = jax.nn.one_hot(position.kernel, GRID.size)
        return jnp.concatenate([logs, values, cells, position.kernel[None]])

    return np.asarray(oracle.quick_jit(jax.vmap(one))(positions))


def after_sweeps(blocks, problem, positions, sweeps, seed=7):
    phase = Phase(jnp.array(1), jnp.array(1))

    def run(key, position):
        memory = tuple(block.init(position, problem.at(position.kernel)) for block in blocks)

        def sweep(carry, key):
            position, memory = carry
            learned = []
            keys = jax.random.split(key, len(blocks))
            for block, block_key, remembered in zip(blocks, keys, memory, strict=True):
                here = problem.at(position.kernel)
                position, remembered, _ = block.step(block_key, position, remembered, here, phase)
                learned.append(remembered)
            return (position, tuple(learned)), None

        return jax.lax.scan(sweep, (position, memory), jax.random.split(key, sweeps))[0][0]

    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return oracle.quick_jit(jax.vmap(run))(keys, positions)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_moves_of_theta_leave_the_posterior_invariant(case):
    """Three steps from exact draws; false alarm 1e-4 over the file."""
    problem, before = exact_draws(case)
    blocks = preset_blocks("default", case[1], lengthscale=True)[-1:]
    after = after_sweeps(blocks, problem, before, 3)
    assert float(jnp.mean(after.kernel != before.kernel)) > 0.3
    old, new = watched(before, problem), watched(after, problem)
    z = oracle.paired_z(oracle.second_order(old, old), oracle.second_order(new, old))
    assert oracle.largest(z) < oracle.threshold(1e-4 / 4, z.size)


def test_the_default_sweep_with_theta_leaves_the_posterior_invariant():
    problem, before = exact_draws(CASES[1])
    blocks = preset_blocks("default", "normalized", lengthscale=True)
    after = after_sweeps(blocks, problem, before, 3)
    old, new = watched(before, problem), watched(after, problem)
    z = oracle.paired_z(oracle.second_order(old, old), oracle.second_order(new, old))
    assert oracle.largest(z) < oracle.threshold(1e-4 / 4, z.size)


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
def test_the_symmetric_root_squares_to_the_covariance(coupling):
    problem = problem_of(coupling, "hinge", "uniform").at(2)
    n, k = problem.n_rows, problem.n_columns
    unit = jnp.eye(n * k).reshape(n * k, n, k)
    root = jax.vmap(lambda e: symmetric_colour(e, 0.3, problem))(unit).reshape(n * k, n * k)
    gram = np.asarray(problem.factor.basis * problem.factor.eigenvalues @ problem.factor.basis.T)
    expected = np.zeros((n, k, n, k))
    for j in range(k):
        seen = np.ones(n) if coupling == "sum_to_zero" else (j != Y).astype(float)
        expected[:, j, :, j] = np.eye(n) + np.outer(seen, seen) * gram / 0.3
    np.testing.assert_allclose(root.T @ root, expected.reshape(n * k, n * k), atol=1e-10)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(n, k)))
    back = symmetric_whiten(symmetric_colour(noise, 0.3, problem), 0.3, problem)
    np.testing.assert_allclose(back, noise, atol=1e-10)


def test_chains_report_the_lengthscale():
    run = run_chains(
        BMSVMGibbs(lengthscale="sample", lengthscale_grid=GRID),
        jax.random.key(0),
        X,
        Y,
        num_warmup=30,
        num_samples=20,
        num_chains=2,
        progress_bar=False,
    )
    drawn = run.samples["lengthscale"]
    assert drawn.shape == (2, 20)
    assert np.all(np.isin(drawn, GRID))
    assert len(np.unique(drawn)) > 1
    assert "theta" in run.sampler.get_diagnostics_str(run.state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lengthscale": "guess"}, """lengthscale must be .*, or "sample"; got 'guess'"""),
        ({"lengthscale_prior": "flat"}, "lengthscale_prior must be one of 'uniform'"),
        ({"lengthscale_grid": [1.0]}, "lengthscale_grid must be two or more positive"),
        ({"lengthscale_grid": [2.0, 1.0]}, "lengthscale_grid must be two or more positive"),
        ({"lengthscale_grid": [1.0, 2.0, 3.0]}, "evenly spaced on a log scale"),
        ({"lengthscale_grid": np.geomspace(1, 2, 30_000_000)}, "pass a grid of at most"),
        ({"kernel": "linear"}, "kernel must be one of 'gaussian'"),
        ({"kernel": bmsvm.kernels.gaussian(1.0)}, "kernel must be one of 'gaussian'"),
    ],
)
def test_bad_grids_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        prepare(X, Y, **{"lengthscale": "sample", **settings})


def test_a_prepared_problem_and_the_sampler_agree_on_theta():
    fixed, sampled = prepare(X, Y), problem_of(*CASES[0])
    with pytest.raises(ValueError, match='lengthscale must be "sample" for a problem'):
        BMSVMGibbs().prepare(sampled)
    with pytest.raises(ValueError, match='lengthscale must be "sample" for a problem'):
        BMSVMGibbs(lengthscale="sample").prepare(fixed)
