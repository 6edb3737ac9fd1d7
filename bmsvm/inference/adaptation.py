"""Adaptation in warm-up: scales estimated in windows, step size tuned by dual averaging.

At the end of each window the mean and the standard deviation of every coordinate seen in it are
taken over, and the step size is tuned again. Vectorised chains learn together: moments and
acceptance are those of all chains, so that warm-up is shorter, and all chains have one step size
and none waits for a slower one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.infer.hmc_util import dual_averaging

SMALLEST_WINDOW = 10
"""Sweeps of a window below which its scales are not taken over."""

STUCK = 0.3
"""Largest mean acceptance of chains of which one accepts nothing; below what is aimed at."""

_, _update_step = dual_averaging()


class Phase(NamedTuple):
    """Where in the run a sweep is; warm-up lasts while ``sweep < n_warmup``.

    sweep
        Index of the sweep, counted from the start of warm-up.
    n_warmup
        Number of warm-up sweeps.
    chains
        Name of the mapped axis of vectorised chains; None if a chain runs alone.
    """

    sweep: jax.Array
    n_warmup: jax.Array
    chains: str | None = None

    @property
    def num_chains(self) -> int:
        """Number of chains that learn together."""
        return 1 if self.chains is None else jax.lax.axis_size(self.chains)

    def pooled(self, value: jax.Array) -> jax.Array:
        """Mean of a value over vectorised chains."""
        return value if self.chains is None else jax.lax.pmean(value, self.chains)

    def pooled_acceptance(self, probability: jax.Array) -> jax.Array:
        """Geometric mean of acceptance probabilities over vectorised chains.

        It stays below the target while one chain accepts nothing, so that the common step size
        shrinks until that chain moves; an arithmetic mean would leave it where it is. A harmonic
        mean does the same, and follows the worst chain so closely that steps stay too short.
        """
        smallest = max(4, self.num_chains) * math.log(STUCK)
        return jnp.exp(self.pooled(jnp.maximum(jnp.log(probability), smallest)))

    @property
    def warming_up(self) -> jax.Array:
        """Whether the sweep belongs to warm-up."""
        return self.sweep < self.n_warmup


class Moments(NamedTuple):
    """Number of sweeps; mean and variance (about that mean) of what chains saw in them."""

    number: jax.Array
    mean: Any
    variance: Any


class Adaptation(NamedTuple):
    """What is learned in warm-up.

    centre, scales
        Mean and standard deviation of each coordinate, pytrees like the coordinates.
    step
        State of dual averaging for the log step size.
    moments
        Of the coordinates in the current window.
    """

    centre: Any
    scales: Any
    step: Any
    moments: Moments


def _no_moments(like: Any) -> Moments:
    zeros = jax.tree.map(jnp.zeros_like, like)
    return Moments(jnp.zeros((), jnp.int32), zeros, zeros)


def _added(moments: Moments, coordinates: Any, phase: Phase) -> Moments:
    """Add the coordinates of one sweep, of all vectorised chains (Chan, Golub and LeVeque)."""
    number = moments.number + 1
    share = 1 / number
    here = jax.tree.map(phase.pooled, coordinates)
    around = jax.tree.map(lambda x, m: phase.pooled((x - m) ** 2), coordinates, here)
    ahead = jax.tree.map(lambda x, m: x - m, here, moments.mean)
    return Moments(
        number,
        jax.tree.map(lambda m, by: m + share * by, moments.mean, ahead),
        jax.tree.map(
            lambda v, s, by: v + share * (s - v + (1 - share) * by**2),
            moments.variance,
            around,
            ahead,
        ),
    )


def _deviations(moments: Moments, phase: Phase) -> Any:
    """Return standard deviations, the variances shrunk a little towards 0.001, as in Stan."""
    n = moments.number * phase.num_chains
    unbiased = n / jnp.maximum(n - 1, 1)

    def deviation(variance: jax.Array) -> jax.Array:
        shrunk = (n / (n + 5)) * unbiased * variance + 1e-3 * (5 / (n + 5))
        return jnp.sqrt(shrunk).astype(variance.dtype)

    return jax.tree.map(deviation, moments.variance)


def _restart_step(log_step: jax.Array) -> tuple[jax.Array, ...]:
    """Start dual averaging at a log step size; it is drawn towards twice that step size."""
    zero = jnp.zeros_like(log_step)
    return log_step, log_step, zero, jnp.zeros((), jnp.result_type(int)), log_step + math.log(2.0)


def init_adaptation(centre: Any, scales: Any, first_step: float, dtype: Any) -> Adaptation:
    """Start from a guess of the centre, the scales and the step size."""
    step = _restart_step(jnp.full((), math.log(first_step), dtype))
    return Adaptation(centre, scales, step, _no_moments(scales))


def step_size_of(adaptation: Adaptation, phase: Phase) -> jax.Array:
    """Step size of a sweep: the current one in warm-up, the averaged one afterwards."""
    log_step, log_average, *_ = adaptation.step
    return jnp.exp(jnp.where(phase.warming_up, log_step, log_average))


def adapt(
    adaptation: Adaptation,
    coordinates: Any,
    accept_prob: jax.Array,
    target: float,
    phase: Phase,
    windows: Sequence[float],
) -> Adaptation:
    """Learn from one sweep; after warm-up nothing changes.

    Parameters
    ----------
    adaptation
        What was learned so far.
    coordinates
        Where the sweep ended, a pytree like the scales.
    accept_prob, target
        Acceptance probability of the sweep, and what it is tuned to.
    phase
        Where in the run the sweep is.
    windows
        Ends of the windows, as fractions of warm-up.
    """

    def learn() -> Adaptation:
        shortfall = (target - phase.pooled_acceptance(accept_prob)).astype(adaptation.step[0].dtype)
        step = _update_step(shortfall, adaptation.step)
        moments = _added(adaptation.moments, coordinates, phase)
        ends = jnp.asarray([int(1000 * end) for end in windows]) * phase.n_warmup // 1000
        ended = jnp.any(phase.sweep + 1 == ends) & (moments.number >= SMALLEST_WINDOW)
        fresh = Adaptation(
            moments.mean,
            _deviations(moments, phase),
            _restart_step(step[1]),
            _no_moments(coordinates),
        )
        kept = Adaptation(adaptation.centre, adaptation.scales, step, moments)
        return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, kept)

    return jax.lax.cond(phase.warming_up, learn, lambda: adaptation)
