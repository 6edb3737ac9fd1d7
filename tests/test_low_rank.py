"""Gram matrices of low rank: features, the noise integrated out, and the sampler of the weights."""

import functools
import warnings
from dataclasses import replace
from types import SimpleNamespace

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import oracle
import pytest

from bmsvm import BMSVMClassifier, BMSVMGibbs, LowRank, load, prepare, run_chains, save
from bmsvm.features import build_features, landmarks_of, low_rank_factor, pivoted_cholesky
from bmsvm.inference import gibbs, laplace, select
from bmsvm.inference.blocks import Phase, collapsed
from bmsvm.inference.laplace import with_reference
from bmsvm.inference.quasirandom import noise_nodes
from bmsvm.kernels import STATIONARY, gaussian, gram, linear
from bmsvm.models import collapsed as model
from bmsvm.models.likelihoods import log_mean_likelihood
from bmsvm.models.reference import from_coordinates, log_volume, to_coordinates

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(200, 2))


@pytest.mark.parametrize("landmarks", ["kmeans", "greedy", "leverage"])
def test_features_of_all_rows_are_the_gram_matrix(landmarks):
    """With every row a landmark nothing is lost; with fewer, what is lost is positive and told."""
    kernel, rows = gaussian(1.0), ROWS[:40]
    K = gram(kernel, rows)
    whole = build_features(rows, "gaussian", LowRank(rank=40, landmarks=landmarks))
    np.testing.assert_allclose(whole(rows, kernel) @ whole(rows, kernel).T, K, atol=1e-5)
    some = build_features(rows, "gaussian", LowRank(rank=10, landmarks=landmarks))
    factor, left = low_rank_factor(some, rows, kernel)
    np.testing.assert_allclose(factor.basis.T @ factor.basis, np.eye(10), atol=1e-8)
    error = K - (factor.basis * factor.eigenvalues) @ factor.basis.T
    assert np.linalg.eigvalsh(error).min() > -1e-8
    np.testing.assert_allclose(np.diag(error), left, atol=1e-8)
    np.testing.assert_allclose(np.trace(error) / 40, some.error, atol=1e-8)
    # New rows: Nystrom's formula, written out.
    new = ROWS[40:50]
    across, inner = gram(kernel, new, some.points), gram(kernel, np.asarray(some.points))
    expected = across @ np.linalg.solve(inner, gram(kernel, np.asarray(some.points), rows))
    here, there = some(new, kernel), some(rows, kernel)
    np.testing.assert_allclose(here @ there.T, expected, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_labels_that_can_be_told_apart_have_a_reference(likelihood):
    """Functions grow large then, in float32, and the noise of rows far from landmarks with them."""
    rows = 3 * ROWS.astype(np.float32)
    problem = prepare(
        rows, rows[:, 0] > 0, likelihood=likelihood, lengthscale=2.0,
        features=LowRank(rank=5, dtype="float32"),
    )  # fmt: skip
    reference = with_reference(problem).reference
    assert all(np.all(np.isfinite(part)) for part in jax.tree.leaves(reference))
    with jax.enable_x64(True):
        large = jnp.asarray(1000 * RNG.normal(size=(1, 200)), jnp.float32)
        nodes = jnp.asarray(noise_nodes(16, 1))
        found = model.fisher_information(large, jnp.asarray([3.5, 0.0]), nodes, problem)
    assert np.all(np.isfinite(found))


def test_pivots_state_their_error_and_stop_at_it():
    kernel = gaussian(0.5)
    numbers, errors = pivoted_cholesky(kernel, ROWS, 200, tolerance=0.05)
    assert errors[-1] <= 0.05 < errors[-2]
    K = gram(kernel, ROWS)
    lost = K - K[:, numbers] @ np.linalg.solve(K[np.ix_(numbers, numbers)], K[numbers])
    np.testing.assert_allclose(np.trace(lost) / len(ROWS), errors[-1], rtol=1e-6)
    chosen = build_features(ROWS, "gaussian", LowRank(tolerance=0.05), 0.5)
    assert chosen.rotation.shape[1] == len(numbers)
    assert chosen.error < 0.06
    assert len(landmarks_of(linear(), ROWS, LowRank(landmarks="greedy"))) == 2  # its rank


@pytest.mark.parametrize("name", STATIONARY)
def test_waves_have_the_kernel_as_their_mean(name):
    """Products of Fourier features average to the kernel over frequencies; nothing remains.

    A mean over 2000 frequencies, each of variance at most 1/2: five standard errors are 0.08.
    """
    rows, products = ROWS[:30], []
    for seed in range(20):
        features = build_features(rows, name, LowRank("fourier", rank=200, seed=seed), [1.0, 2.0])
        phi = features(rows, None)
        products.append(phi @ phi.T)
    np.testing.assert_allclose(np.diag(products[0]), 1.0, atol=1e-6)
    expected = gram(STATIONARY[name]([1.0, 2.0]), rows)
    np.testing.assert_allclose(np.mean(products, axis=0), expected, atol=0.08)


def small_problem(likelihood="normalized", **settings):
    labels = (ROWS[:60, 0] > 0).astype(int) + (ROWS[:60, 1] > 0.5)
    how = LowRank(rank=6)
    weights = 0.5 + RNG.uniform(size=60)
    return prepare(
        ROWS[:60], labels, likelihood=likelihood, hyperparameters=oracle.LIVELY,
        row_weights=weights, features=how, **settings,
    )  # fmt: skip


@functools.cache
def referenced(likelihood):
    return with_reference(small_problem(likelihood))


@pytest.mark.parametrize("likelihood", ["normalized", "hinge"])
@pytest.mark.parametrize("weighted", [True, False])
def test_noise_integrated_out_is_the_mean_over_nodes(likelihood, weighted, monkeypatch):
    """Value and slopes equal those of the mean likelihood over all points, differentiated.

    Whether the rows are taken together, or 7 at a time, or those of three devices.
    """
    problem = referenced(likelihood)
    problem = problem if weighted else replace(problem, row_weights=None)
    nodes, scale = problem.reference.nodes, 0.3
    x = jax.random.normal(jax.random.key(0), (2, 7))
    x = x.at[:, -1].set(20.0)  # and a function that is far away, where exponentials are large
    logs = jnp.asarray([0.4, -0.3])

    def direct(x, logs):
        functions, scales = model.functions_of(x, problem, scale), model.log_scales(logs, problem)
        around = functions.T[:, None] + jnp.exp(scales)[:, None, None] * nodes
        scores = around @ jnp.asarray(model.class_map("sum_to_zero", 3))
        return jnp.sum(log_mean_likelihood(scores, problem.labels, likelihood, problem.row_weights))

    expected = jax.value_and_grad(direct, (0, 1))(x, logs)
    for rows, parts in ((2048, 1), (7, 1), (7, 3)):
        monkeypatch.setattr(model, "ROWS", rows)
        found = jax.value_and_grad(model.log_marginal_likelihood, (0, 1))(
            x, logs, scale, nodes, replace(problem, row_parts=parts)
        )
        for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)


