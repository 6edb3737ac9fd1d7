"""Choice of the lengthscale by leave-one-out of least squares, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bmsvm._validation import check_count
from bmsvm.kernels.functions import Kernel
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.selection.base import Chosen, Method, Selection, check_stationary
from bmsvm.selection.kernel import best_kernel

__all__ = ["SquaresCV"]


@dataclass(frozen=True)
class SquaresCV(Method):
    """Choose theta by how well least squares predict each row without its label.

    For any likelihood and coupling: the result depends only on the kernel and the data. Each pair
    (theta, tau) of a grid is scored by predictions of left-out rows, in closed form
    (:mod:`bmsvm.prediction.squares`). The result is the mean of log theta, weighted by the
    exponentials of the scores. No chain is run, and tau keeps its prior.

    Parameters
    ----------
    max_rows
        Largest number of rows to use. If there are more, a stratified random sample is used.
        None: all.
    """

    max_rows: int | None = 512

    def __post_init__(self) -> None:
        if self.max_rows is not None:
            check_count("max_rows", self.max_rows, smallest=2)

    def choose(
        self,
        data: Chosen,
        candidates: tuple[Kernel, ...],
        hyperparameters: Hyperparameters,
        rng: np.random.Generator,
    ) -> Selection:
        """Return theta, with the hyperparameters as given."""
        rows, labels, weights, n_classes = data
        stationary = [check_stationary("SquaresCV", each) for each in candidates]
        found = best_kernel(stationary, rows, labels, n_classes, weights)
        return Selection(
            kernel=found.kernel,
            lengthscale=found.lengthscale,
            hyperparameters=hyperparameters,
            num_rows=len(labels),
            pairs=found.pairs,
        )
