"""The slice sampler that blocks use for a single scale."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.stats

from bmsvm.inference.slice import slice_step


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
def test_slice_step_from_a_non_finite_value_ends(start):
    """A chain with non-finite values must not hang: it is detected after the chunk."""
    assert jnp.isnan(slice_step(jax.random.key(35), jnp.asarray(start), lambda v: -0.5 * v**2))


@pytest.mark.parametrize("start", [0.0, 3.0])
def test_slice_step_stays_where_the_density_is_infinite(start):
    """A density that is infinite at one point holds the chain there; it must not hang."""
    x = jnp.asarray(start)
    moved = slice_step(jax.random.key(34), x, lambda v: jnp.where(v == x, jnp.inf, 0.0), 0.5)
    assert moved == x
