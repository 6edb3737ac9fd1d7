"""Cells of the table that are posteriors: fits of one shape under one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.experiments.cells import ROWS, Cell
from bmsvm.experiments.completed import completed_blocks
from bmsvm.experiments.protocol import PAPER_THETA, Data, Part, standardized
from bmsvm.experiments.results import r_hats, scored, summary_of_traces
from bmsvm.experiments.stack import (
    WATCHED_ROWS,
    Schedule,
    leave_one_out_stack,
    run_stack,
    split_stack,
)
from bmsvm.inference.blocks import Block, lengthscale
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.loo import leave_one_out
from bmsvm.inference.presets import preset_blocks
from bmsvm.inference.run import run_chains

__all__ = ["run_posterior"]

THETA_EVERY = 10
"""Sweeps between two moves of theta where hundreds of fits make a move dear: one for each draw."""

CHAINS = 4
"""Of a split, and of the run from which leave-one-out is had by importance sampling."""


@functools.cache
def _theta_moves() -> tuple[Block, ...]:
    return (lengthscale(),)


def run_posterior(
    cell: Cell,
    data: Data,
    parts: list[Part],
    schedule: Schedule,
    seed: int,
    report: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Fit all parts of a cell and score them; the numbers of the cell.

    Parameters
    ----------
    cell
        Which model, data and theta.
    data, parts
        The data, and which rows are learned from and tested.
    schedule
        How long chains run.
    seed
        Of the chains.
    report
        Is told which share of the work has been done since it was told last.
    """
    row = ROWS[cell.row]
    completed = row.kind == "completed"
    # The completed sweep is linear algebra and noise: single precision serves it, in half the time.
    with jax.enable_x64(not completed):
        if cell.smoothed:
            return _smoothed(cell, data, parts, schedule, seed, report)
        sampled = cell.theta == "sampled"
        settings = {
            "lengthscale": "sample" if sampled else PAPER_THETA[cell.data],
            "likelihood": "hinge" if completed else row.variant,
            "completed": completed,
        }
        if completed:
            every = THETA_EVERY if cell.leaves_one_out else 1
            blocks = completed_blocks(row.variant, theta_every=every if sampled else 0)
        else:
            # Two rounds of a sweep with theta are two sweeps here.
            blocks = (*preset_blocks("default", row.variant), *(_theta_moves() if sampled else ()))
        if cell.leaves_one_out:
            stack = leave_one_out_stack(data, [int(part.test[0]) for part in parts], settings)
        else:
            stack = split_stack(data, parts, settings, 1 if completed else CHAINS)
        drawn = run_stack(seed, stack, blocks, schedule, report)
    if row.decides_by == "exclusion":
        guesses = [each.argmin(axis=1) for each in drawn.exclusion]
    else:
        guesses = [each.argmax(axis=1) for each in drawn.probabilities]
    truth = [data.labels[part.test] for part in parts]
    return {
        **scored(guesses, truth, list(drawn.probabilities)),
        **summary_of_traces(drawn),
        "decides_by": row.decides_by,
        "n_fits": len(parts),
        "sweeps": schedule.warmup + schedule.draws * schedule.thinning,
        "draws": schedule.draws,
    }


def _smoothed(cell: Cell, data: Data, parts: list[Part], schedule: Schedule, seed: int, report):
    """Leave-one-out from one run on all rows, by importance sampling."""
    likelihood = ROWS[cell.row].variant
    sampler = BMSVMGibbs(lengthscale="sample", likelihood=likelihood)
    problem = sampler.prepare(standardized(data.rows), data.labels)
    run = run_chains(
        sampler,
        jax.random.key(seed),
        problem,
        num_warmup=schedule.warmup,
        num_samples=schedule.draws,
        num_chains=CHAINS,
        thinning=schedule.thinning,
        progress_bar=False,
    )
    if run.interrupted:
        raise KeyboardInterrupt
    report(0.9)
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in run.samples.items()}
    found = leave_one_out({name: jnp.asarray(x) for name, x in flat.items()}, problem)
    report(0.1)
    tested = [part.test for part in parts]
    traces = {
        f"log_{name}": np.log(run.samples[name])[:, :, None]
        for name in ("noise_variance", "precision", "lengthscale")
    }
    traces["scores"] = run.samples["scores"][:, :, None, :WATCHED_ROWS]
    chances = [found.probabilities[rows] for rows in tested]
    truth = [data.labels[rows] for rows in tested]
    r_hat = float(r_hats(traces)[0])
    return {
        **scored([p.argmax(axis=1) for p in chances], truth, chances),
        "r_hat_median": r_hat,
        "r_hat_largest": r_hat,
        "lengthscale_quantiles": np.quantile(flat["lengthscale"], (0.05, 0.5, 0.95)).tolist(),
        "pareto_k_largest": float(np.max(found.pareto_k)),
        "pareto_k_above_0.7": int(np.sum(found.pareto_k > 0.7)),
        "decides_by": "probability",
        "n_fits": 1,
        "sweeps": schedule.warmup + schedule.draws * schedule.thinning,
        "draws": CHAINS * schedule.draws,
    }
