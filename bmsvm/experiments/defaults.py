"""Cells of the table that are ``BMSVMClassifier()``, nothing said, or theta found otherwise.

Splits are fitted by the classifier itself. Leave-one-out fits are those of the same model and
likelihood, in groups under one program; theta, and the priors, are found for each group by the
classifier, which is then given none of the rows that the group leaves out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bmsvm import BMSVMClassifier, Hyperparameters
from bmsvm.experiments.cells import ROWS, Cell
from bmsvm.experiments.protocol import Data, Part, standardized
from bmsvm.experiments.results import scored, summary_of_traces
from bmsvm.experiments.stack import Schedule, blocks_of_rows, leave_one_out_stack, run_stack
from bmsvm.inference.calibration import best_calibration, calibrate
from bmsvm.inference.presets import preset_blocks

__all__ = ["run_default"]

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "evidence": {"lengthscale": "marginal-likelihood"},
    "per_feature": {
        "lengthscale": "marginal-likelihood",
        "lengthscale_options": {"per_feature": True, "num_steps": 120, "step_size": 0.15},
    },
}
"""What the classifier is told, by the variant of the row: more parameters need more steps."""

SEARCH_SHARE = 0.3
"""Share of the work that is the search for theta, roughly, where one row is left out."""


def run_default(
    cell: Cell,
    data: Data,
    parts: list[Part],
    schedule: Schedule,
    seed: int,
    report: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Fit and score; the numbers of the cell. Arguments as of ``run_posterior``."""
    run = _leave_one_out if cell.leaves_one_out else _splits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to warn of is recorded
        told = {**SETTINGS[ROWS[cell.row].variant], "random_state": seed}
        chances, found = run(data, parts, schedule, told, report)
    truth = [data.labels[part.test] for part in parts]
    return {
        **scored([each.argmax(axis=1) for each in chances], truth, chances),
        **found,
        "decides_by": "probability",
        "n_fits": len(parts),
    }


def _splits(data: Data, parts: list[Part], schedule: Schedule, told: dict[str, Any], report):
    chances, worst, chosen = [], [], []
    for part in parts:
        model = BMSVMClassifier(**told)
        model.fit(data.rows[part.train], data.labels[part.train])
        if model.run_.interrupted:
            raise KeyboardInterrupt
        chances.append(model.predict_proba(data.rows[part.test]))
        worst.append(max(each.r_hat for each in model.diagnostics_.values()))
        chosen.append(_as_json(np.asarray(model.lengthscale_), model.problem_.hyper))
        report(1 / len(parts))
    return chances, {
        "r_hat_median": float(np.median(worst)),
        "r_hat_largest": float(np.max(worst)),
        "chosen": chosen,
        "sweeps": int(model.n_iter_),
        "draws": model.num_chains * model.num_samples,
    }


def _leave_one_out(data: Data, parts: list[Part], schedule: Schedule, told: dict[str, Any], report):
    left_out = [int(part.test[0]) for part in parts]
    rows, blocks = standardized(data.rows), blocks_of_rows(left_out)
    found: list[dict[str, Any]] = []
    for own in blocks:
        rest = ~np.isin(np.arange(len(rows)), own)
        search = BMSVMClassifier(standardize=False, num_samples=1, calibration=None, **told)
        search.fit(rows[rest], data.labels[rest])
        priors = jax.tree.map(float, search.problem_.hyper)
        found.append({"lengthscale": np.asarray(search.lengthscale_), "hyperparameters": priors})
        report(SEARCH_SHARE / len(blocks))
    settings = {"likelihood": "normalized", "completed": False}
    with jax.enable_x64(True):
        stack = leave_one_out_stack(data, left_out, settings, found)
        moves = preset_blocks("default", "normalized")
        drawn = run_stack(
            told["random_state"],
            stack,
            moves,
            schedule,
            lambda share: report((1 - SEARCH_SHARE) * share),
        )
    return _calibrated(drawn.probabilities, data.labels[left_out]), {
        **summary_of_traces(drawn),
        "chosen": [_as_json(**each) for each in found],
        "sweeps": schedule.warmup + schedule.draws * schedule.thinning,
        "draws": schedule.draws,
    }


def _as_json(lengthscale: np.ndarray, hyperparameters: Hyperparameters) -> dict[str, Any]:
    """Return what was found, the mean of the prior of tau with it."""
    tau = hyperparameters.precision_shape / hyperparameters.precision_rate
    return {"lengthscale": lengthscale.tolist(), "prior_precision": float(tau)}


def _calibrated(probabilities: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """Probabilities of fits (fits, 1, c), each calibrated by all others' left-out rows."""
    found = []
    for i, own in enumerate(probabilities):
        others = np.arange(len(labels)) != i
        by = best_calibration(probabilities[others, 0], labels[others])
        found.append(calibrate(own, by))
    return found
