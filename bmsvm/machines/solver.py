"""Multicategory machines to a certified duality gap: interior points on a working set.

Most dual variables end at a bound. The solver guesses which from the margins of a start, solves
for the others with :func:`bmsvm.machines.interior_point.solve_box`, and looks at the margins of
all: each variable's share in the duality gap is known, and those that have a share and were held
join the working set. A small problem without a start has all variables in the set, and takes one
round. A large one starts from the solution for every other row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.interior_point import BoxProgram, BoxSolution, solve_box
from bmsvm.models.couplings import contrast

__all__ = ["Solution", "certified", "solve"]

WHOLE = 1200
"""Dual variables up to which a problem without a start is solved as it is."""

SPARE = 1.25
"""Size of the first working set, relative to the variables that the start has between bounds."""

SPARE_OF_HALF = 2.0
"""The same where the start has seen every other row."""

LEAST = 20
"""Size that a working set has at least, for each class."""

MOST_ROUNDS = 100

FINER = 100
"""How much smaller the gap of a working set is to be than that of the problem."""

ROUGH = 1e-7
"""Gap of the first working set, for each variable of the problem, where the start is rough."""

MAY_LEAVE = 8
"""Rounds in which variables may leave the working set; later it only grows, and so must end."""

DECIDED = 0.05
"""A variable whose margin is this part of the offset from zero may leave a large working set."""

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


def _program(problem: MachineProblem, dual: np.ndarray, working: np.ndarray) -> BoxProgram:
    """Quadratic programme of the working set, the others held; intercepts as contrasts."""
    rows, rivals = np.nonzero(working)
    directions = problem.loss.directions[problem.labels[rows], rivals]  # (N, c)
    gathered = problem.gathered(np.where(working, 0.0, dual))
    kernel = problem.gram[np.ix_(rows, rows)]
    kernel *= directions @ directions.T
    kernel /= problem.gamma
    pull = problem.expansion(gathered)[rows]
    basis = contrast(problem.loss.n_classes)
    return BoxProgram(
        kernel,
        np.einsum("kc,kc->k", directions, pull) + problem.loss.offset,
        problem.weights[rows],
        directions @ basis,
        -basis.T @ gathered.sum(0),
        problem.intercept_precision,
    )


def _closest(distance: np.ndarray, size: int) -> np.ndarray:
    """Mask of the so many smallest entries."""
    mask = np.zeros(distance.shape, bool)
    mask.flat[np.argpartition(distance, size - 1, axis=None)[:size]] = True
    return mask


def _guess(
    problem: MachineProblem, scores: np.ndarray, spare: float
) -> tuple[np.ndarray, np.ndarray]:
    """Dual variables at the bounds that scores (n, c) suggest, and the first working set."""
    upper = problem.upper
    margins = problem.margins(scores)
    distance = np.where(upper > 0, np.abs(margins), np.inf)
    between = int(np.sum(distance < 1e-4))
    size = int(spare * between) + LEAST * problem.loss.n_classes
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
    everything = problem.upper > 0
    basis = contrast(problem.loss.n_classes)
    spare, precision = SPARE, tol / FINER
    if start is None and problem.n_pairs > WHOLE:
        start, spare = _scores_from_half(problem, tol), SPARE_OF_HALF
        precision = max(precision, ROUGH * problem.n_pairs)
    if start is None:
        dual, working = np.zeros(everything.shape), everything
    else:
        dual, working = _guess(problem, start, spare)
    best: Solution | None = None
    rounds = steps = 0
    while rounds < MOST_ROUNDS:
        rounds += 1
        program = _program(problem, dual, working)
        found = solve_box(program, tol=precision)
        steps += found.steps
        if np.isinf(found.gap) and start is not None and np.any(working != everything):
            working = _wider(problem, working, start if best is None else best.scores)
            continue  # the variables that were held leave no room for the intercept
        intercept = basis @ found.multipliers
        exact = certified(problem, _replaced(dual, working, found.point), intercept)
        on_bounds = _on_bounds(program, found)
        moved = _replaced(dual, working, on_bounds)
        snapped = certified(problem, moved, intercept)
        candidate = snapped if snapped.gap <= tol else exact
        between = _replaced(np.zeros_like(working), working, on_bounds == found.point)
        if exact.gap <= tol < snapped.gap and np.any(between):
            polished, more = _polished(problem, moved, between, tol)
            candidate, steps = polished if polished.gap <= tol else exact, steps + more
        if best is None or candidate.gap < best.gap:
            best = candidate
        if best.gap <= tol:
            break
        joining = _violators(problem, candidate, working, tol)
        if not np.any(joining) and precision <= tol / FINER:
            break
        precision = max(tol / FINER, min(precision, candidate.gap) / FINER)
        if rounds <= MAY_LEAVE:
            working = between | _undecided(problem, candidate, working)
        dual, working = moved, working | joining
    assert best is not None
    return best._replace(rounds=rounds, steps=steps)


def _polished(
    problem: MachineProblem, dual: np.ndarray, between: np.ndarray, tol: float
) -> tuple[Solution, int]:
    """Solve once more for the variables between their bounds, the others held on them."""
    program = _program(problem, dual, between)
    found = solve_box(program, tol=tol / FINER)
    moved = _replaced(dual, between, found.point)
    intercept = contrast(problem.loss.n_classes) @ found.multipliers
    return certified(problem, moved, intercept), found.steps


def _wider(problem: MachineProblem, working: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Twice the working set, by the variables whose margins are closest to zero."""
    distance = np.where(problem.upper > 0, np.abs(problem.margins(scores)), np.inf)
    return working | _closest(distance, min(2 * int(working.sum()), problem.n_pairs))


def _undecided(problem: MachineProblem, found: Solution, working: np.ndarray) -> np.ndarray:
    """Mask of the working set without those that are clearly on a bound, if it is large."""
    if np.sum(working) <= WHOLE // 2:
        return working
    return working & (np.abs(problem.margins(found.scores)) < DECIDED * problem.loss.offset)


def _violators(
    problem: MachineProblem, found: Solution, working: np.ndarray, tol: float
) -> np.ndarray:
    """Mask of the variables outside the working set that have the largest shares in the gap."""
    margins = problem.margins(found.scores)
    shares = problem.upper * np.maximum(margins, 0) - found.dual * margins
    shares[working] = 0.0
    joining = shares > 0.1 * tol / problem.n_pairs
    most = max(LEAST * problem.loss.n_classes, int(working.sum()) // 2)
    return _closest(-shares, most) if np.sum(joining) > most else joining


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


def certified(problem: MachineProblem, dual: np.ndarray, intercept: np.ndarray) -> Solution:
    """Return the functions of dual variables, and the duality gap that certifies them.

    Parameters
    ----------
    problem
        What is to be solved.
    dual
        alpha, shape (n, c), within its bounds; made to sum to zero where the intercept is free.
    intercept
        w0, shape (c,).
    """
    dual = problem.balanced(dual)
    gathered = problem.gathered(dual)
    expansion = problem.expansion(gathered)
    primal, lower = problem.objectives(dual, gathered, expansion, intercept)
    return Solution(
        dual,
        -gathered / problem.gamma,
        intercept,
        expansion + intercept,
        primal,
        primal - lower,
    )
