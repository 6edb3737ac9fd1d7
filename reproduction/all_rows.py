"""The literal reading of eq. (18): every column is regressed on all rows.

Section 4.1 regresses column j on the rows whose label is not j. Here the score of a row's own
class, ``z_iy = -sum_{j != y} z_ij`` by eq. (12), is used as if it were data. The updates are
conditionals of no joint density: there is **no stationary distribution**, and sigma2 grows without
bound (docs/paper.md). The sweep is here because the printed table may have been computed so.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from bmsvm import PAPER, Problem, prepare
from bmsvm.inference.blocks import (
    Block,
    conjugate_parameters,
    conjugate_precision,
    lengthscale,
    metropolis_scores,
    stateless,
)
from bmsvm.models import scores_of

__all__ = ["all_rows_blocks", "all_rows_problem", "fill_own_scores"]


def all_rows_problem(rows: np.ndarray, labels: np.ndarray, theta: Any) -> Problem:
    """Return a problem with c columns, each of which observes all n rows.

    sigma2 then has nc observations, as printed below eq. (19). The package counts the n(c - 1) free
    scores, and so the other n are added to the shape of the prior.
    """
    hyper = replace(PAPER, noise_shape=PAPER.noise_shape + len(rows))
    problem = prepare(rows, labels, lengthscale=theta, likelihood="hinge", hyperparameters=hyper)
    return replace(problem, coupling="independent", masked=None)


def fill_own_scores() -> Block:
    """Set the score of each row's own class by eq. (12)."""

    def move(key, position, problem):
        return position._replace(columns=scores_of(position.columns, problem)), {}

    return stateless("fill_own_scores", move)


@functools.cache
def all_rows_blocks(*, sample_theta: bool) -> tuple[Block, ...]:
    """Return the blocks of one sweep: the paper's, with the own scores filled in."""
    blocks = (
        metropolis_scores(),
        fill_own_scores(),
        conjugate_parameters(),
        conjugate_precision(),
    )
    return (*blocks, lengthscale()) if sample_theta else blocks