def test_noise_integrated_out_is_finite_far_away():
    """In float32, at functions and a noise whose exponentials overflow."""
    problem = referenced("normalized")
    small = problem.factor._replace(basis=problem.factor.basis.astype(jnp.float32))
    problem = replace(problem, factor=small)
    for size in (1e2, 1e4, 1e8):
        for log_scale in (-20.0, 0.0, 10.0):
            found = jax.value_and_grad(model.log_marginal_likelihood, (0, 1))(
                jnp.full((2, 7), size).at[0].set(-size),
                jnp.asarray([log_scale, 0.0]),
                1.0,
                problem.reference.nodes,
                problem,
            )
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_reference_of_some_rows_is_put_right_for_all(monkeypatch):
    """From half of the rows it ends near that of all: mode, sigma, d and their spread."""
    X, y = data(2000)
    how = LowRank("fourier", rank=12)
    problem = prepare(X, y, likelihood="normalized", hyperparameters=oracle.LIVELY, features=how)
    whole = with_reference(problem).reference
    monkeypatch.setattr(laplace, "REFERENCE_ROWS", 1000)
    some = with_reference(problem).reference
    spread = np.asarray(whole.scales)
    assert np.all(np.abs(np.asarray(some.logs - whole.logs)) < 1.5 * spread)
    assert np.all(np.abs(np.log(np.asarray(some.scales) / spread)) < 0.3)
    # Modes in standard deviations of each direction, both at the same sigma and d.
    zero = jnp.zeros_like(whole.mode)
    x = from_coordinates(zero, whole.logs, some)
    x = x.at[:, -1].multiply(some.intercept_scale / whole.intercept_scale)
    apart = to_coordinates(x, whole.logs, whole)
    assert np.sqrt(np.mean(np.asarray(apart) ** 2)) < 0.3


