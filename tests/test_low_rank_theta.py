"""Theta sampled on a grid whose Gram matrices are of low rank."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import oracle
import pytest
from few_draws import few_draws

from bmsvm import BMSVMClassifier, CollapsedHMC, Fourier, Nystrom, Sampled, load, prepare, save
from bmsvm.inference.collapsed import parameters_of
from bmsvm.inference.laplace import laplace_setup
from bmsvm.inference.reference import Coordinates
from bmsvm.inference.transport import log_density_held
from bmsvm.kernels import Gaussian, gram
from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import latent, noise_prior, precision_prior
from bmsvm.models.likelihoods import log_mean_likelihood

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(5, 2)), np.array([0, 1, 2, 1, 0])
GRID = np.geomspace(0.4, 6.0, 4)
FINE = np.geomspace(0.7, 1.4, 4)


def on_grid(how, rows=X, labels=Y, **settings):
    return prepare(
        rows, labels, lengthscale=Sampled(**{"grid": GRID, **settings}),
        hyperparameters=oracle.LIVELY, approximation=how,
    )  # fmt: skip


@pytest.mark.parametrize("how", [Nystrom(rank=8), Fourier(rank=8)], ids=str)
def test_a_value_of_the_grid_is_the_problem_prepared_at_it(how):
    rows, labels = RNG.normal(size=(30, 2)), np.arange(30) % 3
    problem = on_grid(how, rows=rows, labels=labels)
    for number, theta in enumerate(GRID):
        here = problem.at(number)
        alone = prepare(rows, labels, lengthscale=theta, approximation=how)
        ours, theirs = (
            (each.factor.basis * each.factor.eigenvalues) @ each.factor.basis.T
            for each in (here, alone)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        if isinstance(how, Nystrom):
            function, points = Gaussian().at(theta), np.asarray(here.basis_map.points)
            inner = gram(function, points) + 1e-12 * np.eye(8)
            inside = gram(function, rows, points) @ np.linalg.solve(
                inner, gram(function, points, rows)
            )
            np.testing.assert_allclose(here.remainder, 1 - np.diag(inside), atol=1e-6)


def test_what_is_held_has_the_density_of_the_model_at_every_theta():
    """Differences between thetas are those of the density of (v, b, sigma2, tau), by Jacobians."""
    problem = on_grid(Nystrom(rank=3))
    setup = laplace_setup(problem)
    shape = setup.at(0).reference.mode.shape
    held = Coordinates(jnp.asarray(RNG.normal(size=shape)), jnp.asarray(RNG.normal(size=2)))
    flat = jnp.concatenate([held.xi.ravel(), held.u])

    def parameters(flat, number):
        at = Coordinates(flat[:-2].reshape(shape), flat[-2:])
        return parameters_of(at, setup.at(number))

    def flat_parameters(flat, number):
        return jnp.concatenate([part.ravel() for part in parameters(flat, number)])

    def density(number):
        """Log density of the parameters, and the volume of the map to them."""
        here, nodes = problem.at(number), setup.at(number).reference.nodes
        found = parameters(flat, number)
        functions = latent(found.intercept, found.weights, here)
        left = found.noise_variance * (1 + here.remainder / found.precision)
        around = functions[:, None] + jnp.sqrt(left)[:, None, None] * nodes
        scores = class_vector(around, "sum_to_zero")
        sigma, eta = jnp.sqrt(found.noise_variance), here.hyper.intercept_precision
        jacobian = jax.jacobian(flat_parameters)(flat, number)
        return (
            jnp.sum(log_mean_likelihood(scores, here.labels, "normalized"))
            + dist.Normal(0, sigma / jnp.sqrt(found.precision)).log_prob(found.weights).sum()
            + dist.Normal(0, sigma / jnp.sqrt(eta)).log_prob(found.intercept).sum()
            + noise_prior(here).log_prob(found.noise_variance)
            + precision_prior(here).log_prob(found.precision)
            + jnp.linalg.slogdet(jacobian)[1]
        )

    @oracle.quick_jit
    @jax.vmap
    def both(number):
        return log_density_held(held, number, setup, problem), density(number)

    ours, theirs = both(jnp.arange(GRID.size))
    assert np.ptp(theirs) > 0.1
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), atol=1e-8)


@functools.cache
def fitted():
    """Of noisy labels: without noise the posterior is far from normal, and theta stays."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2))
    noisy = rows + rng.normal(size=rows.shape)
    labels = (np.sin(2 * noisy[:, 0]) > 0).astype(int) + (noisy[:, 1] > 0.5)
    with few_draws():
        return BMSVMClassifier(
            lengthscale=Sampled(grid=FINE), approximation=Nystrom(rank=12), num_chains=2,
            sampler=CollapsedHMC(thinning=1), num_warmup=30, num_samples=30, random_state=0,
        ).fit(rows, labels)  # fmt: skip


def test_the_classifier_samples_theta_with_low_rank():
    fit = fitted()
    drawn = fit.run_.samples["lengthscale"]
    assert np.isin(drawn.ravel().round(6), FINE.round(6)).all()
    assert len(np.unique(drawn)) > 1
    assert FINE[0] <= fit.lengthscale_ <= FINE[-1]
    assert "scores" not in fit.run_.samples
    np.testing.assert_allclose(fit.predict_proba(RNG.normal(size=(20, 2))).sum(1), 1.0)


def test_every_draw_predicts_with_the_basis_of_its_theta():
    fit, new = fitted(), RNG.normal(size=(7, 2))
    posterior = fit.posterior_
    rows = fit.standardized_rows(new)
    thetas = posterior.flat("lengthscale")
    weights, intercept = posterior.flat("weights"), posterior.flat("intercept")
    expected = []
    for draw, theta in enumerate(thetas):
        number = int(np.abs(FINE - theta).argmin())
        basis_map = posterior.problem.at(number).basis_map
        columns = basis_map(rows, Gaussian().at(theta)) @ weights[draw]
        expected.append(class_vector(columns, "sum_to_zero") + intercept[draw])
    parts = posterior.evaluate(rows, probabilities=False, remainder=False)
    found = np.concatenate([part.functions for part in parts])
    np.testing.assert_allclose(found, np.moveaxis(expected, 0, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.few_draws
def test_saved_and_continued(tmp_path):
    fit, new = fitted(), RNG.normal(size=(20, 2))
    save(fit, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    np.testing.assert_array_equal(again.predict_proba(new), fit.predict_proba(new))
    assert again.fit_more(5).run_.num_samples == 35


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": None}, "sampled on a given grid"),
        ({"grid": "off"}, "sampled on a given grid"),
        ({"grid": "off", "per_feature": True}, "sampled on a given grid"),
        ({"grid": np.geomspace(1, 2, 100)}, "100 bases of 5 rows and 3 columns"),
    ],
)
def test_bad_settings_are_named(settings, message, monkeypatch):
    monkeypatch.setattr(sys.modules[prepare.__module__], "GRID_BYTES", 2**12)
    with pytest.raises(ValueError, match=message):
        on_grid(Nystrom(rank=3), **settings)
