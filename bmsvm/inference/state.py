"""The state of chains: how it begins, how a sweep advances it, and chunks of sweeps.

A chunk is one compiled program, which serves warm-up and sampling; after it the draws are checked
to be finite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.util import is_prng_key

from bmsvm.checkpoint import CHUNK
from bmsvm.inference.adaptation import Phase
from bmsvm.inference.algorithm import Algorithm, Info
from bmsvm.models.numpyro_model import machine_sites, position_of_sites
from bmsvm.models.problem import Problem

HIDDEN = ("scores", "weights", "coefficients")
"""Sites with a leading underscore in the state, which keeps them out of ``print_summary``."""

INFO = ("accept_prob", "step_size", "num_steps", "lengthscale_accept_prob")
"""What the sampler reports of each draw."""

POSITIVE = ("noise_variance", "precision")
"""Sites that must be positive."""


class BMSVMState(NamedTuple):
    """State of one chain, or of vectorised chains, of :class:`bmsvm.BMSVMGibbs`.

    i
        Index of the sweep, counted from the start of warm-up.
    z
        The sites of one draw: ``noise_variance``, ``precision``, ``intercept`` (c,), the kernel's
        parameters if they are sampled, and, with a leading underscore, ``scores`` (n, c) and
        ``weights`` (r, k). Inside ``numpyro.infer.Gibbs``: ``bmsvm.inference.MACHINE_SITES``.
    chain
        State of the algorithm.
    accept_prob, step_size, num_steps
        Of the move of the scores or weights; ``accept_prob`` is 1 for exact draws.
    lengthscale_accept_prob
        Of the moves of theta; 0 if it is fixed.
    problem
        The prepared data, shared by vectorised chains.
    n_warmup
        Number of warm-up sweeps.
    rng_key
        Random key of the next sweep.
    """

    i: jax.Array
    z: dict[str, jax.Array]
    chain: Any
    accept_prob: jax.Array
    step_size: jax.Array
    num_steps: jax.Array
    lengthscale_accept_prob: jax.Array
    problem: Problem
    n_warmup: jax.Array
    rng_key: jax.Array


def moving_part(state: BMSVMState) -> BMSVMState:
    """Return the state without the problem, which chains share."""
    return state._replace(problem=cast(Any, None))


def with_shared(moving: BMSVMState, state: BMSVMState) -> BMSVMState:
    """Undo :func:`moving_part`, with the problem of ``state``."""
    return moving._replace(problem=state.problem)


def sites_of(state: BMSVMState) -> dict[str, jax.Array]:
    """Public sites of the current draw, and :data:`INFO`, of each chain of the state."""
    sites = {name.lstrip("_"): value for name, value in state.z.items()}
    return {**sites, **{name: getattr(state, name) for name in INFO}}


@functools.partial(jax.jit, static_argnames=("algorithm", "composed"))
def begin(
    rng_key: jax.Array,
    num_warmup: jax.Array | int,
    start: dict[str, Any],
    problem: Problem,
    *,
    algorithm: Algorithm,
    composed: bool,
) -> BMSVMState:
    """Return chains at their starting points, without the problem.

    Parameters
    ----------
    rng_key
        Key of one chain, or keys of vectorised chains.
    num_warmup
        Number of warm-up sweeps.
    start
        Values of sites to start at; with a leading axis of chains if they are vectorised.
    problem
        The prepared data.
    algorithm
        What moves the chains.
    composed
        Whether the chains are a block of ``numpyro.infer.Gibbs``, with the sites of one.
    """

    def one_chain(key: jax.Array, start: dict[str, Any]) -> tuple[Any, jax.Array]:
        key, key_init = jax.random.split(key)
        if not composed:
            return algorithm.init(key_init, start, problem), key
        chain = algorithm.init(key_init, {}, problem)
        return _at_sites(start, chain, problem), key

    batched = not is_prng_key(rng_key)
    chain, key = (jax.vmap(one_chain) if batched else one_chain)(rng_key, start)
    first = jnp.zeros((), jnp.int32)
    count = jnp.asarray(num_warmup, jnp.int32)
    state = _state(first, chain, {}, problem, count, key, algorithm, composed)
    return moving_part(state)


def _at_sites(start: Mapping[str, jax.Array], chain: Any, problem: Problem) -> Any:
    """Return a new chain that starts at values of some of the sites of a block."""
    sites = {**machine_sites(chain.position, problem), **start}
    return chain._replace(position=position_of_sites(sites, chain.position, problem))


def advance(state: BMSVMState, algorithm: Algorithm, *, composed: bool = False) -> BMSVMState:
    """Return the state after one sweep of an algorithm; ``composed`` as in :func:`begin`."""
    chain, info, key = sweep(state, algorithm)
    i, problem, n_warmup = state.i + 1, state.problem, state.n_warmup
    return _state(i, chain, info, problem, n_warmup, key, algorithm, composed)


def sweep(state: BMSVMState, algorithm: Algorithm) -> tuple[Any, Info, jax.Array]:
    """Run one sweep of one chain, or of as many as the state holds: chain, info and next key."""
    problem = state.problem
    batched = not is_prng_key(state.rng_key)
    phase = Phase(state.i, state.n_warmup, "chains" if batched else None)

    def one_chain(key: jax.Array, chain: Any) -> tuple[Any, Info, jax.Array]:
        key, key_step = jax.random.split(key)
        chain, info = algorithm.step(key_step, chain, problem, phase)
        return chain, info, key

    together = jax.vmap(one_chain, axis_name="chains") if batched else one_chain
    return together(state.rng_key, state.chain)


def _state(
    i: jax.Array,
    chain: Any,
    info: Info,
    problem: Problem,
    n_warmup: jax.Array,
    key: jax.Array,
    algorithm: Algorithm,
    composed: bool,
) -> BMSVMState:
    """Return the state of chains, with the sites and the statistics of their draw."""
    batch = () if is_prng_key(key) else key.shape[:1]

    def sites(chain: Any) -> dict[str, jax.Array]:
        if composed:
            return machine_sites(chain.position, problem)
        values = algorithm.sites(chain, problem)
        return {f"_{k}" if k in HIDDEN else k: v for k, v in values.items()}

    z = jax.vmap(sites)(chain) if batch else sites(chain)
    ones = jnp.ones(batch, z["precision"].dtype)
    return BMSVMState(
        i=i,
        z=z,
        chain=chain,
        accept_prob=info.get("accept_prob", ones),
        step_size=info.get("step_size", 0 * ones),
        num_steps=info.get("num_steps", jnp.zeros(batch, jnp.int32)),
        lengthscale_accept_prob=info.get("lengthscale_accept_prob", 0 * ones),
        problem=problem,
        n_warmup=n_warmup,
        rng_key=key,
    )


# Chunks of draws ------------------------------------------------------------------------------


class _Program(NamedTuple):
    """What determines the compiled program of a chunk, besides shapes."""

    algorithm: Algorithm
    collect: tuple[str, ...]


@functools.partial(jax.jit, static_argnames="program")
def compiled_chunk(
    state: BMSVMState, count: jax.Array, thinning: jax.Array, *, program: _Program
) -> tuple[BMSVMState, dict[str, jax.Array]]:
    """Make ``count`` draws, ``thinning`` sweeps each; draws past ``count`` are zeros.

    The problem stays out of the loops and of the result, or it would be copied.
    """

    def values(moving: BMSVMState) -> dict[str, jax.Array]:
        found = sites_of(with_shared(moving, state))
        return {name: found[name] for name in program.collect}

    def one_sweep(_: int, moving: BMSVMState) -> BMSVMState:
        return moving_part(advance(with_shared(moving, state), program.algorithm))

    def draw(i: int, carry: tuple[BMSVMState, dict[str, jax.Array]]) -> Any:
        moving, kept = carry
        moving = jax.lax.fori_loop(0, thinning, one_sweep, moving)
        found = values(moving)
        return moving, {name: kept[name].at[i].set(found[name]) for name in program.collect}

    moving = moving_part(state)
    shapes = jax.eval_shape(values, moving)
    empty = {name: jnp.zeros((CHUNK, *like.shape), like.dtype) for name, like in shapes.items()}
    return jax.lax.fori_loop(0, count, draw, (moving, empty))


def advance_chains(
    state: BMSVMState, algorithm: Algorithm, count: int, thinning: int, collect: tuple[str, ...]
) -> tuple[BMSVMState, dict[str, np.ndarray]]:
    """Make at most :data:`CHUNK` draws of vectorised chains.

    Returns
    -------
    tuple
        The chains, and their draws, each of shape (count, chain, ...).
    """
    program = _Program(algorithm, collect)
    ahead, drawn = compiled_chunk(state, count, thinning, program=program)
    ahead = with_shared(ahead, state)
    jax.block_until_ready(ahead.i)
    one_sweep = functools.partial(advance, algorithm=algorithm)
    check_finite(state, ahead, one_sweep, count * thinning)
    return ahead, {name: np.asarray(value)[:count] for name, value in drawn.items()}


# Non-finite draws -----------------------------------------------------------------------------


class NonFiniteError(FloatingPointError):
    """A parameter of a chain became infinite, not a number, or zero where it must be positive."""


def _good(sites: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Whether each site is finite, and positive where it must be, for each chain, shape (m,)."""
    good = {}
    for name, value in sites.items():
        right = jnp.isfinite(value)
        right = right & (value > 0) if name in POSITIVE else right
        good[name] = jnp.all(right.reshape(len(value), -1), axis=1)
    return good


