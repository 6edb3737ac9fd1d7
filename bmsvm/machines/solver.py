"""Multicategory machines to a certified duality gap: interior points on a working set.

Most dual variables end at a bound. The solver guesses which from the margins of a start, solves
for the others with :func:`bmsvm.machines.interior_point.solve_box`, and looks at the margins of
all: each variable's share in the duality gap is known, and those that have a share and were held
join the working set. A small problem without a start has all variables in the set, and takes one
round. A large one starts from the solution for every other row.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.interior_point import BoxProgram, BoxSolution, solve_box
from bmsvm.models.couplings import contrast

__all__ = ["Solution", "solve", "warn_unless_exact"]

WHOLE = 1200
"""Dual variables up to which a problem without a start is solved as it is."""

SPARE = 1.25
"""Size of the first working set, relative to the variables that the start has between bounds."""

LEAST = 20
"""Size that a working set has at least, for each class."""

MOST_ROUNDS = 60

FINER = 100
"""How much smaller the gap of a working set is to be than that of the problem."""

BINDING = 1e-3
"""A variable is on its bound where its distance is this small a part of its slope."""


class Solution(NamedTuple):
    """A fitted machine.

    dual
        alpha, shape (n, c), feasible.
    coefficients
        W, shape (n, c), of eq. (1).
    intercept
        w0, shape (c,), sums to zero.
    scores
        F, shape (n, c), at the training rows.
    objective
        P, the value of (2).
    gap
        P - D, not below the distance of P from its minimum.
    rounds, steps
        Working sets, and interior-point steps over all of them.
    """

    dual: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray
    scores: np.ndarray
    objective: float
    gap: float
    rounds: int = 0
    steps: int = 0


def warn_unless_exact(gap: float, tol: float) -> None:
    """Warn where a gap is larger than was asked for."""
    if not gap <= tol:
        warnings.warn(
            f"the duality gap is {gap:.2g}, more than tol={tol:g}: rounding errors leave no more; "
            "a larger gamma, a shorter lengthscale or a larger tol helps",
            ConvergenceWarning,
            stacklevel=3,
        )


def _program(
    problem: MachineProblem, dual: np.ndarray, working: np.ndarray
) -> tuple[BoxProgram, np.ndarray]:
    """Quadratic programme of the working set, the others held; and its basis of intercepts."""
    rows, rivals = np.nonzero(working)
    directions = problem.loss.directions[problem.labels[rows], rivals]  # (N, c)
    held = np.where(working, 0.0, dual)
    gathered = problem.gathered(held)
    kernel = problem.gram[np.ix_(rows, rows)]
    pull = problem.expansion(gathered)
    if problem.free_intercept:
        basis = contrast(problem.loss.n_classes)
        targets = -basis.T @ gathered.sum(0)
    else:
        basis = np.zeros((problem.loss.n_classes, 0))
        targets = np.zeros(0)
        kernel += problem.gamma / problem.intercept_precision
        pull = pull + problem.prior_intercept(gathered)
    kernel *= directions @ directions.T
    kernel /= problem.gamma
    linear = np.einsum("kc,kc->k", directions, pull[rows]) + problem.loss.offset
    upper = problem.weights[rows]
    return BoxProgram(kernel, linear, upper, directions @ basis, targets), basis


def _closest(distance: np.ndarray, size: int) -> np.ndarray:
    """Mask of the so many smallest entries."""
    mask = np.zeros(distance.shape, bool)
    mask.flat[np.argpartition(distance, size - 1, axis=None)[:size]] = True
    return mask


def _guess(problem: MachineProblem, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dual variables at the bounds that scores (n, c) suggest, and the first working set."""
    upper = problem.upper
    margins = problem.margins(scores)
    distance = np.where(upper > 0, np.abs(margins), np.inf)
    between = int(np.sum(distance < 1e-4))
    size = int(SPARE * between) + LEAST * problem.loss.n_classes
    size = min(size, problem.n_pairs)
    return np.where(margins > 0, upper, 0.0), _closest(distance, size)


def _scores_from_half(problem: MachineProblem, tol: float) -> np.ndarray:
    """Scores at all rows of the machine that is fitted to every other row of each class."""
    order = np.argsort(problem.labels, kind="stable")
    half = np.sort(order[::2])
    part = problem.part(half, problem.gamma / 2)
    coarse = solve(part, tol=max(tol, 1e-5 * part.n_pairs))
    return coarse.intercept + problem.gram[half].T @ coarse.coefficients


