"""Solvers of the MSVM and the AltMSVM: ``python benchmarks/msvm_solvers.py [--large]``.

The dual of each problem is solved by ``bmsvm.machines.solve`` (PIQP on a working set) and by
general quadratic programming solvers on all variables, PIQP among them, in the same run. The table
has CPU seconds and the duality gap of each answer, made feasible and certified in the same way.
Then leave-one-out: CPU seconds for all n refits, each started from the machine on all rows.
``--large`` adds n c = 20,000 for ``bmsvm.machines.solve`` only: the others would need a dense
matrix of that size. Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from pathlib import Path

import numpy as np
import qpsolvers
import scipy.linalg
import scipy.sparse
from sklearn.preprocessing import StandardScaler

from bmsvm import datasets, kernels
from bmsvm.machines import MachineProblem, held_out_scores, lee, solve, weston_watkins
from bmsvm.machines.solver import certified

LOSSES = {"MSVM": lee, "AltMSVM": weston_watkins}
RIVALS: dict[str, dict] = {
    "clarabel": {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-10, "tol_feas": 1e-9},
    "piqp": {"eps_abs": 1e-8, "eps_rel": 1e-10},
    "osqp": {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iter": 20_000, "polishing": True},
}
RIVALS_UP_TO = 2_600
"""Number of dual variables up to which the general solvers are run."""


def problem_of(name: str, n: int | None, lengthscale: float, gamma: float, loss: str):
    if name in ("waveform", "eleven"):
        X, y = getattr(datasets, f"make_{name}")(n, seed=0, return_X_y=True)
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        chosen = np.random.default_rng(0).permutation(len(X))[:n]
        X, y = X[chosen], np.asarray(y)[chosen]
    classes, labels = np.unique(y, return_inverse=True)
    gram = kernels.gram(kernels.Gaussian().at(lengthscale), StandardScaler().fit_transform(X))
    return MachineProblem(gram, labels, LOSSES[loss](len(classes)), gamma, 0.0, np.ones(len(X)))


def seconds_of(action):
    """CPU seconds that an action takes, and what it returns."""
    began = time.process_time()
    result = action()
    return time.process_time() - began, result


def by_rival(problem: MachineProblem, solver: str):
    """Solve ``min alpha'Q alpha/2 - m 1'alpha`` with ``E'alpha = 0``, ``0 <= alpha <= s``."""
    rows, rivals = np.nonzero(problem.upper)
    directions = problem.loss.directions[problem.labels[rows], rivals]
    contrast = scipy.linalg.helmert(problem.loss.n_classes).T
    quadratic = problem.gram[np.ix_(rows, rows)] * (directions @ directions.T) / problem.gamma
    equalities, upper = (directions @ contrast).T.copy(), problem.weights[rows]
    dense = solver == "piqp"
    asked = qpsolvers.Problem(
        quadratic if dense else scipy.sparse.csc_matrix(quadratic),
        np.full(len(rows), -problem.loss.offset),
        A=equalities if dense else scipy.sparse.csc_matrix(equalities),
        b=np.zeros(len(equalities)),
        lb=np.zeros(len(rows)),
        ub=upper,
    )
    seconds, answer = seconds_of(
        lambda: qpsolvers.solve_problem(asked, solver=solver, **RIVALS[solver])
    )
    if answer.x is None:
        return seconds, np.inf
    dual = np.zeros(problem.upper.shape)
    dual[rows, rivals] = np.clip(answer.x, 0, upper)
    return seconds, certified(problem, dual, -contrast @ answer.y).gap


def measure(name: str, n: int | None, lengthscale: float, gamma: float, loss: str) -> dict:
    problem = problem_of(name, n, lengthscale, gamma, loss)
    seconds, found = seconds_of(lambda: solve(problem))
    record = {
        "data": name,
        "rows": len(problem.labels),
        "variables": problem.n_pairs,
        "lengthscale": lengthscale,
        "gamma": gamma,
        "loss": loss,
        "between": int(np.sum((found.dual > 1e-9) & (found.dual < 1 - 1e-9))),
        "bmsvm": (seconds, found.gap),
    }
    for rival in RIVALS if problem.n_pairs <= RIVALS_UP_TO else ():
        record[rival] = by_rival(problem, rival)
    return record


def leave_one_out(name: str, lengthscale: float, gamma: float) -> dict:
    problem = problem_of(name, None, lengthscale, gamma, "MSVM")
    gram, labels, weights = problem.gram, problem.labels, problem.weights
    everything = np.arange(len(labels))
    folds = [(np.delete(everything, i), everything[i : i + 1]) for i in everything]

    def fit(gram, labels, weights, gamma, start=None):
        part = MachineProblem(gram, labels, problem.loss, gamma, 0.0, weights)
        return solve(part, start=start)

    seconds, scores = seconds_of(lambda: held_out_scores(fit, gram, labels, weights, gamma, folds))
    return {
        "data": name,
        "gamma": gamma,
        "lengthscale": lengthscale,
        "seconds": seconds,
        "error": float(np.mean(scores.argmax(1) != labels)),
    }


def show(record: dict) -> None:
    cells = [
        f"{record[name][0]:8.2f} s {record[name][1]:8.0e}" if name in record else f"{'-':>19}"
        for name in ("bmsvm", *RIVALS)
    ]
    print(
        f"{record['data']:>9} {record['rows']:5} {record['variables']:6} "
        f"{record['lengthscale']:6.1f} {record['gamma']:7.3f} {record['loss']:>8} "
        f"{record['between']:6}  " + " ".join(cells),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/msvm_solvers.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # solvers that stop early: the gap shows it
    settings: list[tuple[str, int | None, float, float]] = [
        ("wine", None, 3.5, 1.0),
        ("wine", None, 3.5, 0.01),
        ("glass", None, 10.0, 1.0),
        ("glass", None, 10.0, 0.01),
        ("waveform", 300, 3.5, 0.1),
        ("vehicle", 300, 3.5, 0.1),
        ("vehicle", None, 3.5, 0.1),
        ("waveform", 1250, 3.5, 1.0),
    ]
    if arguments.large:
        settings += [
            ("waveform", 6667, 5.0, 1.0),
            ("waveform", 6667, 3.5, 0.1),
            ("eleven", 1818, 3.5, 1.0),
        ]
    heads = " ".join(f"{name + ': time, gap':>19}" for name in ("bmsvm", *RIVALS))
    print(
        f"{'data':>9} {'n':>5} {'dual':>6} {'theta':>6} {'gamma':>7} {'':>8} {'free':>6}  {heads}"
    )
    records = []
    for setting in settings:
        for loss in LOSSES:
            records.append(measure(*setting, loss))
            show(records[-1])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\nLargest memory {memory:.2f} GB\n\nLeave-one-out, MSVM")
    held_out = []
    for name, lengthscale in (("wine", 3.5), ("glass", 10.0)):
        for gamma in (1.0, 0.1, 0.01):
            held_out.append(leave_one_out(name, lengthscale, gamma))
            print(
                "  {data}, gamma {gamma}: {seconds:.1f} s, error {error:.4f}".format(**held_out[-1])
            )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"fits": records, "leave_one_out": held_out, "memory_gb": memory}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