def test_what_landmarks_leave_is_noise_of_the_rows():
    """Without labels, columns of rows far from all landmarks vary as the kernel says they do.

    Given weights the variance of a row is ``sigma2 (1 + h/tau)``, with h the diagonal of ``K - Phi
    Phi'`` by dense algebra. False alarm: 1e-4.
    """
    problem = small_problem(likelihood="normalized")
    problem = with_reference(replace(problem, row_weights=jnp.zeros(60)))
    K = gram(gaussian(1.0), ROWS[:60])
    points = np.asarray(problem.features.points)
    across = gram(gaussian(1.0), ROWS[:60], points)
    inner = gram(gaussian(1.0), points)
    left = np.diag(K - across @ np.linalg.solve(inner, across.T))
    noise, precision = 0.7, 0.4
    zeros = jnp.zeros((problem.factor.eigenvalues.size, 2))
    position = model.Position(None, jnp.zeros(2), zeros, jnp.asarray(noise), jnp.asarray(precision))
    keys = jax.random.split(jax.random.key(6), 4000)
    draws = jax.jit(jax.vmap(lambda key: model.draw_columns(key, position, problem)))(keys)
    squares = np.sum(np.asarray(draws) ** 2, axis=2) / (2 * noise * (1 + left / precision))
    z = (squares.mean(0) - 1) / (squares.std(0) / np.sqrt(len(keys)))
    assert left.max() > 0.1
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_nodes_have_the_moments_of_the_noise(dimension):
    nodes = noise_nodes(16, dimension)
    np.testing.assert_allclose(nodes.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(nodes.T @ nodes / 16, np.eye(dimension), atol=1e-12)


def test_coordinates_go_back_and_forth_and_their_volume_is_told():
    reference = referenced("normalized").reference
    xi = jax.random.normal(jax.random.key(1), reference.mode.shape)
    logs = reference.logs + 0.3
    x = from_coordinates(xi, logs, reference)
    np.testing.assert_allclose(to_coordinates(x, logs, reference), xi, atol=1e-8)
    jacobian = jax.jacobian(lambda xi: from_coordinates(xi, logs, reference).ravel())(xi)
    _, volume = np.linalg.slogdet(np.asarray(jacobian).reshape(x.size, x.size))
    np.testing.assert_allclose(log_volume(logs, reference), volume, rtol=1e-8)


def test_prior_of_the_coordinates_is_that_of_the_model():
    """Differences of log densities equal those of eqs. (15)-(17) written as distributions."""
    problem = referenced("normalized")
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
def test_collapsed_sweeps_leave_exact_draws_where_they_are(case):
    """Moments of exact posterior draws do not drift. False alarm: 1e-4; 256 points of noise."""
    problem, start = oracle.exact_draws(case, 8000)
    problem = with_reference(problem, num_nodes=256)
    block, phase = collapsed(max_steps=3), Phase(jnp.array(1), jnp.array(1))

    def run(key, position):
        position = position._replace(columns=None)
        memory = block.init(position, problem)

        def sweep(carry, key):
            *carry, info = block.step(key, *carry, problem, phase)
            return tuple(carry), info["accept_prob"]

        key, draw = jax.random.split(key)
        (position, _), accept = jax.lax.scan(sweep, (position, memory), jax.random.split(key, 3))
        return position._replace(columns=model.draw_columns(draw, position, problem)), accept

    keys = jax.random.split(jax.random.key(5), len(start.precision))
    end, accept = oracle.quick_jit(jax.vmap(run))(keys, start)
    assert np.mean(accept) > 0.2
    z = oracle.drift(problem, start, end)
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


def data(n):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    heights = np.stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 1]), X[:, 0] * X[:, 1]], axis=1)
    return X, np.argmax(2 * heights + rng.gumbel(size=(n, 3)), axis=1)


@functools.cache
def posterior(preset, dtype="float64", num_nodes=256):
    """Posterior means and their standard errors of logs and functions under one preset."""
    X, y = data(75)
    how = LowRank("fourier", rank=12, dtype=dtype)
    problem = prepare(X, y, likelihood="normalized", hyperparameters=oracle.LIVELY, features=how)
    if preset == "large":  # so many points that their error is far below Monte Carlo's
        problem = with_reference(problem, num_nodes=num_nodes)
    sampler = BMSVMGibbs(likelihood="normalized", preset=preset)
    sites = ("noise_variance", "precision", "weights")
    run = run_chains(
        sampler, jax.random.key(7), problem, num_warmup=300, num_samples=600, num_chains=8,
        collect=sites, progress_bar=False,
    )  # fmt: skip
    design = np.asarray(problem.factor.basis[:5]) * np.sqrt(np.asarray(problem.factor.eigenvalues))
    functions = np.einsum("nr,cdrk->cdnk", design, run.samples["weights"])
    watched = {name: np.log(run.samples[name]) for name in sites[:2]} | {"f": functions}
    container = arviz.from_dict({name: np.asarray(value) for name, value in watched.items()})
    error = arviz.mcse(container)
    parts = [
        (container.posterior[name].mean(("chain", "draw")).values.ravel(), error[name].values)
        for name in watched
    ]
    return tuple(
        np.concatenate([np.ravel(part) for part in each]) for each in zip(*parts, strict=True)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [(("large",), ("default",)), (("large", "float32", 16), ("large", "float64", 16))],
)
def test_large_samples_the_posterior_of_the_default(one, other):
    """Means agree within Monte Carlo error, in float32 as in float64. False alarm: 1e-4."""
    (mean, error), (other_mean, other_error) = posterior(*one), posterior(*other)
    z = np.abs(mean - other_mean) / np.hypot(error, other_error)
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


