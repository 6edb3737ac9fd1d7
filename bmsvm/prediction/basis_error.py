"""Estimate of how far a basis of low rank moves class probabilities.

The remaining variance of the kernel, ``k(x, x) - |Phi(x)|^2``, does not determine this: the
probabilities may depend on all of it or on none. So least squares predict each row without its
label twice: with the whole basis, and without the half of its columns with the smaller eigenvalues.
The effect of dropped variance on functions is assumed to grow as its root. The mean distance of the
two predictions, times ``sqrt(left / dropped)``, where ``left`` is the variance outside the basis
and ``dropped`` that of the half, estimates the distance of the first from the exact predictions.
"""

from __future__ import annotations

import numpy as np

from bmsvm.kernels.functions import Kernel
from bmsvm.models.problem import Problem, chosen_rows
from bmsvm.models.squared import Eigen
from bmsvm.prediction.squares import Root, least_squares, roots_of

FEWEST_ROWS = 2000
"""Smallest number of rows by which the error is estimated, if there are as many."""

ROWS_PER_COLUMN = 4
"""Smallest number of these rows for each column of the basis."""


def probability_error(problem: Problem, n_rows: int, kernel: Kernel) -> float:
    """Estimate the mean over rows of ``sum_j |p_j - q_j| / 2``, with q of the exact Gram matrix.

    Parameters
    ----------
    problem
        Prepared data with landmarks (:class:`bmsvm.Nystrom`).
    n_rows
        Number of rows without spare ones.
    kernel
        The kernel of the basis.
    """
    assert problem.basis_map is not None
    columns = problem.factor.eigenvalues.shape[-1]
    rows = chosen_rows(n_rows, max(FEWEST_ROWS, ROWS_PER_COLUMN * columns))
    (root,) = roots_of(problem, rows, None, kernel, None)
    labels, weights = np.asarray(problem.labels)[rows], np.ones(len(rows))
    if problem.row_weights is not None:
        weights = np.asarray(problem.row_weights, np.float64)[rows]
    rest, dropped = _larger_half(root)
    found = [
        np.exp(least_squares([each], labels, problem.n_classes, weights)[1])
        for each in (root, rest)
    ]
    moved = 0.5 * np.sum(np.abs(found[0] - found[1]), axis=1)
    left = float(problem.basis_map.error) * n_rows
    factor = np.sqrt(left / max(dropped, np.finfo(float).tiny))
    return float(min(1.0, factor * np.average(moved, weights=weights)))


def _larger_half(root: Root) -> tuple[Root, float]:
    """Return the root without the smaller half of its eigenvalues, and the sum of that half."""
    assert root.rotation is not None
    values, basis = root.factor
    order = np.argsort(values)
    small, large = order[: len(order) // 2], order[len(order) // 2 :]
    kept = root._replace(
        rotation=root.rotation[:, large], factor=Eigen(values[large], basis[:, large])
    )
    return kept, float(values[small].sum())