def solve(
    problem: MachineProblem, *, tol: float = 1e-6, start: np.ndarray | None = None
) -> Solution:
    """Fit a machine.

    Parameters
    ----------
    problem
        Gram matrix, labels, loss and regularisation.
    tol
        Duality gap at which to stop.
    start
        Scores at the rows, shape (n, c), near those of the solution: those of the machine at
        another gamma, say, or of one fitted to a few rows more.

    Returns
    -------
    Solution
        Its ``gap`` is at most ``tol``, unless rounding errors forbid.
    """
    upper = problem.upper
    everything = upper > 0
    if start is None and problem.n_pairs > WHOLE:
        start = _scores_from_half(problem, tol)
    if start is None:
        dual, working = np.zeros_like(upper), everything
    else:
        dual, working = _guess(problem, start)
    best: Solution | None = None
    polished = False
    steps = 0
    for round_ in range(1, MOST_ROUNDS + 1):
        program, basis = _program(problem, dual, working)
        found = solve_box(program, tol=tol / 2, aim=tol / FINER)
        steps += found.steps
        whole = bool(np.all(working == everything))
        if not found.solved and not whole:
            wider = min(2 * int(working.sum()), problem.n_pairs)
            distance = np.where(everything, np.abs(problem.margins(_scores(best, start))), np.inf)
            working = working | _closest(distance, wider)
            continue
        intercept = basis @ found.multipliers
        on_bounds = _on_bounds(program, found)
        snapped = _replaced(dual, working, on_bounds)
        candidate = _evaluated(problem, snapped, intercept)
        if candidate.gap > tol:
            exact = _evaluated(problem, _replaced(dual, working, found.point), intercept)
            between = _replaced(np.zeros(upper.shape, bool), working, on_bounds == found.point)
            if exact.gap <= tol and not polished:
                best, polished = exact, True
                dual, working = snapped, between
                continue
            candidate = min(candidate, exact, key=lambda each: each.gap)
        if best is None or candidate.gap < best.gap or candidate.gap <= tol:
            best = candidate
        if candidate.gap <= tol or whole or polished:
            break
        dual = candidate.dual
        margins = problem.margins(candidate.scores)
        shares = upper * np.maximum(margins, 0) - candidate.dual * margins
        shares[working] = 0.0
        most = max(LEAST * problem.loss.n_classes, int(working.sum()) // 2)
        joining = shares > 0.1 * tol / problem.n_pairs
        if not np.any(joining):
            working = everything
        elif np.sum(joining) > most:
            joining = _closest(-shares, most)
        working = working | joining
    assert best is not None
    return best._replace(rounds=round_, steps=steps)


def _scores(best: Solution | None, start: np.ndarray | None) -> np.ndarray:
    if best is not None:
        return best.scores
    assert start is not None
    return start


def _on_bounds(program: BoxProgram, found: BoxSolution) -> np.ndarray:
    """Point (N,) with those variables on their bound that are nearer to it than their slope is.

    At a solution either the distance or the slope is zero; both are compared in units of what is
    usual.
    """
    point, upper = found.point, program.upper
    slope = program.linear - program.quadratic @ point + program.equalities @ found.multipliers
    relative = BINDING * slope / np.abs(program.linear).mean() * float(point.max())
    return np.where(point < -relative, 0.0, np.where(upper - point < relative, upper, point))


def _replaced(values: np.ndarray, where: np.ndarray, new: np.ndarray) -> np.ndarray:
    copy = values.copy()
    copy[where] = new
    return copy


def _evaluated(problem: MachineProblem, dual: np.ndarray, intercept: np.ndarray) -> Solution:
    """Functions of dual variables, made feasible, and their certificate."""
    dual = problem.balanced(dual)
    gathered = problem.gathered(dual)
    expansion = problem.expansion(gathered)
    if not problem.free_intercept:
        intercept = problem.prior_intercept(gathered)
    primal, lower = problem.objectives(dual, gathered, expansion, intercept)
    return Solution(
        dual,
        -gathered / problem.gamma,
        intercept,
        expansion + intercept,
        primal,
        primal - lower,
    )
