"""The sampler of the weights: its reference is near the posterior, its draws are the default's."""

import functools
from dataclasses import dataclass

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import PAPER, BMSVMGibbs, CollapsedHMC, Fourier, Nystrom, prepare, run_chains
from bmsvm.inference import laplace
from bmsvm.inference.collapsed import collapsed_hmc
from bmsvm.inference.laplace import laplace_setup
from bmsvm.inference.reference import from_coordinates, log_volume, logs_at


def data(n):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    heights = np.stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 1]), X[:, 0] * X[:, 1]], axis=1)
    return X, np.argmax(2 * heights + rng.gumbel(size=(n, 3)), axis=1)


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_labels_that_can_be_told_apart_have_a_reference(likelihood):
    """Functions grow large then, in float32, and the noise of rows far from landmarks with them."""
    rows = 3 * np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    problem = prepare(
        rows, rows[:, 0] > 0, likelihood=likelihood, lengthscale=2.0,
        approximation=Nystrom(rank=5, dtype="float32"),
    )  # fmt: skip
    reference = laplace_setup(problem).reference
    assert all(np.all(np.isfinite(part)) for part in jax.tree.leaves(reference))


def test_the_reference_of_some_rows_is_corrected_for_all(monkeypatch):
    """From half of the rows it ends near that of all: mode, sigma, d and their spread.

    Its coordinates go back and forth, and their volume is that of the map.
    """
    X, y = data(2000)
    how = Fourier(rank=12)
    problem = prepare(X, y, lengthscale=1.0, hyperparameters=oracle.LIVELY, approximation=how)
    whole = laplace_setup(problem).reference
    monkeypatch.setattr(laplace, "REFERENCE_ROWS", 1000)
    some = laplace_setup(problem).reference
    deviations = np.linalg.norm(whole.spread, axis=1)
    assert np.all(np.abs(np.asarray(some.logs - whole.logs)) < 1.5 * deviations)
    assert np.all(np.abs(np.log(np.linalg.norm(some.spread, axis=1) / deviations)) < 0.3)
    # Modes in standard deviations of each direction, both at the same sigma and d.
    zero = jnp.zeros_like(whole.mode)
    x = from_coordinates(zero, whole.logs, some)
    x = x.at[:, -1].multiply(some.intercept_scale / whole.intercept_scale)
    apart = oracle.to_coordinates(x, whole.logs, whole)
    assert np.sqrt(np.mean(np.asarray(apart) ** 2)) < 0.3
    check_coordinates(whole)


def check_coordinates(reference):
    xi = jax.random.normal(jax.random.key(1), reference.mode.shape)
    logs = logs_at(jnp.full(2, 0.3), reference)
    x = from_coordinates(xi, logs, reference)
    np.testing.assert_allclose(oracle.to_coordinates(x, logs, reference), xi, atol=1e-8)
    jacobian = jax.jacobian(lambda xi: from_coordinates(xi, logs, reference).ravel())(xi)
    _, volume = np.linalg.slogdet(np.asarray(jacobian).reshape(x.size, x.size))
    np.testing.assert_allclose(log_volume(logs, reference), volume, rtol=1e-8)


@pytest.mark.parametrize("largest", [laplace.LARGEST, 0], ids=["own rotation", "shared"])
def test_the_reference_is_where_the_posterior_is(largest, monkeypatch):
    """Chains find log sigma and log d where it was made, and its coordinates near white noise."""
    monkeypatch.setattr(laplace, "LARGEST", largest)
    X, y = data(1000)
    run = run_chains(
        BMSVMGibbs(lengthscale=1.0, hyperparameters=PAPER, approximation=Fourier(rank=12)),
        jax.random.key(0), X, y, num_warmup=100, num_samples=200, thinning=1,
        collect=("noise_variance", "precision", "step_size"),
    )  # fmt: skip
    reference = run.state.setup.reference
    assert reference.rotation.shape == ((26, 26) if largest else (13, 13))
    log_scale = 0.5 * np.log(run.samples["noise_variance"])
    logs = np.stack([log_scale, np.log(run.samples["precision"]) - 2 * log_scale], axis=-1)
    off = (logs.mean((0, 1)) - np.asarray(reference.logs)) / logs.std((0, 1))
    assert np.abs(off).max() < 1
    assert run.samples["step_size"].mean() > 0.3


@dataclass(frozen=True)
class WithNodes(CollapsedHMC):
    """The sampler with another number of points of the noise."""

    thinning: int = 1
    num_nodes: int = 16

    def algorithm(self, problem):
        return _algorithm(self.num_nodes)


@functools.cache
def _algorithm(num_nodes):
    usual = collapsed_hmc()
    return usual._replace(setup=functools.partial(laplace_setup, num_nodes=num_nodes))


@functools.cache
def posterior(sampler, dtype="float64"):
    """Posterior means and their standard errors of logs and functions under one sampler."""
    X, y = data(75)
    problem = prepare(
        X, y, lengthscale=1.0, hyperparameters=oracle.LIVELY,
        approximation=Fourier(rank=12, dtype=dtype),
    )  # fmt: skip
    sites = ("noise_variance", "precision", "weights")
    run = run_chains(
        BMSVMGibbs(sampler=sampler), jax.random.key(7), problem, num_warmup=300, num_samples=600,
        num_chains=8, collect=sites,
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
    [
        # So many points that their error is far below Monte Carlo's.
        pytest.param((WithNodes(num_nodes=256),), ("hmc",), id="as the default"),
        pytest.param(
            (WithNodes(), "float32"),
            (WithNodes(), "float64"),
            id="float32 as float64",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_posterior_is_that_of_the_default(one, other, monkeypatch):
    """Means agree within Monte Carlo error, in float32 as in float64. False alarm: 1e-4."""
    if WithNodes(num_nodes=256) in one:
        oracle.optimize_chains(monkeypatch)
    (mean, error), (other_mean, other_error) = posterior(*one), posterior(*other)
    z = np.abs(mean - other_mean) / np.hypot(error, other_error)
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


def test_a_bad_number_of_nodes_is_named():
    X, y = data(30)
    problem = prepare(X, y, lengthscale=1.0, approximation=Fourier(rank=4))
    for count in (2, 17):
        with pytest.raises(ValueError, match=f"num_nodes must be even and at least 4.*got {count}"):
            laplace_setup(problem, num_nodes=count)
