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
from bmsvm.models import prepare, scores_of

N_CHAINS = 32
MOVES = {
    "metropolis": {"blocks": (metropolis_scores(2.0), collapsed_parameters())},
    **{preset: {"preset": preset} for preset in PRESETS},
}


@functools.cache
def rows(n_classes, n):
    rng = np.random.default_rng(n_classes)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 2)) + 2.0 * rng.normal(size=(n_classes, 2))[y], y


def run(**settings):
    sampler = BMSVMGibbs(lengthscale=2.0, hyperparameters=oracle.LIVELY, **settings)
    mcmc = MCMC(
        sampler,
        num_warmup=500,
        num_samples=500,
        num_chains=N_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(30), *rows(3, 12))
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
    [
        ("paper", "gibbs"),
        ("paper", "default"),
        ("gibbs", "default"),
        pytest.param("gibbs", "metropolis", marks=pytest.mark.long),
    ],
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
    problem = prepare(*rows(3, 12), likelihood=likelihood)
    start = oracle.prior_draws(np.random.default_rng(34), 50, problem)
    _, info = oracle.after_sweeps((metropolis_scores(),), problem, start, sweeps=20, seed=35)
    accept = np.asarray(info["accept_prob"])
    assert ((accept > 0) & (accept < 1)).all()


@pytest.mark.parametrize(
    ("n_classes", "coupling"),
    [(2, "independent"), (3, "sum_to_zero"), (4, "independent"), (5, "sum_to_zero")],
)
def test_exact_scores_stay_finite_and_sum_to_zero(n_classes, coupling):
    """Whatever the number of classes, draws are finite and no row's scores leave zero sum."""
    problem = prepare(*rows(n_classes, 15), coupling=coupling)
    start = oracle.prior_draws(np.random.default_rng(36), 50, problem)
    end, info = oracle.after_sweeps((exact_scores(),), problem, start, sweeps=50, seed=37)
    scores = np.asarray(jax.vmap(lambda columns: scores_of(columns, problem))(end.columns))
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores.sum(-1), 0, atol=1e-9)
    np.testing.assert_array_equal(info["accept_prob"], 1.0)


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_tuning_stands_still_after_warm_up(likelihood):
    """What blocks learned in warm-up is the same ever after, and was learned."""
    sampler = BMSVMGibbs(likelihood=likelihood, lengthscale="sample", lengthscale_grid=[1.0, 2.0])
    state = sampler.init(jax.random.key(0), 3, None, rows(3, 12), {})
    sweep = oracle.quick_jit(lambda state: sampler.sample(state, (), {}))
    memories = []
    for _ in range(6):
        state = sweep(state)
        memories.append([np.asarray(leaf) for leaf in jax.tree.leaves(state.memory)])
    of_warm_up, later = memories[:3], memories[2:]
    tuned = [number for number, leaf in enumerate(memories[0]) if np.size(leaf) > 1]
    assert any((of_warm_up[0][number] != of_warm_up[-1][number]).any() for number in tuned)
    for number in tuned:
        for memory in later:
            np.testing.assert_array_equal(memory[number], later[0][number])


def bimodal_cdf(x):
    return 0.3 * scipy.stats.norm.cdf(x, -2.0, 0.5) + 0.7 * scipy.stats.norm.cdf(x, 2.0, 1.0)


def bimodal(x):
    left = jnp.log(0.3 / 0.5) - 0.5 * ((x + 2.0) / 0.5) ** 2
    return jnp.logaddexp(left, jnp.log(0.7) - 0.5 * (x - 2.0) ** 2)


WIDTHS = (0.1, 1.0, 30.0)
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


@pytest.mark.parametrize("name", SLICES)
def test_slice_step_leaves_the_density_invariant(name):
    """Exact draws moved by three steps are draws of the same density (Kolmogorov-Smirnov).

    The narrow interval exhausts its budget of steps out, the wide one only shrinks. False alarm:
    1e-4 over all densities and widths.
    """
    log_density, sample, cdf = SLICES[name]
    before = sample(np.random.default_rng(31), 20_000)

    def move(key, x, width):
        def step(x, key):
            return slice_step(key, x, log_density, width), None

        return jax.lax.scan(step, x, jax.random.split(key, 3))[0]

    moves = oracle.quick_jit(jax.vmap(move, (0, 0, None)))
    keys = jax.random.split(jax.random.key(32), before.size)
    for width in WIDTHS:
        after = np.asarray(moves(keys, before, width))
        assert np.isfinite(after).all()
        assert np.mean(after != before) > 0.99
        assert scipy.stats.kstest(after, cdf).pvalue > 1e-4 / (len(WIDTHS) * len(SLICES))


def test_slice_step_crosses_between_modes():
    """From one mode of a bimodal density the sampler reaches the other."""

    def chain(key):
        def step(x, key):
            x = slice_step(key, x, bimodal)
            return x, x

        return jax.lax.scan(step, jnp.array(-2.0), jax.random.split(key, 500))[1]

    draws = np.asarray(oracle.quick_jit(jax.vmap(chain))(jax.random.split(jax.random.key(33), 20)))
    assert (draws.max(1) > 1).all()


@pytest.mark.parametrize("start", [jnp.nan, jnp.inf])
def test_slice_step_from_no_number_ends(start):
    """A chain that has left the numbers must not hang: it is told so after the piece."""
    assert jnp.isnan(slice_step(jax.random.key(35), jnp.asarray(start), lambda v: -0.5 * v**2))


@pytest.mark.parametrize("start", [0.0, 3.0])
def test_slice_step_stays_where_the_density_is_infinite(start):
    """A density that is infinite at one point holds the chain there; it must not hang."""
    x = jnp.asarray(start)
    moved = slice_step(jax.random.key(34), x, lambda v: jnp.where(v == x, jnp.inf, 0.0), 0.5)
    assert moved == x
