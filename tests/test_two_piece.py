"""The hinge-tilted normal against quadrature of its density as it is defined."""

import contextlib
import functools
import itertools
from typing import Any, NamedTuple

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import erfcx

from bmsvm.models import normal_tail, two_piece

MEANS = [-40.0, -8.0, -3.0, 0.0, 3.0, 8.0, 40.0]  # in units of the scale
SCALES = [1e-3, 0.03, 1.0, 30.0, 1e3]
OFFSETS = [1.0, 0.2]
GRID = [(m * s, s, d) for m, s, d in itertools.product(MEANS, SCALES, OFFSETS)]
# a = 0, s and s/2, where the formulas change hands
SEAMS = [(a * s - 1.0, s, 1.0) for s in SCALES for a in (0.0, s, 0.5 * s) if a <= 40]
DTYPES = [np.float32, np.float64]

DRAWS = 100_000
FALSE_ALARM = 1e-4
CELLS = 2000
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def precision(dtype: Any) -> contextlib.AbstractContextManager[Any]:
    """Let JAX use float64, for the extent of a test that needs it."""
    if dtype == np.float32:
        return contextlib.nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return jax.experimental.enable_x64()


def log_kernel(z: Any, m: float, s: float, d: float) -> Any:
    """Unnormalised log density, word for word."""
    return -0.5 * ((z - m) / s) ** 2 - np.maximum(z + d, 0.0)


class Reference(NamedTuple):
    """Quadrature of the density: nodes with their probabilities, and the CDF at cell edges."""

    nodes: np.ndarray
    probabilities: np.ndarray
    edges: np.ndarray
    cdf: np.ndarray
    log_constant: float


@functools.cache
def reference(m: float, s: float, d: float) -> Reference:
    """Integrate exp(log_kernel) by Gauss-Legendre on cells that resolve both sides of the kink.

    The density is log-concave: its mode is found by ternary search, and the cells reach to where
    it has fallen by 60 nats on each side.
    """
    left, right = min(m, -d) - s * s - 10 * s, max(m, -d) + 10 * s
    for _ in range(300):
        one, two = left + (right - left) / 3, right - (right - left) / 3
        if log_kernel(one, m, s, d) < log_kernel(two, m, s, d):
            left = one
        else:
            right = two
    mode = 0.5 * (left + right)
    top = log_kernel(mode, m, s, d)

    def end(sign: float) -> float:
        near, far = 0.0, s * 1e-9
        while log_kernel(mode + sign * far, m, s, d) > top - 60:
            near, far = far, 2 * far
        for _ in range(60):
            middle = 0.5 * (near + far)
            fallen = log_kernel(mode + sign * middle, m, s, d) < top - 60
            near, far = (near, middle) if fallen else (middle, far)
        return mode + sign * far

    low, high = end(-1.0), end(1.0)
    marks = sorted([low, high, mode, min(max(-d, low), high)])  # empty cells do no harm
    edges = np.concatenate(
        [np.linspace(x, y, CELLS, endpoint=False) for x, y in itertools.pairwise(marks)] + [[high]]
    )
    half = 0.5 * np.diff(edges)[:, None]
    nodes = edges[:-1, None] + half * (1 + NODES)
    mass = half * WEIGHTS * np.exp(log_kernel(nodes, m, s, d) - top)
    total = mass.sum()
    cdf = np.concatenate([[0.0], np.cumsum(mass.sum(axis=1))]) / total
    return Reference(nodes, mass / total, edges, cdf, float(top + np.log(total)))


def rounded(dtype: Any, *values: float) -> tuple[float, ...]:
    """Give the values that the dtype can hold."""
    return tuple(float(dtype(value)) for value in values)


def arrays(dtype: Any, *values: Any) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(np.asarray(value, dtype)) for value in values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", range(len(GRID)))
def test_draws_follow_the_density(case, dtype):
    """Kolmogorov-Smirnov distance of fixed draws, within the Dvoretzky-Kiefer-Wolfowitz bound.

    Massart's bound P(D > e) <= 2 exp(-2 n e^2) holds at every n, and e is set so that correct
    code fails anywhere in the 140 comparisons with probability at most 1e-4 (Bonferroni), over
    the choice of seeds.

    A draw z is a point of the continuous distribution rounded to the dtype, after arithmetic on
    numbers as large as m, d and z. Its probability is therefore only known to lie between
    F(z - r) and F(z + r), with r two spacings of the dtype at the largest of the three, and the
    distance is taken to the nearer end. The reference uses m, s and d as rounded to the dtype.
    """
    m, s, d = rounded(dtype, *GRID[case])
    with precision(dtype):
        key = jax.random.key(case + 1000 * DTYPES.index(dtype))
        draws = two_piece.draw(key, *arrays(dtype, np.full(DRAWS, m), s, d))
        assert draws.dtype == dtype
    z = np.sort(np.asarray(draws, np.float64))
    assert np.all(np.isfinite(z))

    largest = np.maximum(np.abs(z), max(abs(m), abs(d)))
    r = 2 * np.spacing(largest.astype(dtype)).astype(np.float64)
    ref = reference(m, s, d)
    ranks = np.arange(DRAWS + 1) / DRAWS
    above = ranks[1:] - np.interp(z + r, ref.edges, ref.cdf)
    below = np.interp(z - r, ref.edges, ref.cdf) - ranks[:-1]
    distance = max(above.max(), below.max())
    comparisons = len(GRID) * len(DTYPES)
    assert distance < np.sqrt(np.log(2 * comparisons / FALSE_ALARM) / (2 * DRAWS))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tail_quantile_is_exact(dtype):
    """Mills ratio and tail inversion against SciPy, far beyond what samples can tell."""
    eps = np.finfo(dtype).eps
    t = np.concatenate([[0.0], np.logspace(-4, 4, 300)]).astype(dtype)
    e = np.concatenate([[0.0], np.logspace(-8, np.log10(38), 300)]).astype(dtype)[:, None]
    with precision(dtype):
        mills = np.asarray(normal_tail.mills(jnp.asarray(t)))
        y = np.asarray(normal_tail.excess(*arrays(dtype, t, mills, e)))
        assert mills.dtype == y.dtype == dtype
    t, e, mills, y = (value.astype(np.float64) for value in (t, e, mills, y))
    exact = np.sqrt(np.pi / 2) * erfcx(t / np.sqrt(2))
    assert np.abs(mills / exact - 1).max() < 8 * eps
    ratio = erfcx((t + y) / np.sqrt(2)) / erfcx(t / np.sqrt(2))
    found = y * (t + y / 2) - np.log(ratio)
    assert np.all(np.abs(found - e) < 16 * eps * (1 + e))