@jax.jit
def _all_good(sites: Mapping[str, jax.Array]) -> jax.Array:
    return jnp.all(jnp.stack(list(_good(sites).values())))


def check_finite(
    before: BMSVMState,
    after: BMSVMState,
    one_sweep: Callable[[BMSVMState], BMSVMState],
    sweeps: int,
) -> None:
    """Raise :class:`NonFiniteError` unless all sites of vectorised chains are finite.

    The sweeps of the chunk are then repeated one by one, with the same draws, to find the first
    that went wrong.

    Parameters
    ----------
    before, after
        The chains before the chunk and after it.
    one_sweep
        One sweep of the chains.
    sweeps
        Number of sweeps of the chunk.
    """
    if bool(_all_good(after.z)):
        return
    program, state = jax.jit(one_sweep), before
    for _ in range(sweeps):
        state = program(state)
        if not bool(_all_good(state.z)):
            break
    else:
        state = after
    raise NonFiniteError(_message(state))


def _message(state: BMSVMState) -> str:
    """Name the chain, the sweep and the parameter."""
    good = {name: np.asarray(value) for name, value in _good(state.z).items()}
    name = next(name for name, value in good.items() if not value.all())
    chain = int(np.argmin(good[name]))
    values = np.asarray(state.z[name])[chain]
    wrong = ~np.isfinite(values) | ((values <= 0) if name in POSITIVE else False)
    sweep = int(state.i) - 1
    phase = "warm-up" if sweep < int(state.n_warmup) else "sampling"
    return (
        f"chain {chain} is not finite: after sweep {sweep} ({phase}) {name.lstrip('_')} has the "
        f"value {values[wrong].flat[0]}. Hyperparameters, weights or a kernel of extreme size "
        "cause this; see docs/trust.md"
    )
