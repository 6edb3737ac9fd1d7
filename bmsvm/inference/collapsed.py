"""Hamiltonian Monte Carlo for weights, intercept, sigma and tau, the scores integrated out.

The algorithm for many rows and a basis of low rank. Its coordinates are those in which the
posterior is close to a standard normal (:mod:`bmsvm.inference.reference`). A trajectory solves the
normal part exactly, which is a rotation of position and momentum into each other, and adds the rest
of the force as kicks (a splitting), so that a few steps are enough. Each costs two passes over the
basis, which vectorised chains share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bmsvm.inference.adaptation import (
    Adaptation,
    Phase,
    adapt,
    init_adaptation,
    step_size_of,
)
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.laplace import laplace_setup
from bmsvm.inference.reference import (
    Coordinates,
    Setup,
    from_coordinates,
    log_density,
    logs_at,
)
from bmsvm.inference.transport import FIRST_WIDTH, move_theta, tuned_width
from bmsvm.models.couplings import class_vector
from bmsvm.models.integrated import variances_of
from bmsvm.models.problem import Kernel, Problem

FIRST_STEP = 0.5
OVERDISPERSED = 1.5
"""Standard deviations of the reference over which chains begin."""

WINDOWS = (0.3, 0.8)
"""Ends of the windows in which the scales of u are learned, as fractions of warm-up."""

LONGEST_STEP = 0.5 * math.pi
"""A step beyond a quarter turn would come back."""


class Point(NamedTuple):
    """Coordinates with their log density and its gradient."""

    at: Coordinates
    value: jax.Array
    slope: Coordinates


class CollapsedState(NamedTuple):
    """Where a chain is, and what it has learned.

    kernel
        Index of theta in the grid; None if theta is fixed.
    point
        The coordinates.
    adaptation
        Of the coordinates u of (log sigma, log d), and the step size.
    log_width
        Logarithm of the width of the proposals of theta.
    """

    kernel: Kernel
    point: Point
    adaptation: Adaptation
    log_width: jax.Array


class Parameters(NamedTuple):
    """weights (r, k), intercept (k,), noise_variance and precision."""

    weights: jax.Array
    intercept: jax.Array
    noise_variance: jax.Array
    precision: jax.Array


def parameters_of(at: Coordinates, setup: Setup) -> Parameters:
    """Parameters at coordinates, under the setup of one theta."""
    reference = setup.reference
    logs = logs_at(at.u, reference)
    x = from_coordinates(at.xi, logs, reference)
    return Parameters(x[:, :-1].T, reference.intercept_scale * x[:, -1], *variances_of(logs))


@jax.jit  # where a chain begins outside of any program, the rows would be copied otherwise
def _evaluate(at: Coordinates, setup: Setup, problem: Problem) -> Point:
    value, slope = jax.value_and_grad(log_density)(at, setup, problem)
    return Point(at, value, slope)


def _square(tree: Any) -> jax.Array:
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))  # type: ignore[return-value]


def collapsed_hmc(
    *,
    path_length: float = 0.5 * math.pi,
    max_steps: int = 3,
    target_accept_prob: float = 0.7,
    jitter: float = 0.2,
    proposals: int = 2,
) -> Algorithm:
    """Return the algorithm.

    Parameters
    ----------
    path_length
        Length of a trajectory, in posterior standard deviations; a quarter turn makes draws of a
        normal posterior independent.
    max_steps
        Largest number of steps of a trajectory; a path that needs more is cut short.
    target_accept_prob
        Acceptance probability to which the step size is tuned in warm-up.
    jitter
        Relative width of the uniform jitter of the step size.
    proposals
        Proposals of theta in a sweep, each a pass over the basis.
    """

    def init(
        key: jax.Array, start: Mapping[str, jax.Array], setup: Setup, problem: Problem
    ) -> CollapsedState:
        kernel = problem.first_kernel()
        here, there = setup.at(kernel), problem.at(kernel)
        reference = here.reference
        key_u, key_xi = jax.random.split(key)
        dtype = reference.logs.dtype
        u = OVERDISPERSED * jax.random.normal(key_u, (2,), dtype)
        xi = OVERDISPERSED * jax.random.normal(key_xi, reference.mode.shape, dtype)
        return CollapsedState(
            kernel,
            _evaluate(Coordinates(xi, u), here, there),
            init_adaptation(jnp.zeros(2, dtype), jnp.ones(2, dtype), FIRST_STEP, dtype),
            jnp.full((), math.log(FIRST_WIDTH), dtype),
        )

    def step(key: jax.Array, state: CollapsedState, setup: Setup, problem: Problem, phase: Phase):
        key_theta, key_hmc = jax.random.split(key)
        info: dict[str, jax.Array] = {}
        if problem.grid is not None:
            at = state.point.at
            kernel, accept_prob = move_theta(
                key_theta,
                state.kernel,  # type: ignore[arg-type]
                at,
                state.log_width,
                setup,
                problem,
                proposals,
            )
            point = _evaluate(at, setup.at(kernel), problem.at(kernel))
            log_width = tuned_width(state.log_width, accept_prob, phase)
            state = CollapsedState(kernel, point, state.adaptation, log_width)
            info = {"lengthscale_accept_prob": accept_prob}
        here, there = setup.at(state.kernel), problem.at(state.kernel)
        state, said = trajectory(key_hmc, state, here, there, phase)
        return state, {**info, **said}

    def trajectory(
        key: jax.Array, state: CollapsedState, setup: Setup, problem: Problem, phase: Phase
    ):
        """Follow one trajectory at a fixed theta, and accept or reject its end."""
        key_momentum, key_jitter, key_accept = jax.random.split(key, 3)
        step_size = jnp.minimum(step_size_of(state.adaptation, phase), LONGEST_STEP)
        num_steps = jnp.clip(jnp.round(path_length / step_size), 1, max_steps).astype(jnp.int32)
        scales = state.adaptation.scales
        dtype = scales.dtype
        epsilon = step_size * jax.random.uniform(key_jitter, (), dtype, 1 - jitter, 1)
        centre = state.adaptation.centre

        def standard(at: Coordinates) -> Coordinates:
            return Coordinates(at.xi, (at.u - centre) / scales)

        def kick(momentum: Coordinates, point: Point) -> Coordinates:
            """Half a step of the force that the standard normal lacks."""
            force = Coordinates(point.slope.xi, point.slope.u * scales)
            return jax.tree.map(
                lambda p, g, q: p + 0.5 * epsilon * (g + q), momentum, force, standard(point.at)
            )

        def turn(_, carry):
            point, momentum = carry
            momentum = kick(momentum, point)
            cos, sin = jnp.cos(epsilon), jnp.sin(epsilon)
            here = standard(point.at)
            there = jax.tree.map(lambda q, p: cos * q + sin * p, here, momentum)
            momentum = jax.tree.map(lambda q, p: cos * p - sin * q, here, momentum)
            at = Coordinates(there.xi, centre + scales * there.u)
            point = _evaluate(at, setup, problem)
            return point, kick(momentum, point)

        start = state.point
        keys = jax.random.split(key_momentum)
        momentum = Coordinates(
            jax.random.normal(keys[0], start.at.xi.shape, dtype),
            jax.random.normal(keys[1], (2,), dtype),
        )
        end, last = jax.lax.fori_loop(0, num_steps, turn, (start, momentum))
        log_ratio = end.value - start.value + 0.5 * (_square(momentum) - _square(last))
        log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)  # diverged
        accept_prob = jnp.exp(jnp.minimum(log_ratio, 0.0))
        accepted = jax.random.uniform(key_accept, (), dtype) < accept_prob
        point = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), end, start)
        adaptation = adapt(
            state.adaptation, point.at.u, accept_prob, target_accept_prob, phase, WINDOWS
        )
        info = {"accept_prob": accept_prob, "step_size": step_size, "num_steps": num_steps}
        return state._replace(point=point, adaptation=adaptation), info

    def sites(state: CollapsedState, setup: Setup, problem: Problem) -> dict[str, jax.Array]:
        parameters = parameters_of(state.point.at, setup.at(state.kernel))
        return {
            **problem.kernel_values(state.kernel),
            "noise_variance": parameters.noise_variance,
            "precision": parameters.precision,
            "intercept": class_vector(parameters.intercept, problem.coupling),
            "weights": parameters.weights,
        }

    return Algorithm("collapsed HMC", laplace_setup, init, step, sites)
