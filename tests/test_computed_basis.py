"""A basis that is computed whenever it is needed does what the one that is kept does."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import BMSVMClassifier, BMSVMGibbs, LowRank, load, prepare, run_chains, save
from bmsvm.inference.laplace import with_reference
from bmsvm.inference.quasirandom import noise_nodes
from bmsvm.inference.sharding import make_mesh, place
from bmsvm.kernels import linear
from bmsvm.models import computed_basis as module
from bmsvm.models.collapsed import log_marginal_likelihood
from bmsvm.models.computed_basis import ComputedBasis

RNG = np.random.default_rng(2)
X = RNG.normal(size=(90, 3))
Y = (X[:, 0] + RNG.normal(size=90) > 0).astype(int) + (X[:, 1] + RNG.normal(size=90) > 0.5)
THETA = [1.0, 2.0, 1.5]


@pytest.fixture(autouse=True)
def several_parts(monkeypatch):
    monkeypatch.setattr(module, "PART", 32)


@functools.cache
def problems(kind="nystrom", kernel="gaussian", dtype="float64"):
    how = LowRank(kind, rank=10, dtype=dtype)
    return tuple(
        prepare(
            X, Y, kernel=kernel, lengthscale=THETA, likelihood="normalized", spare_rows=6,
            hyperparameters=oracle.LIVELY, features=replace(how, recompute=recompute),
        )
        for recompute in (False, True)
    )  # fmt: skip


@pytest.mark.parametrize(
    "case", [("nystrom", "gaussian"), ("nystrom", "matern32"), ("fourier", "matern52")]
)
def test_products_are_those_of_the_basis(case):
    kept, computed = (problem.factor for problem in problems(*case))
    assert isinstance(computed.basis, ComputedBasis)
    assert computed.basis.shape == kept.basis.shape
    np.testing.assert_allclose(computed.eigenvalues, kept.eigenvalues, rtol=1e-12)
    np.testing.assert_allclose(computed.basis[np.arange(96)], kept.basis, atol=1e-9)
    weights = RNG.normal(size=(4, 2, kept.basis.shape[1]))  # of several chains
    ours, theirs = (
        jax.jit(jax.vmap(lambda w, basis=factor.basis: w @ basis.T))(weights)
        for factor in (computed, kept)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_the_likelihood_and_its_slopes_are_those_of_the_basis():
    kept, computed = problems("nystrom", "matern32")
    points = RNG.normal(size=(3, 2, 11)), RNG.normal(size=(3, 2))
    nodes = jnp.asarray(noise_nodes(16, 2))

    def value(x, logs, problem):
        return log_marginal_likelihood(x, logs, 0.7, nodes, problem)

    ours, theirs = (
        jax.jit(jax.vmap(jax.value_and_grad(value, argnums=(0, 1)), in_axes=(0, 0, None)))(
            *points, problem
        )
        for problem in (computed, kept)
    )
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-7), ours, theirs)


def test_chains_are_those_of_the_basis_that_is_kept():
    """Draws agree up to rounding under one reference; references agree up to signs of vectors."""
    sampler = BMSVMGibbs(likelihood="normalized", preset="large")
    sites = ("weights", "precision", "noise_variance")
    kept, computed = map(with_reference, problems())
    for name in ("logs", "curvature", "scales"):
        ours, theirs = (getattr(each.reference, name) for each in (computed, kept))
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    computed = replace(computed, reference=kept.reference)
    kept, computed = (
        run_chains(
            sampler, jax.random.key(0), problem, num_warmup=5, num_samples=5, num_chains=2,
            collect=sites, progress_bar=False,
        )
        for problem in (kept, computed)
    )  # fmt: skip
    for name in sites:
        np.testing.assert_allclose(computed.samples[name], kept.samples[name], rtol=1e-4, atol=1e-5)


def test_the_classifier_computes_saves_and_goes_on(tmp_path):
    settings = {
        "lengthscale": 1.5, "rank": 10, "num_chains": 2, "num_warmup": 20, "num_samples": 10,
        "random_state": 0,
    }  # fmt: skip
    model = BMSVMClassifier(features=LowRank(recompute=True), **settings).fit(X, Y)
    basis = model.problem_.factor.basis
    assert isinstance(basis, ComputedBasis)
    assert basis.dtype == np.float32
    save(model, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    np.testing.assert_array_equal(again.predict_proba(X[:9]), model.predict_proba(X[:9]))
    assert again.fit_more(3).run_.num_samples == 13


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "linear"}, "recompute needs a stationary kernel by name"),
        ({"kernel": linear()}, "recompute needs a stationary kernel by name"),
        ({"lengthscale": "sample", "lengthscale_grid": [1.0, 2.0]}, "needs a fixed lengthscale"),
        ({"preset": "gibbs"}, 'recompute needs preset="large"'),
        ({"features": LowRank(recompute=3)}, "recompute must be True or False; got 3"),
    ],
)
def test_bad_settings_are_named(settings, message):
    usual = {"features": LowRank(rank=3, recompute=True), "lengthscale": 1.0}
    with pytest.raises(ValueError, match=message):
        BMSVMClassifier(**{**usual, **settings}).fit(X, Y)


def test_without_float64_and_on_a_mesh_it_is_refused():
    with jax.enable_x64(False), pytest.raises(ValueError, match="recompute needs float64"):
        prepare(X, Y, features=LowRank(rank=3, recompute=True))
    with pytest.raises(ValueError, match="only where the basis is kept"):
        place(problems()[1], make_mesh(rows=1))
