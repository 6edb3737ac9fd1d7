"""Solver of the multicategory machines: PIQP on a working set of the dual variables.

Most dual variables are at a bound at the solution. The solver guesses which ones from approximate
scores, fixes them there, and solves the quadratic programme of the others, the working set, with
the dense interior-point solver PIQP. The scores then give the contribution of each fixed variable
to the duality gap. Variables that contribute join the working set, until the gap is small enough.
A small problem starts with all variables in the working set, a large one with approximate scores
from half of the rows. The working set is 2 to 6 times faster than PIQP on all variables at 2,500
variables, and allows 20,000 (``benchmarks/msvm_solvers.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import piqp
import scipy.linalg

from bmsvm.machines.dual import MachineProblem

WHOLE = 1200
"""Number of dual variables up to which the first working set has all of them."""

SPARE = 1.5
"""Size of the first working set relative to the number of variables between their bounds."""

LEAST = 20
"""Smallest size of a working set, per class."""

MOST_ROUNDS = 100
"""Largest number of working sets."""

MAY_LEAVE = 8
"""Rounds in which variables may leave the working set. Later it only grows, so that rounds end."""

DECIDED = 0.02
"""Variables whose margin is this far from zero, relative to the offset, may leave."""

MOST_STEPS = 100
"""Largest number of interior-point steps per working set."""

ATTEMPTS = ((1e-10, False), (1e-12, True))
"""Residuals asked of PIQP, and whether variables are scaled by curvature instead of bounds: the
second where no variable has to join but the gap is too large."""

BINDING = (1e-3, 1e-5, 1e-7)
"""Ratios of distance and slope below which a variable is set to its bound, tried in this order."""


class Solution(NamedTuple):
    """Fitted machine.

    dual
        alpha, shape (n, c), feasible.
    coefficients
        W, shape (n, c), of eq. (1). Rows of zeros do not contribute.
    intercept
        w0, shape (c,).
    scores
        F at the training rows, shape (n, c).
    objective
        P, the value of (2).
    gap
        Duality gap P - D, an upper bound of the distance of P from its minimum.
    rounds, steps
        Number of working sets, and of interior-point steps in total.
    """

    dual: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray
    scores: np.ndarray
    objective: float
    gap: float
    rounds: int = 0
    steps: int = 0


def solve(
    problem: MachineProblem, *, tol: float = 1e-6, start: np.ndarray | None = None
) -> Solution:
    """Fit a machine.

    Parameters
    ----------
    problem
        Gram matrix, labels, loss and regularisation.
    tol
        Duality gap to reach.
    start
        Approximate scores at the rows, shape (n, c), for example of the machine with another gamma
        or with a few more rows.

    Returns
    -------
    Solution
        Its ``gap`` is at most ``tol``, unless rounding errors prevent it.
    """
    if start is None and problem.n_pairs > WHOLE:
        start = _scores_from_half(problem, tol)
    if start is None:
        scores, dual, working = 0 * problem.upper, 0 * problem.upper, problem.upper > 0
    else:
        scores, (dual, working) = start, _guess(problem, start)
    best: Solution | None = None
    rounds = steps = level = 0
    while rounds < MOST_ROUNDS and level < len(ATTEMPTS):
        rounds += 1
        dual, intercept, more, feasible = _solve_working_set(
            problem, dual, working, tol, *ATTEMPTS[level]
        )
        steps += more
        if not feasible and working.sum() < problem.n_pairs:
            size = min(2 * int(working.sum()), problem.n_pairs)
            working = working | _closest(_distances(problem, scores), size)
            continue
        found = certified(problem, dual, intercept)
        if best is None or found.gap < best.gap or not np.isfinite(best.gap):
            best, scores = found, found.scores
        if best.gap <= tol:
            break
        joining = _violators(problem, found, working, tol)
        level += not np.any(joining)
        if rounds <= MAY_LEAVE:
            dual, working = _without_decided(problem, found, working)
        else:
            dual = found.dual
        working = working | joining
    assert best is not None
    return _sparse(problem, best, tol)._replace(rounds=rounds, steps=steps)


def certified(problem: MachineProblem, dual: np.ndarray, intercept: np.ndarray) -> Solution:
    """Compute the functions of dual variables and their duality gap.

    Parameters
    ----------
    problem
        The problem to be solved.
    dual
        alpha, shape (n, c), within its bounds; made feasible where the intercept is not penalised.
    intercept
        w0, shape (c,).
    """
    dual = problem.balanced(dual)
    gathered = problem.gathered(dual)
    expansion = problem.expansion(gathered)
    scores = expansion + intercept
    norm = -np.sum(gathered * expansion) / 2  # gamma/2 tr(W'KW)
    primal = np.sum(problem.upper * np.maximum(problem.margins(scores), 0)) + norm
    lower = problem.loss.offset * dual.sum() - norm
    kappa = problem.intercept_precision
    if kappa > 0:
        primal += kappa / 2 * np.sum(intercept**2)
        lower -= np.sum(gathered.sum(0) ** 2) / (2 * kappa)
    coefficients = -gathered / problem.gamma
    return Solution(dual, coefficients, intercept, scores, float(primal), float(primal - lower))


# Quadratic programme ---------------------------------------------------------------------------


def _solve_working_set(
    problem: MachineProblem,
    dual: np.ndarray,
    working: np.ndarray,
    tol: float,
    residual: float,
    by_curvature: bool,
) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """Maximise D over the N variables of the working set (n, c), the others fixed.

    With alpha = t x, the contrasts C (c, c - 1) and A0 of the fixed variables it is

        minimise    x'Qx/2 - p'x + |b|^2/2
        subject to  E'x + sqrt(kappa m/t) b = e,   0 <= x <= s/t

    where Q = t/(gamma m) K_kl a_k . a_l, p_k = 1 - (K A0)_k . a_k/(gamma m), E_k = C'a_k and
    e = -C'A0'1/t. The multipliers of the equalities are the intercept, in units of m. Returns
    alpha (n, c), w0 (c,), the number of steps, and whether there is a feasible point.
    """
    rows, rivals = np.nonzero(working)
    directions = problem.loss.directions[problem.labels[rows], rivals]  # (N, c)
    fixed = problem.gathered(np.where(working, 0.0, dual))
    offset, contrast = problem.loss.offset, scipy.linalg.helmert(problem.loss.n_classes).T
    upper = problem.weights[rows]
    quadratic = problem.gram[np.ix_(rows, rows)]
    quadratic *= directions @ directions.T
    curvature = float(np.mean(np.diag(quadratic))) / (problem.gamma * offset)
    scale = float(upper.max())
    if by_curvature:
        scale = min(scale, 1 / max(curvature, np.finfo(float).tiny))
    size, extra = len(rows), contrast.shape[1]
    everything = np.zeros((size + extra, size + extra), order="F")
    everything[:size, :size] = quadratic * (scale / (problem.gamma * offset))
    everything[size:, size:] = np.eye(extra)
    pull = np.einsum("kc,kc->k", directions, problem.expansion(fixed)[rows])
    soft = np.sqrt(problem.intercept_precision * offset / scale) * np.eye(extra)
    unbounded = np.full(extra, np.inf)

    solver = piqp.DenseSolver()
    settings = solver.settings
    settings.eps_abs, settings.eps_rel, settings.max_iter = residual, 0.0, MOST_STEPS
    settings.eps_duality_gap_abs = tol / 1000 / (scale * offset)
    settings.eps_duality_gap_rel = 0.0
    settings.reg_lower_limit, settings.reg_finetune_lower_limit = 1e-13, 1e-15
    solver.setup(
        everything,
        np.append(-pull / offset - 1, np.zeros(extra)),
        np.asfortranarray(np.hstack([(directions @ contrast).T, soft])),
        -contrast.T @ fixed.sum(0) / scale,
        x_l=np.append(np.zeros(size), -unbounded),
        x_u=np.append(upper / scale, unbounded),
    )
    status = solver.solve()
    result = solver.result
    moved = dual.copy()
    moved[working] = np.clip(result.x[:size] * scale, 0.0, upper)
    intercept = -offset * contrast @ result.y
    return moved, intercept, result.info.iter, status != piqp.PIQP_PRIMAL_INFEASIBLE


# Working sets ----------------------------------------------------------------------------------


def _closest(distance: np.ndarray, size: int) -> np.ndarray:
    """Mask of the ``size`` smallest entries."""
    mask = np.zeros(distance.shape, bool)
    mask.flat[np.argpartition(distance, size - 1, axis=None)[:size]] = True
    return mask


def _distances(problem: MachineProblem, scores: np.ndarray) -> np.ndarray:
    """Distances of the margins from zero, shape (n, c); infinite at the row's own class."""
    return np.where(problem.upper > 0, np.abs(problem.margins(scores)), np.inf)


