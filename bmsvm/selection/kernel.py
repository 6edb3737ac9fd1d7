"""Choice of the kernel, and of theta, under which least squares predict left-out rows best.

A Gaussian kernel suits functions that are smooth in all features together, a Laplacian kernel
functions that may bend sharply in single features. On many data sets one of them predicts much
better than the other. Leave-one-out of least squares, in closed form, finds which
(:mod:`bmsvm.prediction.squares`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bmsvm.kernels.functions import Gaussian, Kernel, KernelFn, Laplacian, Stationary, as_kernel
from bmsvm.prediction.squares import SMALLEST_SHARE, judge

CANDIDATES: tuple[Stationary, ...] = (Gaussian(), Laplacian())
"""Kernels that ``kernel="auto"`` chooses from."""


def candidates_of(kernel: Kernel | KernelFn | str) -> tuple[Kernel, ...]:
    """Return the kernels to choose from: those of ``"auto"``, or the one that is given."""
    if isinstance(kernel, str) and kernel == "auto":
        return CANDIDATES
    return (as_kernel(kernel),)


class Choice(NamedTuple):
    """What least squares say of kernels.

    kernel, lengthscale
        The best kernel, and its theta, averaged over a grid.
    pairs
        Kernels and lengthscales whose predictions count: their weight is not a negligible part of
        that of the best pair. They are pooled when the draws are calibrated.
    """

    kernel: Stationary
    lengthscale: float
    pairs: tuple[tuple[Kernel, float], ...]


def best_kernel(
    candidates: Sequence[Stationary],
    rows: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    weights: np.ndarray,
) -> Choice:
    """Compare kernels by their scores (:func:`bmsvm.prediction.squares.judge`).

    Parameters
    ----------
    candidates
        The kernels.
    rows, labels, n_classes, weights
        Rows (n, p), their class indices and weights (n,), and the number of classes.
    """
    judged = [judge(rows, each, labels, n_classes, weights) for each in candidates]
    best = int(np.argmax([each.score for each in judged]))
    least = max(each.scores.max() for each in judged) + np.log(SMALLEST_SHARE)
    pairs = tuple(
        (kernel, float(theta))
        for kernel, found in zip(candidates, judged, strict=True)
        for theta in found.grid[found.scores >= least]
    )
    return Choice(candidates[best], judged[best].lengthscale, pairs)
