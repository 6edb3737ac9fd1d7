"""Theta sampled on a grid whose Gram matrices are of low rank."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import oracle
import pytest

import bmsvm
from bmsvm import BMSVMClassifier, LowRank, load, prepare, save
from bmsvm.inference.blocks import (
    Phase,
    collapsed,
    in_turn,
    memories,
    transport,
    transported_lengthscale,
)
from bmsvm.inference.laplace import with_reference
from bmsvm.kernels import gaussian, gram
from bmsvm.models import collapsed as model
from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import Position, latent, noise_prior, precision_prior
from bmsvm.models.likelihoods import log_mean_likelihood
from reproduction.simulate import draw_parameters

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(5, 2)), np.array([0, 1, 2, 1, 0])
GRID = np.geomspace(0.4, 6.0, 4)
FINE = np.geomspace(0.7, 1.4, 4)
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


def test_what_is_held_has_the_density_of_the_model_at_every_theta():
    """Differences between thetas are those of the density of (v, b, sigma2, tau), by Jacobians."""
    problem = with_reference(on_grid(LowRank(rank=3)))
    shapes = problem.reference.mode.shape, (2,)
    held = model.Coordinates(*(jnp.asarray(RNG.normal(size=shape)) for shape in shapes))

    def natural(flat, here):
        xi, logs = flat[:-2].reshape(shapes[0]), flat[-2:]
        at = transport._released(model.Coordinates(xi, logs), here.reference)
        start = Position(None, None, None, None, None)
        found = model.position_of(at, start, here)
        return found, jnp.concatenate(
            [found.weights.ravel(), found.intercept, found.noise_variance[None],
             found.precision[None]]
        )  # fmt: skip

    ours, theirs = [], []
    for number in range(GRID.size):
        here = problem.at(number)
        flat = jnp.concatenate([held.xi.ravel(), held.logs])
        found, _ = natural(flat, here)
        jacobian = jax.jacobian(lambda flat, here=here: natural(flat, here)[1])(flat)
        functions = latent(found.intercept, found.weights, here)
        left = found.noise_variance * (1 + here.remainder / found.precision)
        around = functions[:, None] + jnp.sqrt(left)[:, None, None] * here.reference.nodes
        scores = class_vector(around, "sum_to_zero")
        sigma, hyper = jnp.sqrt(found.noise_variance), here.hyper
        theirs.append(
            jnp.sum(log_mean_likelihood(scores, here.labels, "normalized"))
            + dist.Normal(0, sigma / jnp.sqrt(found.precision)).log_prob(found.weights).sum()
            + dist.Normal(0, sigma / jnp.sqrt(hyper.intercept_precision))
            .log_prob(found.intercept)
            .sum()
            + noise_prior(here).log_prob(found.noise_variance)
            + precision_prior(here).log_prob(found.precision)
            + jnp.linalg.slogdet(jacobian)[1]
        )
        ours.append(transport._log_density(held, here))
    assert np.ptp(theirs) > 0.1
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), atol=1e-8)


@functools.cache
def fitted():
    """Of noisy labels: without noise the posterior is far from normal, and theta stays."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2))
    noisy = rows + rng.normal(size=rows.shape)
    labels = (np.sin(2 * noisy[:, 0]) > 0).astype(int) + (noisy[:, 1] > 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BMSVMClassifier(
            lengthscale="sample", lengthscale_grid=FINE, features="nystrom", rank=12, num_chains=2,
            num_warmup=30, num_samples=30, random_state=0,
        ).fit(rows, labels)  # fmt: skip


def test_classifier_samples_theta_with_low_rank(tmp_path):
    fit = fitted()
    drawn = fit.run_.samples["lengthscale"]
    assert np.isin(drawn.ravel().round(6), FINE.round(6)).all()
    assert len(np.unique(drawn)) > 1
    assert FINE[0] <= fit.lengthscale_ <= FINE[-1]
    assert "scores" not in fit.run_.samples
    new = RNG.normal(size=(20, 2))
    chances = fit.predict_proba(new)
    np.testing.assert_allclose(chances.sum(1), 1.0)
    # One stage for each theta that was visited, with the features of that theta.
    stages = fit._posterior().stages
    assert sum(len(stage.draws) for stage in stages) == drawn.size
    for stage in stages:
        assert len({float(value) for value in drawn.reshape(-1)[stage.draws]}) == 1
    save(fit, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    np.testing.assert_array_equal(again.predict_proba(new), chances)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert again.fit_more(5).run_.num_samples == 35


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": None}, "lengthscale_grid must be given"),
        ({"grid": "off"}, "lengthscale_grid must be given"),
        ({"per_feature": True}, "one lengthscale sampled on a grid"),
        ({"grid": np.geomspace(1, 2, 2000)}, "2000 bases of 5 rows and 3 columns"),
    ],
)
def test_bad_settings_are_named(settings, message, monkeypatch):
    monkeypatch.setattr(bmsvm.models.kernel_parameters, "GRID_BYTES", 2**14)
    with pytest.raises(ValueError, match=message):
        on_grid(LowRank(rank=3), **settings)
