"""A larger model with the machine in it, for ``numpyro.infer.Gibbs``: the sites, and a check."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.gibbs import GIBBS_SITES_KWARG, latent_sample_sites, prototype_trace
from numpyro.infer.util import log_density

from bmsvm.models.numpyro_model import hierarchical_model
from bmsvm.models.problem import Problem

MACHINE_SITES = (
    "noise_variance",
    "precision",
    "white_intercept",
    "white_weights",
    "white_noise",
)
"""Sites of :func:`bmsvm.models.hierarchical_model` with ``integrate_weights=False``."""

ROUNDING = 64
"""Largest relative difference of log densities due to rounding, in units of machine epsilon."""


def check_larger_model(
    model: Callable[..., Any],
    problem_given: Callable[[Mapping[str, jax.Array]], Problem],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Raise ``ValueError`` if a larger model does not suit the block that samples the machine.

    Every other site must belong to a block. Between two values of the machine's sites the log
    densities of the larger model and of ``hierarchical_model`` must change by the same amount.

    Parameters
    ----------
    model
        The larger model.
    problem_given
        The problem given the sites of the larger model.
    args, kwargs
        Arguments of the model.
    """
    known = {*MACHINE_SITES, *kwargs.get(GIBBS_SITES_KWARG, {})}
    kwargs = {name: value for name, value in kwargs.items() if name != GIBBS_SITES_KWARG}
    first, *others = jax.random.split(jax.random.key(0), 3)
    trace = prototype_trace(model, first, args, kwargs)
    sites = {name: trace[name]["value"] for name in latent_sample_sites(trace)}
    if missing := [name for name in MACHINE_SITES if name not in sites]:
        raise ValueError(
            "model must call hierarchical_model(..., integrate_weights=False); it has no "
            f"site {missing[0]!r}"
        )
    summed = {name for name in sites if trace[name]["infer"].get("enumerate") == "parallel"}
    if rest := sorted(set(sites) - known - summed):
        raise ValueError(
            "BMSVMGibbs(model=...) is a block of numpyro.infer.Gibbs, which needs another "
            f"block for {rest}"
        )
    problem = problem_given(sites)
    machine = functools.partial(hierarchical_model, integrate_weights=False)
    pairs = []
    for key in others:
        for name in MACHINE_SITES:
            sites[name] = jnp.exp(jax.random.normal(key, jnp.shape(sites[name])))
        whole = log_density(model, args, kwargs, sites)[0]
        pairs.append((whole, log_density(machine, (problem,), {}, sites)[0]))
    eps = jnp.finfo(whole.dtype).eps
    values = np.asarray(pairs, np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError(
            "model must have a finite log density wherever its sites may be; it has "
            f"{values[~np.isfinite(values)][0]}"
        )
    whole, own = values[1] - values[0]
    if abs(whole - own) > ROUNDING * eps * (1 + np.abs(values).max()):
        raise ValueError(
            "model must depend on the sites of the machine only through hierarchical_model("
            "given(problem, sites), integrate_weights=False), or the block would ignore the "
            "rest; between two of their values the log densities differ by "
            f"{abs(whole - own):.3g}. If other sites enter the machine, say how by given=; if "
            "more of the model depends on its scores or functions, use NUTS(model) for all "
            "sites"
        )
