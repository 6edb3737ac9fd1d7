"""Choice of the kernel under which least squares predict left-out rows best.

A Gaussian kernel suits functions that are smooth in all features together, a Laplacian kernel
functions that may bend sharply in single features. On many data sets one of them predicts much
better than the other. Leave-one-out of least squares, in closed form, finds which
(:mod:`bmsvm.prediction.squares`).
"""

from __future__ import annotations

import numpy as np

from bmsvm.kernels.functions import Gaussian, Kernel, KernelFn, Laplacian, Stationary, as_kernel
from bmsvm.prediction.squares import judge

CANDIDATES: tuple[Stationary, ...] = (Gaussian(), Laplacian())
"""Kernels that ``kernel="auto"`` chooses from."""


def candidates_of(kernel: Kernel | KernelFn | str) -> tuple[Kernel, ...]:
    """Return the kernels to choose from: those of ``"auto"``, or the one that is given."""
    if isinstance(kernel, str) and kernel == "auto":
        return CANDIDATES
    return (as_kernel(kernel),)


def best_kernel(
    candidates: tuple[Kernel, ...],
    rows: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    weights: np.ndarray,
) -> Kernel:
    """Return the kernel with the best score (:func:`bmsvm.prediction.squares.judge`).

    Parameters
    ----------
    candidates
        Stationary kernels. A single candidate, of any kind, is returned without a comparison.
    rows, labels, n_classes, weights
        Rows (n, p), their class indices and weights (n,), and the number of classes.
    """
    if len(candidates) == 1:
        return candidates[0]
    data = (labels, n_classes, weights)
    scores = [judge(rows, each, *data).score for each in candidates if isinstance(each, Stationary)]
    return candidates[int(np.argmax(scores))]
