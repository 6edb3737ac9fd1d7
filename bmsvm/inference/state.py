"""The state of chains: how it begins, and how one sweep of an algorithm advances it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from numpyro.util import is_prng_key

from bmsvm.inference.adaptation import Phase
from bmsvm.inference.algorithm import Algorithm, Info
from bmsvm.models.numpyro_model import machine_sites, position_of_sites
from bmsvm.models.problem import Problem

__all__ = ["HIDDEN", "BMSVMState", "advance", "begin", "sweep"]

HIDDEN = ("scores", "weights", "coefficients")
"""Sites with a leading underscore in the state, which keeps them out of ``print_summary``."""


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
    setup
        What the algorithm computed from the problem, shared by vectorised chains.
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
    setup: Any
    n_warmup: jax.Array
    rng_key: jax.Array


@functools.partial(jax.jit, static_argnames=("algorithm", "composed"))
def begin(
    rng_key: jax.Array,
    num_warmup: jax.Array | int,
    start: dict[str, Any],
    setup: Any,
    problem: Problem,
    *,
    algorithm: Algorithm,
    composed: bool,
) -> BMSVMState:
    """Return chains at their starting points, without what they share.

    Parameters
    ----------
    rng_key
        Key of one chain, or keys of vectorised chains.
    num_warmup
        Number of warm-up sweeps.
    start
        Values of sites to start at; with a leading axis of chains if they are vectorised.
    setup
        What the algorithm computed from the problem.
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
            return algorithm.init(key_init, start, setup, problem), key
        chain = algorithm.init(key_init, {}, setup, problem)
        return _at_sites(start, chain, problem), key

    batched = not is_prng_key(rng_key)
    chain, key = (jax.vmap(one_chain) if batched else one_chain)(rng_key, start)
    first = jnp.zeros((), jnp.int32)
    count = jnp.asarray(num_warmup, jnp.int32)
    state = _state(first, chain, {}, problem, setup, count, key, algorithm, composed)
    return state._replace(problem=cast(Any, None), setup=None)


def _at_sites(start: Mapping[str, jax.Array], chain: Any, problem: Problem) -> Any:
    """Return a new chain that starts at values of some of the sites of a block."""
    sites = {**machine_sites(chain.position, problem), **start}
    return chain._replace(position=position_of_sites(sites, chain.position, problem))


def advance(state: BMSVMState, algorithm: Algorithm, *, composed: bool = False) -> BMSVMState:
    """Return the state after one sweep of an algorithm; ``composed`` as in :func:`begin`."""
    chain, info, key = sweep(state, algorithm)
    problem, setup = state.problem, state.setup
    return _state(
        state.i + 1, chain, info, problem, setup, state.n_warmup, key, algorithm, composed
    )


def sweep(state: BMSVMState, algorithm: Algorithm) -> tuple[Any, Info, jax.Array]:
    """Run one sweep of one chain, or of as many as the state holds: chain, info and next key."""
    problem, setup = state.problem, state.setup
    batched = not is_prng_key(state.rng_key)
    phase = Phase(state.i, state.n_warmup, "chains" if batched else None)

    def one_chain(key: jax.Array, chain: Any) -> tuple[Any, Info, jax.Array]:
        key, key_step = jax.random.split(key)
        chain, info = algorithm.step(key_step, chain, setup, problem, phase)
        return chain, info, key

    together = jax.vmap(one_chain, axis_name="chains") if batched else one_chain
    return together(state.rng_key, state.chain)


def _state(
    i: jax.Array,
    chain: Any,
    info: Info,
    problem: Problem,
    setup: Any,
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
        values = algorithm.sites(chain, setup, problem)
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
        setup=setup,
        n_warmup=n_warmup,
        rng_key=key,
    )