def _guess(problem: MachineProblem, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dual variables at the bounds that scores (n, c) suggest, and the first working set."""
    distance = _distances(problem, scores)
    size = int(SPARE * np.sum(distance < 1e-4)) + LEAST * problem.loss.n_classes
    dual = np.where(problem.margins(scores) > 0, problem.upper, 0.0)
    return dual, _closest(distance, min(size, problem.n_pairs))


def _scores_from_half(problem: MachineProblem, tol: float) -> np.ndarray:
    """Scores at all rows of the machine that is fitted to every second row of each class."""
    half = np.sort(np.argsort(problem.labels, kind="stable")[::2])
    part = problem.part(half, problem.gamma / 2)
    coarse = solve(part, tol=max(tol, 1e-4 * part.n_pairs))
    return coarse.intercept + problem.gram[half].T @ coarse.coefficients


def _violators(
    problem: MachineProblem, found: Solution, working: np.ndarray, tol: float
) -> np.ndarray:
    """Mask of the fixed variables that contribute most to the duality gap."""
    margins = problem.margins(found.scores)
    shares = problem.upper * np.maximum(margins, 0) - found.dual * margins
    shares[working] = 0.0
    joining = shares > 0.1 * tol / problem.n_pairs
    most = max(LEAST * problem.loss.n_classes, int(working.sum()) // 2)
    return _closest(-shares, most) if np.sum(joining) > most else joining


def _at_bounds(problem: MachineProblem, found: Solution, binding: float) -> np.ndarray:
    """Dual variables (n, c), with those set to their bound that are close to it.

    At a solution either the distance to the bound or the slope is zero. The slope of D in alpha is
    the margin. Both are compared in units of their usual size.
    """
    upper, dual = problem.upper, found.dual
    slope = binding * problem.margins(found.scores) / problem.loss.offset * float(dual.max())
    return np.where(dual < -slope, 0.0, np.where(upper - dual < slope, upper, dual))


def _without_decided(
    problem: MachineProblem, found: Solution, working: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fix variables of a large working set that are clearly at a bound: alpha, and the others."""
    if np.sum(working) <= WHOLE // 2:
        return found.dual, working
    dual = _at_bounds(problem, found, BINDING[0])
    near = np.abs(problem.margins(found.scores)) < DECIDED * problem.loss.offset
    remaining = working & (near | (dual == found.dual))
    return np.where(remaining, found.dual, dual), remaining


def _sparse(problem: MachineProblem, found: Solution, tol: float) -> Solution:
    """Set variables to the bound that they approach, where the duality gap allows it."""
    for binding in BINDING:
        dual = _at_bounds(problem, found, binding)
        moved = certified(problem, dual, found.intercept)
        if moved.gap <= max(tol, found.gap):
            return moved
    return found
