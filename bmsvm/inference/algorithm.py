"""What an MCMC algorithm is: how chains start, how they move, and which sites a draw has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from bmsvm.inference.adaptation import Phase
from bmsvm.models.problem import Problem

Info = dict[str, jax.Array]
"""Scalars that describe one step, such as ``accept_prob``."""


class Algorithm(NamedTuple):
    """An MCMC algorithm as pure functions of one chain.

    name
        What to call it.
    init
        ``init(key, start, problem) -> state``: where a chain begins. ``start`` holds values
        of some sites, and may be empty.
    step
        ``step(key, state, problem, phase) -> (state, info)``: one sweep. After warm-up it
        leaves the posterior invariant and learns nothing.
    sites
        ``sites(state, problem) -> dict``: the public values of a draw: ``noise_variance``,
        ``precision``, ``intercept`` (c,), ``weights`` (r, k), ``scores`` (n, c), and the kernel's
        parameters if they are sampled. Off a grid, where the basis differs from draw to draw, the
        representer ``coefficients`` (n, k) instead of the weights.
    startable
        Names of the sites that ``start`` may hold.
    """

    name: str
    init: Callable[[jax.Array, Mapping[str, jax.Array], Problem], Any]
    step: Callable[[jax.Array, Any, Problem, Phase], tuple[Any, Info]]
    sites: Callable[[Any, Problem], dict[str, jax.Array]]
    startable: tuple[str, ...] = ()
