"""The lengthscale under which least squares predict rows left out best, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_count
from bmsvm.kernels.functions import Kernel, as_kernel, median_distance
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.prediction.squares import best_lengthscale
from bmsvm.selection.base import Method, Selection, generator_of, rows_to_use

__all__ = ["SquaresCV", "lengthscale_grid"]

VALUES = 25
"""Number of lengthscales of :func:`lengthscale_grid`."""


def lengthscale_grid(rows: np.ndarray) -> np.ndarray:
    """Return values from 1/16 of the median distance of rows (n, p) to 16 times it, shape (G,)."""
    return median_distance(rows) * np.geomspace(1 / 16, 16, VALUES)


@dataclass(frozen=True)
class SquaresCV(Method):
    """Choose theta by how well least squares predict each row without its label.

    For any likelihood and coupling: the result depends on the kernel and the data alone. Each pair
    (theta, tau) of a grid is scored by predictions of rows left out, in closed form
    (:mod:`bmsvm.prediction.squares`), and the result is the mean of log theta with weights
    proportional to the exponential of the scores. No chain is run, and tau keeps its prior.

    Parameters
    ----------
    max_rows
        Largest number of rows to use. Of more, so many are chosen at random, the classes in
        proportion. None: all.
    """

    max_rows: int | None = 1024

    def __post_init__(self) -> None:
        if self.max_rows is not None:
            check_count("max_rows", self.max_rows, smallest=2)

    def select(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rng_key: jax.Array | None = None,
        kernel: Kernel | str = "gaussian",
        coupling: str = "sum_to_zero",
        likelihood: str = "normalized",
        hyperparameters: Hyperparameters = DEFAULT,
        row_weights: ArrayLike | None = None,
    ) -> Selection:
        """Return theta, with the hyperparameters as given."""
        covariance = as_kernel(kernel)
        self.check_model(covariance, coupling, likelihood)
        rng = generator_of(rng_key)
        rows, labels, weights, n_classes = rows_to_use(X, y, row_weights, self.max_rows, rng)
        theta = best_lengthscale(rows, covariance, labels, n_classes, weights)
        return Selection(theta, hyperparameters, len(labels))
