"""Draws from a table in the form of chains, for the driver: a state, and chunks of draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np

from bmsvm.inference.state import HIDDEN, BMSVMState
from bmsvm.inference.table import PosteriorTable
from bmsvm.models.problem import Problem


def table_state(rng_key: jax.Array, problem: Problem, num_chains: int) -> BMSVMState:
    """Return the state before the first draw; ``i`` numbers the draws."""
    n, c, k = problem.n_rows, problem.n_classes, problem.n_columns
    z = {
        "noise_variance": np.ones(num_chains),
        "precision": np.ones(num_chains),
        "intercept": np.zeros((num_chains, c)),
        "weights": np.zeros((num_chains, problem.factor.eigenvalues.shape[0], k)),
    }
    if problem.grid is not None:
        z["lengthscale"] = np.ones(num_chains)
    if draws_scores(problem):
        z["scores"] = np.zeros((num_chains, n, c))
    ones = np.ones(num_chains)
    return _state(
        BMSVMState(
            i=cast(Any, np.asarray(0, np.int32)),
            z={},
            chain=None,
            accept_prob=cast(Any, ones),
            step_size=cast(Any, 0 * ones),
            num_steps=cast(Any, np.zeros(num_chains, np.int32)),
            lengthscale_accept_prob=cast(Any, ones if problem.grid is not None else 0 * ones),
            problem=problem,
            n_warmup=cast(Any, np.asarray(0, np.int32)),
            rng_key=_keys(rng_key, num_chains),
        ),
        0,
        z,
    )


def _keys(rng_key: jax.Array, count: int) -> jax.Array:
    """Split a key, in NumPy: no program is compiled for independent draws."""
    words = np.asarray(jax.random.key_data(rng_key)).ravel()
    made = np.random.SeedSequence(words.tolist()).generate_state(count * len(words), np.uint32)
    keys = jax.device_put(made.reshape(count, len(words)))
    if rng_key.dtype == np.uint32:  # a key of the older form
        return keys
    return jax.random.wrap_key_data(keys, impl=jax.random.key_impl(rng_key))


def draws_scores(problem: Problem) -> bool:
    """Whether draws have scores: with a basis of low rank they stay integrated out."""
    return problem.basis_map is None


def _state(state: BMSVMState, number: int, sites: dict[str, np.ndarray]) -> BMSVMState:
    """Return the state after the draw of a number, at its sites."""
    z = {f"_{name}" if name in HIDDEN else name: value for name, value in sites.items()}
    return state._replace(i=cast(Any, np.asarray(number, np.int32)), z=cast(Any, z))


def table_advancing(state: BMSVMState) -> Callable[..., tuple[BMSVMState, dict[str, Any]]]:
    """Make the table of a state's problem, and return a function that makes a chunk of draws."""
    problem, chains = state.problem, len(state.accept_prob)
    keys = np.asarray(jax.random.key_data(state.rng_key)).reshape(chains, -1)
    first, second = np.random.default_rng(keys.ravel()).random(2)
    table = PosteriorTable(problem, origin=(first, second))

    def advance(state, count, thinning, collect):
        numbers = int(state.i) + thinning * np.arange(1, count + 1)
        drawn = table.draw(
            np.tile(keys, (count, 1)), np.repeat(numbers, chains), scores=draws_scores(problem)
        )
        sites = {name: part.reshape(count, chains, *part.shape[1:]) for name, part in drawn.items()}
        ahead = _state(state, numbers[-1], {name: part[-1] for name, part in sites.items()})
        info = {
            name: np.broadcast_to(getattr(state, name), (count, chains))
            for name in collect
            if name not in sites
        }
        return ahead, {name: {**sites, **info}[name] for name in collect}

    return advance
