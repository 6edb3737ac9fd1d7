"""The model with the noise of the scores integrated out, against its definition."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import oracle
import pytest

from bmsvm import Nystrom, prepare
from bmsvm.kernels import Gaussian, gram
from bmsvm.models import integrated as model
from bmsvm.models.couplings import class_map, class_vector
from bmsvm.models.likelihoods import log_mean_likelihood
from bmsvm.models.quadrature import noise_nodes
from reproduction.fits import draw_columns

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2))
LABELS = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0.5)
WEIGHTS = 0.5 + RNG.uniform(size=60)
NODES = jnp.asarray(noise_nodes(16, 2))


def small_problem(likelihood="normalized", row_weights=WEIGHTS):
    return prepare(
        ROWS, LABELS, lengthscale=1.0, likelihood=likelihood, hyperparameters=oracle.LIVELY,
        row_weights=row_weights, approximation=Nystrom(rank=6),
    )  # fmt: skip


@pytest.mark.parametrize("likelihood", ["normalized", "hinge"])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_likelihood_is_the_mean_over_nodes(likelihood, weighted, monkeypatch):
    """Value and slopes equal those of the mean likelihood over all points, differentiated.

    Whether the rows are taken together, or 7 at a time, or those of three devices.
    """
    problem = small_problem(likelihood, WEIGHTS if weighted else None)
    scale = 0.3
    x = jax.random.normal(jax.random.key(0), (2, 7))
    x = x.at[:, -1].set(20.0)  # and a function that is far away, where exponentials are large
    logs = jnp.asarray([0.4, -0.3])

    def direct(x, logs):
        functions, scales = model.functions_of(x, problem, scale), model.log_scales(logs, problem)
        around = functions.T[:, None] + jnp.exp(scales)[:, None, None] * NODES
        scores = around @ jnp.asarray(class_map("sum_to_zero", 3))
        return jnp.sum(log_mean_likelihood(scores, problem.labels, likelihood, problem.row_weights))

    expected = oracle.quick_jit(jax.value_and_grad(direct, (0, 1)))(x, logs)
    for rows in (2048, 7):
        monkeypatch.setattr(model, "ROWS", rows)

        def found(x, logs):
            return model.log_marginal_likelihood(x, logs, scale, NODES, problem)

        found = oracle.quick_jit(jax.value_and_grad(found, (0, 1)))(x, logs)
        for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)


def test_the_likelihood_is_finite_far_away():
    """In float32, at functions and a noise whose exponentials overflow."""
    problem = small_problem()
    light = problem.factor._replace(basis=problem.factor.basis.astype(jnp.float32))
    problem = replace(problem, factor=light)

    @oracle.quick_jit
    def slopes(x, logs):
        return jax.value_and_grad(model.log_marginal_likelihood, (0, 1))(
            x, logs, 1.0, NODES, problem
        )

    for size in (1e2, 1e4, 1e8):
        for log_scale in (-20.0, 0.0, 10.0):
            x = jnp.full((2, 7), size).at[0].set(-size)
            found = slopes(x, jnp.asarray([log_scale, 0.0]))
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_the_fisher_information_is_finite_far_away(likelihood):
    """In float32, for rows far from landmarks, whose noise is large too."""
    rows = 3 * np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    problem = prepare(
        rows, rows[:, 0] > 0, lengthscale=2.0, likelihood=likelihood,
        approximation=Nystrom(rank=5, dtype="float32"),
    )  # fmt: skip
    large = jnp.asarray(1000 * RNG.normal(size=(1, 200)), jnp.float32)
    nodes = jnp.asarray(noise_nodes(16, 1))
    information = oracle.quick_jit(model.fisher_information)
    found = information(large, jnp.asarray([3.5, 0.0]), nodes, problem)
    assert np.all(np.isfinite(found))


def test_few_nodes_are_near_much_noise():
    """Beside plain Monte Carlo with 40,000 draws: 32 points are off by a few per cent."""
    functions = np.array([[0.3, -0.8], [1.0, 0.4]])
    labels, sigma = jnp.array([0, 2]), 1.3

    def mean(points):
        scores = class_vector(functions[:, None] + sigma * jnp.asarray(points), "sum_to_zero")
        return np.exp(log_mean_likelihood(scores, labels, "normalized"))

    drawn = np.random.default_rng(1).normal(size=(40_000, 2))
    np.testing.assert_allclose(mean(noise_nodes(32, 2)), mean(drawn), rtol=0.1)


@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_nodes_have_the_moments_of_the_noise(dimension):
    nodes = noise_nodes(16, dimension)
    np.testing.assert_allclose(nodes.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(nodes.T @ nodes / 16, np.eye(dimension), atol=1e-12)


def test_what_landmarks_leave_is_noise_of_the_rows():
    """Without labels, columns of rows far from all landmarks vary as the kernel says they do.

    Given weights the variance of a row is ``sigma2 (1 + h/tau)``, with h the diagonal of ``K - Phi
    Phi'`` by dense algebra. False alarm: 1e-4.
    """
    problem = replace(small_problem(), row_weights=jnp.zeros(60))
    function = Gaussian().at(1.0)
    points = np.asarray(problem.basis_map.points)
    across = gram(function, ROWS, points)
    left = np.diag(
        gram(function, ROWS) - across @ np.linalg.solve(gram(function, points), across.T)
    )
    noise, precision = 0.7, 0.4
    weights = jnp.zeros((problem.factor.eigenvalues.size, 2))

    def draw(key):
        parameters = weights, jnp.zeros(2), jnp.asarray(noise), jnp.asarray(precision)
        return draw_columns(key, *parameters, NODES, problem)

    keys = jax.random.split(jax.random.key(6), 4000)
    draws = jax.jit(jax.vmap(draw))(keys)
    squares = np.sum(np.asarray(draws) ** 2, axis=2) / (2 * noise * (1 + left / precision))
    z = (squares.mean(0) - 1) / (squares.std(0) / np.sqrt(len(keys)))
    assert left.max() > 0.1
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


def test_the_prior_is_that_of_the_model():
    """Differences of log densities equal those of eqs. (15)-(17) written as distributions."""
    problem = small_problem()
    hyper, scale = problem.hyper, 0.3

    def expected(x, logs):
        noise, precision = np.exp(2 * logs[0]), np.exp(logs[1] + 2 * logs[0])
        sigma = np.sqrt(noise)
        return (
            dist.Normal(0, sigma / np.sqrt(precision)).log_prob(x[:, :-1]).sum()
            + dist.Normal(0, sigma / np.sqrt(hyper.intercept_precision))
            .log_prob(scale * x[:, -1])
            .sum()
            + dist.InverseGamma(hyper.noise_shape / 2, hyper.noise_rate / 2).log_prob(noise)
            + dist.Gamma(hyper.precision_shape / 2, hyper.precision_rate / 2).log_prob(precision)
            + np.log(2 * noise * precision)
        )

    points = [(RNG.normal(size=(2, 7)), RNG.normal(size=2)) for _ in range(4)]
    ours = [float(model.log_prior(x, jnp.asarray(logs), problem, scale)) for x, logs in points]
    theirs = [float(expected(x, logs)) for x, logs in points]
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-9)