# What is computed in two places has to round alike, or a draw at the kink takes one side for its
# place and the other for its distance. Unoptimised code does not: compile this as users do.
AS_USERS_DO = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_uniforms_give_finite_ordered_draws(dtype, monkeypatch):
    """A draw is a monotone function of its uniform that changes sides exactly at the kink."""
    eps = float(np.finfo(dtype).eps)
    m, s, d = (np.array(column, dtype)[:, None] for column in zip(*GRID, *SEAMS, strict=True))
    with precision(dtype):
        sides_of = jax.jit(two_piece._sides, compiler_options=AS_USERS_DO)
        sides = sides_of(*arrays(dtype, m, s, d, s))  # slope 1
        kink = np.asarray(sides.mass_high / (sides.mass_low + sides.mass_high), np.float64)
        ends = np.logspace(np.log10(eps / 256), -0.31, 200)
        u = np.concatenate([ends, 1 - ends[ends > eps / 2], [0.5, 1 - eps / 2]])
        u = np.hstack([np.broadcast_to(u, (len(m), len(u))), kink * (1 + np.arange(-9, 10) * eps)])
        u = np.sort(np.clip(u.astype(dtype), eps / 256, 1 - eps / 2), axis=1)
        monkeypatch.setattr(two_piece, "uniform", lambda *_: arrays(dtype, u, 1 - u))
        draw = jax.jit(two_piece.draw.__wrapped__, compiler_options=AS_USERS_DO)
        z = np.asarray(draw(None, *arrays(dtype, m, s, d)))
        flipped = np.asarray(sides.flipped)
        assert z.shape == u.shape
        assert np.all(np.isfinite(z))
    steps = np.diff(np.where(flipped, z, -z).astype(np.float64), axis=1)
    size = np.abs(z).max(axis=1, keepdims=True) + np.abs(m) + np.abs(d) + s
    assert np.all(steps > -16 * eps * size)
    on_light_side = np.where(flipped, z <= -d, z >= -d)
    on_heavy_side = np.where(flipped, z >= -d, z <= -d)
    assert np.all(on_light_side[u < kink * (1 - 4 * eps)])
    assert np.all(on_heavy_side[u > kink * (1 + 4 * eps)])


WIDTH = 8
DIMENSIONLESS = st.lists(st.floats(-40, 40), min_size=WIDTH, max_size=WIDTH)
DECADES = st.lists(st.floats(-3, 3), min_size=WIDTH, max_size=WIDTH)
SHIFTS = st.lists(st.floats(-10, 10), min_size=WIDTH, max_size=WIDTH)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(a=DIMENSIONLESS, decade=DECADES, d=SHIFTS, seed=st.integers(0, 2**31 - 1))
def test_draws_are_finite(dtype, a, decade, d, seed):
    scale = 10.0 ** np.array(decade)
    with precision(dtype):
        m, s, d = arrays(dtype, np.array(a) * scale - np.array(d), scale, d)
        key = jax.random.key(seed)
        z = two_piece.draw(key, m, s, d)
        assert z.shape == (WIDTH,)
        assert z.dtype == dtype
        assert np.all(np.isfinite(z))


@pytest.mark.parametrize("dtype", DTYPES)
def test_jit_vmap_and_broadcasting(dtype):
    with precision(dtype):
        m, s, d = arrays(dtype, [-3.0, 0.0, 50.0], [[0.1], [1.0], [7.0], [300.0]], 0.2)
        key = jax.random.key(5)
        z = two_piece.draw(key, m, s, d)
        assert z.shape == (4, 3)
        assert z.dtype == dtype
        tolerance = {"rtol": 32 * np.finfo(dtype).eps, "atol": 32 * np.finfo(dtype).eps}
        np.testing.assert_allclose(jax.jit(two_piece.draw)(key, m, s, d), z, **tolerance)

        keys = jax.random.split(key, 4)
        together = jax.vmap(two_piece.draw, in_axes=(0, None, 0, None))(keys, m, s, d)
        alone = [two_piece.draw(k, m, row, d) for k, row in zip(keys, s, strict=True)]
        np.testing.assert_allclose(together, np.stack(alone), **tolerance)
        assert two_piece.draw(key, m, 1.0, 1).dtype == dtype
