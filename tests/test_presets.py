"""Presets, ways to draw the scores, and the slice sampler they lean on."""

import functools

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.stats
from numpyro.infer import MCMC

from bmsvm.inference import PRESETS, BMSVMGibbs
from bmsvm.inference.blocks import collapsed_parameters, exact_scores, metropolis_scores
from bmsvm.inference.slice import slice_step

N_CHAINS = 32
MOVES = {
    "exact": {"blocks": (exact_scores(), collapsed_parameters())},
    "metropolis": {"blocks": (metropolis_scores(2.0), collapsed_parameters())},
    **{preset: {"preset": preset} for preset in PRESETS},
}


@functools.cache
def rows(n_classes, n):
    rng = np.random.default_rng(n_classes)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 2)) + 2.0 * rng.normal(size=(n_classes, 2))[y], y


def run(n_classes=3, n=12, num_warmup=500, num_samples=500, num_chains=N_CHAINS, **settings):
    sampler = BMSVMGibbs(lengthscale=2.0, hyperparameters=oracle.LIVELY, **settings)
    mcmc = MCMC(
        sampler,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(30), *rows(n_classes, n), extra_fields=("accept_prob",))
    return mcmc


@functools.cache
def posterior(move):
    """Posterior means with their standard errors, shape (m,); the file's main comparison."""
    draws = run(**MOVES[move]).get_samples(group_by_chain=True)
    logs = {name: np.log(draws[name]) for name in ("noise_variance", "precision")}
    sites = {**logs, "intercept": draws["intercept"], "scores": draws["scores"][:, :, :3]}
    data = arviz.from_dict({name: np.asarray(value) for name, value in sites.items()})
    error = arviz.mcse(data)
    flat = [
        (data.posterior[name].mean(("chain", "draw")).values.ravel(), error[name].values.ravel())
        for name in sites
    ]
    return tuple(np.concatenate(part) for part in zip(*flat, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [("exact", "metropolis"), ("paper", "gibbs"), ("paper", "default"), ("gibbs", "default")],
)
def test_two_samplers_have_one_posterior(one, other):
    """Means of log sigma2, log tau, intercept and scores agree within Monte Carlo error.

    False alarm: 1e-4 over all pairs.
    """
    (mean, error), (other_mean, other_error) = posterior(one), posterior(other)
    z = (mean - other_mean) / np.hypot(error, other_error)
    assert oracle.largest(z) < oracle.threshold(1e-4, 4 * z.size)


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_metropolis_accepts_sometimes(likelihood):
    """The paper's random walk neither stands still nor accepts everything."""
    mcmc = run(preset="paper", likelihood=likelihood, num_warmup=50, num_samples=50, num_chains=2)
    accept = np.asarray(mcmc.get_extra_fields()["accept_prob"])
    assert ((accept > 0) & (accept < 1)).all()
    assert 0.1 < accept.mean() < 0.95


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_exact_scores_stay_finite_and_sum_to_zero(n_classes, coupling):
    """Whatever the number of classes, a run gives finite draws whose scores sum to zero."""
    mcmc = run(n_classes, 15, 50, 50, 2, preset="gibbs", coupling=coupling)
    draws = mcmc.get_samples()
    assert all(np.isfinite(value).all() for value in draws.values())
    np.testing.assert_allclose(draws["scores"].sum(-1), 0, atol=1e-9)
    np.testing.assert_array_equal(mcmc.get_extra_fields()["accept_prob"], 1.0)


def bimodal_cdf(x):
    return 0.3 * scipy.stats.norm.cdf(x, -2.0, 0.5) + 0.7 * scipy.stats.norm.cdf(x, 2.0, 1.0)


def bimodal(x):
    left = jnp.log(0.3 / 0.5) - 0.5 * ((x + 2.0) / 0.5) ** 2
    return jnp.logaddexp(left, jnp.log(0.7) - 0.5 * (x - 2.0) ** 2)


SLICES = {
    "normal": (
        lambda x: -0.5 * ((x - 1) / 0.3) ** 2,
        lambda rng, n: rng.normal(1, 0.3, n),
        lambda x: scipy.stats.norm.cdf(x, 1, 0.3),
    ),
    "log gamma": (
        lambda x: 1.5 * x - jnp.exp(x),
        lambda rng, n: np.log(rng.gamma(1.5, size=n)),
        lambda x: scipy.stats.gamma.cdf(np.exp(x), 1.5),
    ),
    "bimodal": (
        bimodal,
        lambda rng, n: np.where(
            rng.uniform(size=n) < 0.3, rng.normal(-2, 0.5, n), rng.normal(2, 1, n)
        ),
        bimodal_cdf,
    ),
    "half normal, not a number below zero": (
        lambda x: jnp.where(x < 0, jnp.nan, -0.5 * x**2),
        lambda rng, n: np.abs(rng.normal(size=n)),
        scipy.stats.halfnorm.cdf,
    ),
}


@pytest.mark.parametrize("width", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", SLICES)
def test_slice_step_leaves_the_density_invariant(name, width):
    """Exact draws moved by three steps are draws of the same density (Kolmogorov-Smirnov).

    The narrow interval exhausts its budget of steps out, the wide one only shrinks. False alarm:
    1e-4 over all densities and widths.
    """
    log_density, sample, cdf = SLICES[name]
    before = sample(np.random.default_rng(31), 20_000)

    def move(key, x):
        return jax.lax.fori_loop(
            0,
            3,
            lambda i, x: slice_step(jax.random.fold_in(key, i), x, log_density, width),
            x,
        )

    keys = jax.random.split(jax.random.key(32), before.size)
    after = np.asarray(oracle.quick_jit(jax.vmap(move))(keys, before))
    assert np.isfinite(after).all()
    assert np.mean(after != before) > 0.99
    assert scipy.stats.kstest(after, cdf).pvalue > 1e-4 / (3 * len(SLICES))


def test_slice_step_crosses_between_modes():
    """From one mode of a bimodal density the sampler reaches the other."""

    def chain(key):
        def step(x, key):
            x = slice_step(key, x, bimodal)
            return x, x

        return jax.lax.scan(step, jnp.array(-2.0), jax.random.split(key, 500))[1]

    draws = np.asarray(oracle.quick_jit(jax.vmap(chain))(jax.random.split(jax.random.key(33), 20)))
    assert (draws.max(1) > 1).all()
