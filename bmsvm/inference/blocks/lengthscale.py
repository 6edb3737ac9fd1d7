"""Metropolis-Hastings moves of the kernel's parameters theta, on a grid or off it.

The moves differ in what they hold while theta changes, and so in the density of theta:

``surrogate``
    Copies of T with noise of 10 times sigma2, drawn afresh, and what is left of T given the
    copies, whitened by the symmetric root of its covariance (Murray and Adams, 2010); B is
    integrated out and then drawn. The symmetric root makes T continuous in theta, which
    eigenvectors are not.
``ridge``
    As ``surrogate`` while ``tau theta^2`` is held, and with it the size of what is linear in the
    rows: a larger function makes up for a longer lengthscale, so the posterior has a ridge there.
``collapsed``
    T and tau, everything else Gaussian integrated out: ``p(T | theta, tau) p(theta)``; sigma2, b
    and B are then drawn.
``coefficients``
    T, b, B and sigma2: ``p(B | theta, tau, sigma2) p(T | b, B, theta, sigma2) p(theta)``. B has
    the covariance of K^-1, whose small directions determine theta: correct, but it hardly moves.
``paper``
    T, b and B, with the ratio printed in section 4.1, which integrates sigma2 out of the two
    factors one by one. It does **not** leave the posterior invariant (docs/paper.md).

Steps are longest along the ridge. On a grid each move costs a few products with n x n matrices;
off it, a factorisation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from bmsvm._validation import check_choice
from bmsvm.inference.adaptation import Phase
from bmsvm.inference.blocks.base import Block
from bmsvm.inference.grid_walk import walk_on_grid
from bmsvm.models.conditionals import (
    draw_noise_intercept_weights,
    log_density_columns_collapsed,
    project,
    weights_given_rest,
)
from bmsvm.models.family import log_prior_of
from bmsvm.models.hierarchy import (
    Position,
    latent,
    log_likelihood,
    log_precision_prior,
    representer,
    weights_of_representer,
)
from bmsvm.models.problem import Problem
from bmsvm.models.theta import KernelPoint
from bmsvm.models.whitening import log_density_given_noise, spectral, sum_of_functions

FIRST_WIDTH = 2.0
WIDTHS = (1e-3, 1e3)
"""Smallest and largest width; on the grid a step is one at least."""

PSEUDO_COUNT = 10
"""Weight of the first guess of the deviations, one, off the grid."""


class _Step(NamedTuple):
    """A proposed change of theta.

    here, there
        The problem before and after.
    log_stretch
        ``log(theta'/theta)``, the mean over lengthscales; zero where there are none.
    """

    here: Problem
    there: Problem
    log_stretch: jax.Array


COPIES_VARIANCE = 10.0
"""Variance of the copies of a surrogate move, in units of sigma2."""


_Moved = tuple[Position, jax.Array]
"""The moved position, and the logarithm of its density ratio."""

_Program = Callable[[jax.Array, Position, _Step, jax.Array], _Moved]
"""The last argument is 1 to hold ``tau theta^2``, 0 to hold tau: one program serves both."""


def _surrogate(key: jax.Array, position: Position, step: _Step, on_ridge: jax.Array) -> _Moved:
    """Hold noisy copies of the columns and, whitened, what is left of the columns given them."""
    scale = jnp.sqrt(position.noise_variance)
    centred = (position.columns - position.intercept) / scale
    before = position.precision
    after = before * jnp.exp(-2 * on_ridge * step.log_stretch)
    noise = jax.random.normal(key, centred.shape, scale.dtype)
    noisy = centred + math.sqrt(COPIES_VARIANCE) * noise

    def mean(rho):
        return rho / (rho + COPIES_VARIANCE)

    def deviation(rho):
        return jnp.sqrt(rho / (1 + rho / COPIES_VARIANCE))

    def log_density(columns, precision, copies, problem):
        return (
            jnp.sum(log_likelihood(columns, problem))
            + log_precision_prior(precision, problem)
            + jnp.log(precision)
            + log_density_given_noise(copies, COPIES_VARIANCE, precision, problem)
        )

    old, copies_here = spectral(step.here, centred, noisy)
    left = [
        (lambda rho: 1 / deviation(rho), old),
        (lambda rho: -mean(rho) / deviation(rho), copies_here),
    ]
    white = sum_of_functions(left, before, step.here)
    new, copies_there = spectral(step.there, white, noisy)
    moved = sum_of_functions([(deviation, new), (mean, copies_there)], after, step.there)
    columns = position.intercept + scale * moved
    columns = jnp.where(step.here.design.mask.T > 0, columns, 0.0)
    gain = log_density(columns, after, copies_there, step.there) - log_density(
        position.columns, before, copies_here, step.here
    )
    return position._replace(columns=columns, precision=after), gain


def _collapsed(key: jax.Array, position: Position, step: _Step, on_ridge: jax.Array) -> _Moved:
    def log_density(problem):
        projection = project(position.columns, problem)
        return log_density_columns_collapsed(projection, position.precision, problem)

    return position, log_density(step.there) - log_density(step.here)


class _Held(NamedTuple):
    """What p(B | theta) and p(T | b, B, theta) depend on, for each column, shapes (k,)."""

    penalty: jax.Array
    """``eta b^2 + tau B'KB``."""
    residual: jax.Array
    """``|t - b - KB|^2`` over the rows the column observes."""
    half_log_det: jax.Array
    """``log |K| / 2``."""


def _held(position: Position, problem: Problem) -> _Held:
    weights = position.weights
    fitted = latent(position.intercept, weights, problem)
    observed = problem.design.mask.T > 0
    eigenvalues = problem.factor.eigenvalues
    full_rank = jnp.all(eigenvalues > 0)  # else B has no density to compare
    log_det = jnp.where(full_rank, jnp.sum(jnp.log(eigenvalues)), -jnp.inf)
    return _Held(
        problem.hyper.intercept_precision * position.intercept**2
        + position.precision * jnp.sum(weights**2, axis=0),
        jnp.sum(jnp.where(observed, position.columns - fitted, 0.0) ** 2, axis=0),
        log_det / 2 * jnp.ones_like(position.intercept),
    )


def _with_coefficients_held(
    log_density: Callable[[_Held, Position, Problem], jax.Array],
) -> _Program:
    def move(key: jax.Array, position: Position, step: _Step, on_ridge: jax.Array) -> _Moved:
        weights = weights_of_representer(representer(position.weights, step.here), step.there)
        moved = position._replace(weights=weights)
        before = log_density(_held(position, step.here), position, step.here)
        return moved, log_density(_held(moved, step.there), moved, step.there) - before

    return move


def _given_noise(held: _Held, position: Position, problem: Problem) -> jax.Array:
    squares = held.penalty + held.residual
    return jnp.sum(held.half_log_det - 0.5 * squares / position.noise_variance)


def _as_printed(held: _Held, position: Position, problem: Problem) -> jax.Array:
    shape, rate = problem.hyper.noise_shape, problem.hyper.noise_rate
    n, observed = problem.n_rows, problem.design.mask.sum(1)
    return jnp.sum(
        held.half_log_det
        - 0.5 * (shape + n + 1) * jnp.log(rate + held.penalty)
        - 0.5 * (shape + observed) * jnp.log(rate + held.residual)
    )


class _Kind(NamedTuple):
    """What happens to the rest when theta changes."""

    propose: _Program
    needs_weights: bool = False
    """Whether B is held. It is then drawn first: other moves leave it as it was."""
    draws_parameters: bool = False
    """Whether sigma2, b and B were integrated out, and are drawn afterwards."""


_SURROGATE = _Kind(_surrogate)
_COLLAPSED = _Kind(_collapsed, draws_parameters=True)
_COEFFICIENTS = _Kind(_with_coefficients_held(_given_noise), needs_weights=True)
_PRINTED = _Kind(_with_coefficients_held(_as_printed), needs_weights=True)

MOVES: dict[str, tuple[_Kind, float]] = {
    "surrogate": (_SURROGATE, 0.0),
    "ridge": (_SURROGATE, 1.0),
    "collapsed": (_COLLAPSED, 0.0),
    "coefficients": (_COEFFICIENTS, 0.0),
    "paper": (_PRINTED, 0.0),
}
"""The moves of theta by what they hold."""


class Memory(NamedTuple):
    """What the block learns.

    log_widths
        Logarithms of the widths of the proposals, one a move: in steps of the grid, or in
        ``deviations`` off it.
    mean, deviations
        Of the unconstrained parameters off the grid, flat; None on it.
    accept_prob
        Of the latest moves, which are not made in every sweep off the grid.
    """

    log_widths: jax.Array
    mean: Any
    deviations: Any
    accept_prob: jax.Array


def _walk_freely(
    key: jax.Array, point: KernelPoint, step: jax.Array, problem: Problem
) -> tuple[KernelPoint, jax.Array]:
    """Step of the unconstrained parameters, with deviations (d,); and the log prior ratio."""
    flat, unravel = ravel_pytree(point.unconstrained)
    parameters = unravel(flat + step * jax.random.normal(key, flat.shape, flat.dtype))
    family = problem.family
    ratio = log_prior_of(parameters, family) - log_prior_of(point.unconstrained, family)  # type: ignore[arg-type]
    return problem.kernel_point(parameters), ratio


def _log_stretch(kernel: Any, proposal: Any, problem: Problem) -> jax.Array:
    before, after = problem.kernel_values(kernel), problem.kernel_values(proposal)
    if "lengthscale" not in before:
        return jnp.zeros(())
    return jnp.mean(jnp.log(after["lengthscale"]) - jnp.log(before["lengthscale"]))


def lengthscale(
    *,
    moves: Sequence[str] = ("ridge", "surrogate", "ridge", "collapsed"),
    target_accept_prob: float | None = None,
) -> Block:
    """Move theta: by each of the moves in turn.

    Parameters
    ----------
    moves
        Names from :data:`MOVES`.
    target_accept_prob
        Acceptance probability to which the widths of the proposals are tuned in warm-up. Default:
        0.4 for one parameter, 0.25 for several.
    """
    for name in moves:
        check_choice("moves", name, MOVES)
    if not moves:
        raise ValueError(f"moves must name at least one of {', '.join(MOVES)}; got none")
    chosen = [MOVES[name] for name in moves]
    kinds = list(dict.fromkeys(kind for kind, _ in chosen))
    numbers = np.array([kinds.index(kind) for kind, _ in chosen])
    ridges = np.array([on_ridge for _, on_ridge in chosen])

    def init(position: Position, problem: Problem) -> Memory:
        dtype = position.columns.dtype
        log_widths, zero = jnp.full(len(moves), math.log(FIRST_WIDTH), dtype), jnp.zeros((), dtype)
        if not isinstance(position.kernel, KernelPoint):
            return Memory(log_widths, None, None, zero)
        flat, _ = ravel_pytree(position.kernel.unconstrained)
        return Memory(log_widths, flat, jnp.ones_like(flat), zero)

    def attempt(kind: _Kind, key, position: Position, on_ridge, width, memory, problem: Problem):
        key_weights, key_walk, key_move, key_accept, key_draw = jax.random.split(key, 5)
        if kind.needs_weights:
            position = with_weights(key_weights, position, problem)
        proposal: Any
        if isinstance(position.kernel, KernelPoint):
            step = width * memory.deviations / math.sqrt(memory.deviations.size)
            proposal, log_ratio = _walk_freely(key_walk, position.kernel, step, problem)
        else:
            at = cast(jax.Array, position.kernel)
            proposal, log_ratio = walk_on_grid(key_walk, at, width, problem)
        here, there = problem.at(position.kernel), problem.at(proposal)
        stretch = _log_stretch(position.kernel, proposal, problem)
        moved, gain = kind.propose(key_move, position, _Step(here, there, stretch), on_ridge)
        log_ratio = log_ratio + gain
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
        accepted = jax.random.uniform(key_accept, (), probability.dtype) < probability
        position = jax.tree.map(
            lambda new, old: jnp.where(accepted, new, old),
            moved._replace(kernel=proposal),
            position,
        )
        if kind.draws_parameters:
            now = problem.at(position.kernel)
            projection = project(position.columns, now)
            position = draw_noise_intercept_weights(
                key_draw, position, projection, position.precision, now
            )
        return position, probability

    def with_weights(key, position: Position, problem: Problem) -> Position:
        conditional = weights_given_rest(position, problem.at(position.kernel))
        return position._replace(weights=conditional.sample(key))

    def step(key, position, memory: Memory, problem: Problem, phase: Phase):
        if not problem.samples_kernel:
            raise ValueError('the block lengthscale needs data prepared with lengthscale="sample"')
        every = 1 if problem.family is None else problem.family.every

        def move_all(position, memory):
            branches = [
                functools.partial(attempt, kind, memory=memory, problem=problem) for kind in kinds
            ]

            def one(position, move):
                number, key, on_ridge, log_width = move
                width = jnp.exp(log_width)
                return jax.lax.switch(number, branches, key, position, on_ridge, width)

            key_weights, *keys = jax.random.split(key, len(moves) + 1)
            dtype = memory.log_widths.dtype
            each = (
                jnp.asarray(numbers),
                jnp.stack(keys),
                jnp.asarray(ridges, dtype),
                memory.log_widths,
            )
            position, accept_probs = jax.lax.scan(one, position, each)
            if not chosen[-1][0].draws_parameters:
                position = with_weights(key_weights, position, problem)
            learned = _learn(memory, position, accept_probs, target_accept_prob, phase, every)
            memory = jax.tree.map(
                lambda new, old: jnp.where(phase.warming_up, new, old), learned, memory
            )
            return position, memory._replace(accept_prob=jnp.mean(accept_probs))

        if every == 1:
            position, memory = move_all(position, memory)
        else:
            position, memory = jax.lax.cond(
                phase.sweep % every == 0, move_all, lambda *same: same, position, memory
            )
        return position, memory, {"lengthscale_accept_prob": memory.accept_prob}

    return Block("lengthscale", init, step)


def _learn(
    memory: Memory,
    position: Position,
    accept_probs: jax.Array,
    target: float | None,
    phase: Phase,
    every: int,
) -> Memory:
    """Tune the widths; off the grid, take in the parameters for their deviations."""
    count = phase.sweep // every
    point = position.kernel
    if target is None:
        target = 0.25 if memory.mean is not None and memory.mean.size > 1 else 0.4
    log_widths = memory.log_widths + (accept_probs - target) / jnp.sqrt(1.0 + count)
    log_widths = jnp.clip(log_widths, *map(math.log, WIDTHS))
    if not isinstance(point, KernelPoint):
        return memory._replace(log_widths=log_widths)
    flat, _ = ravel_pytree(point.unconstrained)
    rate = 1.0 / (PSEUDO_COUNT + count)
    mean = memory.mean + rate * (flat - memory.mean)
    spread = (flat - memory.mean) * (flat - mean)
    variance = (1 - rate) * memory.deviations**2 + rate * spread
    return memory._replace(log_widths=log_widths, mean=mean, deviations=jnp.sqrt(variance))