@pytest.mark.parametrize("largest", [laplace.LARGEST, 0], ids=["own rotation", "shared"])
def test_the_reference_is_where_the_posterior_is(largest, monkeypatch):
    """Chains find log sigma and log d where it was made, and its coordinates near white noise."""
    monkeypatch.setattr(laplace, "LARGEST", largest)
    X, y = data(1000)
    problem = with_reference(
        prepare(X, y, likelihood="normalized", features=LowRank("fourier", rank=12))
    )
    reference = problem.reference
    assert reference.rotation.shape == ((26, 26) if largest else (13, 13))
    sampler = BMSVMGibbs(likelihood="normalized", preset="large")
    sites = ("noise_variance", "precision", "weights", "accept_prob", "step_size")
    run = run_chains(
        sampler, jax.random.key(0), problem, num_warmup=100, num_samples=200, collect=sites,
        progress_bar=False,
    )  # fmt: skip
    log_scale = 0.5 * np.log(run.samples["noise_variance"])
    logs = np.stack([log_scale, np.log(run.samples["precision"]) - 2 * log_scale], axis=-1)
    off = (logs.mean((0, 1)) - np.asarray(reference.logs)) / logs.std((0, 1))
    assert np.abs(off).max() < 1
    assert run.samples["step_size"].mean() > 0.3


def test_the_lengthscale_is_found_on_some_of_the_rows(monkeypatch):
    X, y = data(400)
    weights, given = X[:, 0] + 10, []

    def search(method, X, y, *, row_weights, **settings):
        given.append((X, y, row_weights))
        return SimpleNamespace(lengthscale=1.25)

    monkeypatch.setattr(select, "select_lengthscale", search)
    monkeypatch.setattr(gibbs, "SELECTION_ROWS", 60)
    sampler = BMSVMGibbs(
        likelihood="normalized", lengthscale="marginal-likelihood", features=LowRank(rank=5)
    )
    sampler.prepare(X, y, row_weights=weights)
    ((rows, labels, own),) = given
    assert rows.shape == (60, 2)
    np.testing.assert_array_equal(own, rows[:, 0] + 10)
    assert {tuple(row) for row in rows} <= {tuple(row) for row in X}
    np.testing.assert_allclose(np.bincount(labels) / 60, np.bincount(y) / 400, atol=0.02)
    assert sampler.lengthscale_selection.lengthscale == 1.25


@functools.cache
def fitted():
    X, y = data(400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BMSVMClassifier(
            lengthscale=1.0, features="nystrom", rank=20, num_chains=2, num_warmup=50,
            num_samples=40, random_state=0,
        ).fit(X, y)  # fmt: skip


def test_classifier_predicts_from_landmarks():
    X, y = data(400)
    fit = fitted()
    assert fit.features_ == "nystrom"
    assert fit.problem_.factor.basis.shape[1] == 20
    assert "scores" not in fit.run_.samples
    chances = fit.predict_proba(X)
    np.testing.assert_allclose(chances.sum(1), 1.0)
    assert fit.score(X, y) > 0.5
    other = replace(fit._posterior())  # what it predicts from has no training row
    assert other.stages[0].points.shape == (20, 2)
    far = fit.predict_uncertainty(np.array([[100.0, 100.0], [0.0, 0.0]]))
    assert far.epistemic[0] > 2 * far.epistemic[1]


def test_saved_and_continued(tmp_path):
    fit = fitted()
    save(fit, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    X, _ = data(20)
    np.testing.assert_array_equal(again.predict_proba(X), fit.predict_proba(X))
    assert again.fit_more(5).run_.num_samples == 45


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": "some"}, "features must be one of"),
        ({"features": "nystrom", "rank": 0}, "rank must be"),
        ({"features": "exact", "rank": 5}, "rank is for"),
        ({"features": "fourier", "kernel": "linear"}, "stationary kernel by name"),
        ({"features": "nystrom", "kernel": "precomputed"}, "precomputed"),
        ({"features": "nystrom", "coupling": "independent"}, "sum_to_zero"),
        ({"features": "nystrom", "lengthscale": "sample"}, "lengthscale_grid must be given"),
        ({"preset": "large", "likelihood": "probit"}, "probit"),
        ({"features": LowRank(landmarks="some")}, "landmarks must be one of"),
        ({"features": LowRank(tolerance=-1.0)}, "tolerance must be"),
    ],
)
def test_bad_settings_are_named(settings, message):
    X, y = data(30)
    X = X @ X.T if settings.get("kernel") == "precomputed" else X
    with pytest.raises(ValueError, match=message):
        BMSVMClassifier(**{"lengthscale": 1.0, **settings}).fit(X, y)
