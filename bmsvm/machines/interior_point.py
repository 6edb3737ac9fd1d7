"""Convex quadratic programmes in a box, by a primal-dual interior-point method.

    minimise  1/2 x'Qx - p'x + |E'x - e|^2/(2 kappa)   subject to  0 <= x <= u

where kappa = 0 asks for E'x = e. Q is dense and positive semi-definite, E has few columns. The
method is Mehrotra's, a predictor and a corrector, with one Cholesky factor of Q plus a diagonal at
each step. The number of steps hardly depends on Q, which is what makes it safe where a kernel is
nearly singular.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

__all__ = ["BoxProgram", "BoxSolution", "solve_box"]

MOST_STEPS = 100

NEARLY = 0.995
"""Share of the way to the boundary that a step may go."""

NUDGE = 1e-15
"""Added to the diagonal, relative to the largest entry of Q, where there is no Cholesky factor;
then ten times as much, and so on."""

NUDGES = 6

STALLED = 6
"""Steps in which the duality gap may fail to halve."""

CLOSED = 1e-12
"""How far the equalities may be off, relative to the sum of x."""


class BoxProgram(NamedTuple):
    """A quadratic programme.

    quadratic
        Q, shape (N, N), symmetric and positive semi-definite.
    linear
        p, shape (N,).
    upper
        u, shape (N,), positive.
    equalities
        E, shape (N, k); k may be 0.
    targets
        e, shape (k,).
    softness
        kappa, not negative: 0 where the equalities have to be met.
    """

    quadratic: np.ndarray
    linear: np.ndarray
    upper: np.ndarray
    equalities: np.ndarray
    targets: np.ndarray
    softness: float = 0.0


class BoxSolution(NamedTuple):
    """Where the method ended.

    point
        x, shape (N,), inside the box.
    multipliers
        Of the equalities, shape (k,): ``(e - E'x)/kappa`` where that is positive.
    steps
        Steps taken.
    gap
        Duality gap; infinite where the equalities, or the multipliers, could not be met.
    """

    point: np.ndarray
    multipliers: np.ndarray
    steps: int
    gap: float


class _Iterate(NamedTuple):
    """x, u - x, the prices z and v of the two bounds, and the multipliers of the equalities."""

    point: np.ndarray
    room: np.ndarray
    lower_price: np.ndarray
    upper_price: np.ndarray
    multipliers: np.ndarray

    def complementarity(self) -> float:
        return float(self.point @ self.lower_price + self.room @ self.upper_price)


def _first(program: BoxProgram) -> _Iterate:
    """Begin inside the box, not further than where the quadratic term meets the linear one."""
    typical = float(np.mean(np.abs(program.linear)))
    curvature = max(float(np.mean(np.diag(program.quadratic))), np.finfo(float).tiny)
    reach = max(typical / curvature, 1e-12 * float(program.upper.max()))
    point = np.minimum(program.upper / 2, reach)
    gradient = program.quadratic @ point - program.linear
    return _Iterate(
        point,
        program.upper - point,
        np.maximum(gradient, 0) + typical,
        np.maximum(-gradient, 0) + typical,
        np.zeros(program.equalities.shape[1]),
    )


def _factor(matrix: np.ndarray, diagonal: np.ndarray) -> Any:
    """Cholesky factor of a matrix plus a positive diagonal, nudged until there is one; or None."""
    where = np.diag_indices_from(matrix)
    largest = float(np.max(matrix[where]))
    for nudge in (0.0, *(NUDGE * 10.0**power for power in range(NUDGES))):
        shifted = matrix.copy(order="F")
        shifted[where] += diagonal + nudge * largest
        try:
            return scipy.linalg.cho_factor(
                shifted, lower=True, overwrite_a=True, check_finite=False
            )
        except (scipy.linalg.LinAlgError, ValueError):
            continue
    return None


def _longest(values: np.ndarray, change: np.ndarray) -> float:
    """Largest step, 1 at most, that keeps ``values + step * change`` positive, with a margin."""
    falling = change < 0
    if not np.any(falling):
        return 1.0
    return min(1.0, NEARLY * float(np.min(-values[falling] / change[falling])))


def _moved(at: _Iterate, change: _Iterate, step: float, upper: np.ndarray) -> _Iterate:
    parts = [value + step * move for value, move in zip(at, change, strict=True)]
    parts[1] = np.maximum(upper - parts[0], np.finfo(float).eps * upper)
    return _Iterate(*parts)


def solve_box(program: BoxProgram, *, tol: float) -> BoxSolution:
    """Minimise ``1/2 x'Qx - p'x`` over ``0 <= x <= u`` with ``E'x = e``, or softly so.

    Parameters
    ----------
    program
        The programme.
    tol
        Duality gap at which to stop; sooner where rounding errors win.

    Returns
    -------
    BoxSolution
        The point of smallest gap among those that met the equalities.
    """
    quadratic, linear, upper, equalities, targets, softness = program
    at = best = _first(program)
    least, since, steps = np.inf, 0, 0
    while steps < MOST_STEPS:
        slope = linear - quadratic @ at.point + equalities @ at.multipliers
        residual = equalities.T @ at.point - targets + softness * at.multipliers
        gap = float(upper @ np.maximum(slope, 0) - at.point @ slope)
        closed = np.abs(residual).max(initial=0.0) <= CLOSED * np.sum(at.point)
        since = 0 if not closed or gap < least / 2 else since + 1
        if closed and gap < least:
            best, least = at, gap
        if least <= tol or since > STALLED:
            break
        factor = _factor(quadratic, at.lower_price / at.point + at.upper_price / at.room)
        if factor is None:
            break
        with np.errstate(over="ignore", invalid="ignore"):  # lost, and told by the direction
            change = _direction(at, slope, residual, factor, program)
        if change is None:
            break
        length = min(_longest(value, move) for value, move in zip(at[:4], change[:4], strict=True))
        at = _moved(at, change, length, upper)
        steps += 1
    return BoxSolution(best.point, best.multipliers, steps, least)


def _direction(
    at: _Iterate,
    slope: np.ndarray,
    residual: np.ndarray,
    factor: Any,
    program: BoxProgram,
) -> _Iterate | None:
    """Newton's direction towards the central path, corrected to second order; None if lost."""
    point, room, lower_price, upper_price, _ = at
    stationary = slope + lower_price - upper_price
    equalities = program.equalities
    eliminated = scipy.linalg.cho_solve(factor, equalities, check_finite=False)
    schur = equalities.T @ eliminated + program.softness * np.eye(equalities.shape[1])

    def towards(low: np.ndarray, high: np.ndarray) -> _Iterate:
        # low and high are what the products of x and z, and of u - x and v, should change by.
        right = stationary + low / point - high / room
        free = scipy.linalg.cho_solve(factor, right, check_finite=False)
        prices = np.linalg.lstsq(schur, -residual - equalities.T @ free, rcond=None)[0]
        dx = free + eliminated @ prices
        return _Iterate(
            dx, -dx, (low - lower_price * dx) / point, (high + upper_price * dx) / room, prices
        )

    low, high = -point * lower_price, -room * upper_price
    try:
        ahead = towards(low, high)
        lengths = [_longest(v, d) for v, d in zip(at[:4], ahead[:4], strict=True)]
        primal, dual = min(lengths[:2]), min(lengths[2:])
        now = at.complementarity()
        then = (point + primal * ahead.point) @ (lower_price + dual * ahead.lower_price)
        then += (room + primal * ahead.room) @ (upper_price + dual * ahead.upper_price)
        centre = now / (2 * len(point)) * min(1.0, float(then / now) ** 3)
        found = towards(
            low + centre - ahead.point * ahead.lower_price,
            high + centre - ahead.room * ahead.upper_price,
        )
    except np.linalg.LinAlgError:
        return None
    return found if np.all(np.isfinite(found.point)) else None
