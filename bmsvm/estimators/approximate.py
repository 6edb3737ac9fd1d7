"""The variational posterior in an estimator: draws of it in place of chains, or chains from it."""

from __future__ import annotations

import time
from typing import Any

import jax

from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.run import Run
from bmsvm.inference.variational import fit_variational
from bmsvm.models.problem import Problem

__all__ = ["variational_run", "variational_start"]

FIT_STREAM, DRAW_STREAM = 0x56, 0x57
"""Set the keys of the fit and of its draws apart from those of chains."""


def variational_run(
    sampler: BMSVMGibbs,
    problem: Problem,
    *,
    seed: int,
    num_chains: int,
    num_samples: int,
    progress_bar: bool,
) -> Run:
    """Fit a normal approximation, and return independent draws of it in the shape of chains.

    The state is that of chains which have not begun.
    """
    began, key = time.perf_counter(), jax.random.key(seed)
    fit = fit_variational(
        problem, rng_key=jax.random.fold_in(key, FIT_STREAM), progress_bar=progress_bar
    )
    drawn = fit.sample(
        jax.random.fold_in(key, DRAW_STREAM),
        num_chains * num_samples,
        scores=problem.features is None,
    )
    samples = {
        name: value.reshape(num_chains, num_samples, *value.shape[2:])
        for name, value in drawn.items()
    }
    state = sampler.init(jax.random.split(key, num_chains), 0, None, (problem,), {})
    return Run(samples, state, sampler, 1, seconds=time.perf_counter() - began)


def variational_start(
    problem: Problem, *, seed: int, num_chains: int, progress_bar: bool
) -> dict[str, Any]:
    """Fit a normal approximation, and return where chains may start: draws of it."""
    key = jax.random.key(seed)
    fit = fit_variational(
        problem, rng_key=jax.random.fold_in(key, FIT_STREAM), progress_bar=progress_bar
    )
    return fit.init_params(jax.random.fold_in(key, DRAW_STREAM), num_chains)
