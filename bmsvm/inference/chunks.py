"""The compiled program of the chain driver: a chunk of draws of vectorised chains."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from bmsvm.checkpoint import CHUNK
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.finite import check_finite
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.state import BMSVMState, advance
from bmsvm.models.problem import Problem

__all__ = [
    "CHUNK",
    "INFO",
    "advance_chains",
    "compiled_chunk",
    "moving_part",
    "sites_of",
    "start_chains",
    "with_shared",
]

INFO = ("accept_prob", "step_size", "num_steps", "lengthscale_accept_prob")
"""What the sampler reports of each draw."""


def moving_part(state: BMSVMState) -> BMSVMState:
    """Return the state without what chains share, the problem and the setup."""
    return state._replace(problem=cast(Any, None), setup=None)


def with_shared(moving: BMSVMState, state: BMSVMState) -> BMSVMState:
    """Undo :func:`moving_part`, with the problem and the setup of ``state``."""
    return moving._replace(problem=state.problem, setup=state.setup)


def sites_of(state: BMSVMState) -> dict[str, jax.Array]:
    """Public sites of the current draw, and :data:`INFO`, of each chain of the state."""
    sites = {name.lstrip("_"): value for name, value in state.z.items()}
    return {**sites, **{name: getattr(state, name) for name in INFO}}


class _Program(NamedTuple):
    """What determines the compiled program of a chunk, besides shapes."""

    algorithm: Algorithm
    collect: tuple[str, ...]


@functools.partial(jax.jit, static_argnames="program")
def compiled_chunk(
    state: BMSVMState, count: jax.Array, thinning: jax.Array, *, program: _Program
) -> tuple[BMSVMState, dict[str, jax.Array]]:
    """Make ``count`` draws, ``thinning`` sweeps each; draws past ``count`` are zeros.

    Problem and setup stay out of the loops and of the result, or they would be copied.
    """

    def values(moving):
        found = sites_of(with_shared(moving, state))
        return {name: found[name] for name in program.collect}

    def one_sweep(_, moving):
        return moving_part(advance(with_shared(moving, state), program.algorithm))

    def draw(i, carry):
        moving, kept = carry
        moving = jax.lax.fori_loop(0, thinning, one_sweep, moving)
        found = values(moving)
        return moving, {name: kept[name].at[i].set(found[name]) for name in program.collect}

    moving = moving_part(state)
    shapes = jax.eval_shape(values, moving)
    empty = {name: jnp.zeros((CHUNK, *like.shape), like.dtype) for name, like in shapes.items()}
    return jax.lax.fori_loop(0, count, draw, (moving, empty))


def start_chains(
    kernel: BMSVMGibbs,
    rng_key: jax.Array,
    problem: Problem,
    *,
    num_chains: int,
    num_warmup: int,
    init_params: Mapping[str, ArrayLike] | None = None,
) -> BMSVMState:
    """Return vectorised chains at their starting points."""
    keys = jax.random.split(rng_key, num_chains)
    return kernel.init(keys, num_warmup, init_params, (problem,), {})


def advance_chains(
    state: BMSVMState, algorithm: Algorithm, count: int, thinning: int, collect: tuple[str, ...]
) -> tuple[BMSVMState, dict[str, jax.Array]]:
    """Make at most :data:`CHUNK` draws of vectorised chains.

    Returns
    -------
    tuple
        The chains, and their draws, each of shape (count, chain, ...).
    """
    program = _Program(algorithm, collect)
    ahead, drawn = compiled_chunk(state, jnp.asarray(count), jnp.asarray(thinning), program=program)
    ahead = with_shared(ahead, state)
    jax.block_until_ready(ahead.i)
    one_sweep = functools.partial(advance, algorithm=algorithm)
    check_finite(state, ahead, one_sweep, count * thinning)
    return ahead, {name: value[:count] for name, value in drawn.items()}
