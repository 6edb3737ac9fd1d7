"""Warning if a lengthscale does not suit the scales of the features."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from bmsvm.kernels.covariance import gram
from bmsvm.kernels.functions import (
    Kernel,
    Stationary,
    check_lengthscale,
    median_distance,
)

FEWEST_ROWS = 10
"""Smallest number of rows for which there is a warning."""

MOST_ROWS = 20_000
"""Largest number of rows for which nearest neighbours are searched."""

PROBED = 64
"""Number of rows whose kernel values with the others are computed."""

NEAR = 1e-3
"""A kernel value within this distance of 0 or 1 counts as near it."""

ALIKE = 3.0
"""Ratio of the features' deviations up to which standardising them would change little."""

ISOLATED = 0.1
"""A row whose kernel values with all others are below this is isolated."""


class KernelScales(NamedTuple):
    """Kernel values and feature scales of some rows.

    deviations
        Standard deviations of the features, shape (p,).
    near_zero, near_one
        Shares of kernel values of different rows within 0.001 of 0 and of 1; NaN if theta is not
        fixed.
    nearest
        Median over rows of the largest kernel value with another row; NaN if it is not known.
    largest_share
        Share of one feature in the mean squared distance of rows, the largest.
    """

    deviations: np.ndarray
    near_zero: float
    near_one: float
    nearest: float
    largest_share: float

    @property
    def problem(self) -> str | None:
        """What is wrong, in words; None if nothing is."""
        if self.near_zero > 0.9 and self.nearest < ISOLATED:
            return "rows are nearly independent of each other"
        if self.near_one > 0.99:
            return "all rows look alike"
        if self.largest_share > 0.99 and len(self.deviations) > 1:
            return "one feature determines nearly all distances"
        return None


def kernel_scales(rows: np.ndarray, kernel: Stationary, lengthscale: Any) -> KernelScales:
    """Measure kernel values and feature scales on some of the rows.

    Parameters
    ----------
    rows
        Rows (n, p).
    kernel, lengthscale
        The kernel and its theta; None if theta is not fixed.
    """
    if lengthscale is not None:
        check_lengthscale(lengthscale, rows.shape[1])
    n = rows.shape[0]
    random = np.random.default_rng(0)
    chosen = np.arange(n) if n <= MOST_ROWS else np.sort(random.choice(n, MOST_ROWS, replace=False))
    some = np.asarray(rows[chosen], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = some.std(axis=0)
        scaled = deviations / (1.0 if lengthscale is None else np.asarray(lengthscale, float))
        squares = (scaled / max(scaled.max(), 1e-300)) ** 2
        share = float(squares.max() / squares.sum()) if squares.any() else 0.0
    if lengthscale is None:
        return KernelScales(deviations, np.nan, np.nan, np.nan, share)
    probes = np.sort(random.choice(len(some), min(PROBED, len(some)), replace=False))
    values = np.array(gram(kernel.at(lengthscale), some[probes], some), np.float64)
    itself = np.arange(len(probes)), probes
    values[itself] = -np.inf
    nearest = float(np.median(values.max(axis=1))) if n <= MOST_ROWS else np.nan
    count = values.size - len(probes)
    values[itself] = np.nan
    with np.errstate(invalid="ignore"):
        zero, one = np.sum(values < NEAR) / count, np.sum(values > 1 - NEAR) / count
    return KernelScales(deviations, float(zero), float(one), nearest, share)


def warn_of_scales(
    rows: np.ndarray, kernel: Kernel, lengthscale: Any, *, stacklevel: int = 2
) -> None:
    """Warn if nearly all kernel values are 0 or 1, or one feature determines the distances.

    Parameters
    ----------
    rows
        Rows (n, p).
    kernel, lengthscale
        The kernel and its theta; None if theta is not fixed.
    stacklevel
        As in ``warnings.warn``.
    """
    if not isinstance(kernel, Stationary) or rows.shape[0] < FEWEST_ROWS:
        return
    if np.all(rows == rows[0]):
        warnings.warn(
            "X: all features are constant, so that rows cannot be told apart: predictions follow "
            "the frequencies of the classes at best",
            stacklevel=stacklevel + 1,
        )
        return
    found = kernel_scales(rows, kernel, lengthscale)
    if found.problem is None:
        return
    low, high = found.deviations.min(), found.deviations.max()
    seen = f"features have standard deviations from {low:.3g} to {high:.3g}"
    if lengthscale is not None:
        theta = np.asarray(lengthscale, float)
        shown = (
            f"{theta.item():.3g}" if theta.size == 1 else f"{theta.min():.3g} to {theta.max():.3g}"
        )
        seen += (
            f", the lengthscale is {shown}, and of the kernel values of different rows "
            f"{found.near_zero:.0%} are near 0 and {found.near_one:.0%} near 1"
        )
    if lengthscale is not None and high <= ALIKE * low:
        typical = median_distance(rows, kernel)
        advice = f"Give a lengthscale near the median distance between rows, {typical:.3g}"
    else:
        advice = 'Standardise the features, X = bmsvm.scaling.learn(X, "robust").apply(X)'
        if lengthscale is not None:
            advice += ", and give a lengthscale near the median distance between these rows"
        advice += "; or give one lengthscale for each feature, near its standard deviation"
    warnings.warn(
        f"X and lengthscale: {found.problem}: {seen}. {advice}", stacklevel=stacklevel + 1
    )
