"""The truncated normal against SciPy, near and far from the centre."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from bmsvm.models.normal_tail import draw_below

DRAWS = 20_000
BOUNDS = [-1e4, -300.0, -38.0, -8.0, -1.0, -1e-9, 0.0, 1e-9, 0.3, 3.0, 9.0, 50.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_below_a_bound_follow_their_distribution(dtype):
    """Kolmogorov-Smirnov on every bound; false alarm 1e-5 over the file."""
    mean, scale = 1.5, 0.7
    bounds = jnp.asarray(BOUNDS, dtype)
    upper = jnp.asarray(mean, dtype) + scale * bounds
    shape = (DRAWS, len(BOUNDS))
    means = jnp.full(shape, mean, dtype)
    draws = jax.jit(draw_below)(jax.random.key(0), means, jnp.asarray(scale, dtype), upper)
    assert draws.dtype == dtype
    assert bool(jnp.all(jnp.isfinite(draws)))
    assert bool(jnp.all(draws <= upper))
    draws, upper = np.asarray(draws, float), np.asarray(upper, float)
    for j, bound in enumerate(BOUNDS):
        if dtype == np.float32 and bound < -300:
            continue  # there the whole distribution lies within a few roundings of the bound
        # P(Z <= z | Z <= bound), from logarithms of tails, is uniform at a draw.
        centre = scipy.special.log_ndtr((draws[:, j] - mean) / scale)
        u = np.exp(centre - scipy.special.log_ndtr((upper[j] - mean) / scale))
        assert scipy.stats.kstest(u, "uniform").pvalue > 1e-5 / (2 * len(BOUNDS))
