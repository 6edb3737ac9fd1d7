"""The lengthscale under which least squares predict rows left out best, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_count, check_row_weights, check_rows_and_labels
from bmsvm.kernels.functions import Kernel
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.prediction.squares import judge
from bmsvm.selection.base import Method, Selection, check_stationary, representative_rows
from bmsvm.selection.kernel import candidates_of

__all__ = ["SquaresCV"]


@dataclass(frozen=True)
class SquaresCV(Method):
    """Choose theta by how well least squares predict each row without its label.

    Each pair (theta, tau) of a grid is scored as in :mod:`bmsvm.prediction.squares`. The result is
    the mean of log theta with these weights. Unlike the evidence it asks for predictions only, and
    finds smoother functions where the prior is rougher than the truth.

    Parameters
    ----------
    max_rows
        Largest number of rows to use, chosen at random with the share of each class.
    """

    max_rows: int = 512

    def __post_init__(self) -> None:
        check_count("max_rows", self.max_rows, smallest=2)

    def select(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rng_key: jax.Array | None = None,
        kernel: Kernel | str = "auto",
        coupling: str = "sum_to_zero",
        likelihood: str = "squared",
        hyperparameters: Hyperparameters = DEFAULT,
        row_weights: ArrayLike | None = None,
    ) -> Selection:
        """Choose a lengthscale for rows X (n, p) and labels y (n,); see :class:`Method`."""
        candidates = candidates_of(kernel)
        for each in candidates:
            self.check_model(each, coupling, likelihood)
        rows, classes, labels = check_rows_and_labels(X, y)
        weights = np.ones(len(rows))
        if row_weights is not None:
            weights = check_row_weights(row_weights, len(rows))
        rows, labels, weights = rows[weights > 0], labels[weights > 0], weights[weights > 0]
        if len(labels) > self.max_rows:
            chosen = representative_rows(labels, self.max_rows, np.random.default_rng(0))
            rows, labels, weights = rows[chosen], labels[chosen], weights[chosen]
        data = (labels, len(classes), weights)
        judged = [judge(rows, check_stationary("SquaresCV", each), *data) for each in candidates]
        best = int(np.argmax([each.score for each in judged]))
        return Selection(
            kernel=candidates[best],
            lengthscale=judged[best].lengthscale,
            hyperparameters=hyperparameters,
            num_rows=len(labels),
        )
