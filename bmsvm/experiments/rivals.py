"""Cells of the table that are machines: gamma and theta by cross-validation.

Splits tune on their own training rows. Leave-one-out machines are tuned once, by five folds of all
rows, and then each row is predicted by the machine that was fitted without it: the tuning has seen
its label, the fit has not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

import bmsvm
from bmsvm import kernels
from bmsvm.experiments.cells import ROWS, Cell
from bmsvm.experiments.protocol import Data, Part, standardized
from bmsvm.experiments.results import scored
from bmsvm.machines import Grid, held_out_scores
from bmsvm.machines.base import KernelMachine

__all__ = ["GAMMAS", "LENGTHSCALES", "run_machine"]

GAMMAS = np.geomspace(1e-3, 10, 5)
LENGTHSCALES = np.geomspace(1.75, 14, 4)
"""Values to try, the paper's 3.5 among them; both on log scales."""

FOLDS = 5


def run_machine(
    cell: Cell,
    data: Data,
    parts: list[Part],
    seed: int,
    report: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Tune, fit and score a machine; the numbers of the cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # gaps are recorded instead
        if cell.leaves_one_out:
            guesses, chosen, gaps = _leave_one_out(cell, data, parts, seed, report)
        else:
            guesses, chosen, gaps = _splits(cell, data, parts, seed, report)
    return {
        **scored(guesses, [data.labels[part.test] for part in parts], None),
        "chosen": chosen,
        "duality_gap_largest": float(np.max(gaps)),
        "decides_by": "score",
        "n_fits": len(parts),
    }


def _machine(cell: Cell, seed: int) -> KernelMachine:
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return getattr(bmsvm, ROWS[cell.row].variant)(
        gamma="cv", lengthscale="cv", grid=Grid(GAMMAS, LENGTHSCALES, folds)
    )


def _chosen(machine: KernelMachine) -> dict[str, float]:
    return {"gamma": float(machine.gamma_), "lengthscale": float(machine.lengthscale_)}


def _splits(cell: Cell, data: Data, parts: list[Part], seed: int, report):
    guesses, chosen, gaps = [], [], []
    for part in parts:
        machine = _machine(cell, seed)
        machine.fit(data.rows[part.train], data.labels[part.train])
        guesses.append(machine.predict(data.rows[part.test]))
        chosen.append(_chosen(machine))
        gaps.append(machine.duality_gap_)
        report(1 / len(parts))
    return guesses, chosen, gaps


def _leave_one_out(cell: Cell, data: Data, parts: list[Part], seed: int, report):
    tuned = _machine(cell, seed).fit(data.rows, data.labels)
    report(0.5)
    gram = kernels.gram_of("gaussian", standardized(data.rows), tuned.lengthscale_)
    scores = held_out_scores(
        tuned.fit_gram,
        gram,
        data.labels,
        np.ones(len(data.labels)),
        tuned.gamma_,
        [(part.train, part.test) for part in parts],
    )
    report(0.5)
    guesses = [scores[part.test].argmax(axis=1) for part in parts]
    return guesses, [_chosen(tuned)], [tuned.duality_gap_]
