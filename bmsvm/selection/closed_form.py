"""The lengthscale of largest evidence under the squared likelihood, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_count
from bmsvm.inference.table import PosteriorTable
from bmsvm.kernels.functions import Kernel, as_kernel, median_distance
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.models.prepare import prepare
from bmsvm.models.theta import Sampled
from bmsvm.selection.base import Method, Selection, check_stationary, representative_rows

__all__ = ["ClosedFormEvidence", "lengthscale_grid"]

VALUES = 25
"""Number of lengthscales of the default grid."""

STEP = 1.0
"""Distance of points of the table, in standard deviations; see :mod:`bmsvm.inference.table`."""


def lengthscale_grid(rows: np.ndarray) -> np.ndarray:
    """Return values from 1/16 of the median distance of rows (n, p) to 16 times it, shape (G,)."""
    return median_distance(rows) * np.geomspace(1 / 16, 16, VALUES)


@dataclass(frozen=True)
class ClosedFormEvidence(Method):
    """The lengthscale on a grid whose marginal likelihood is largest, under ``squared``.

    Weights, intercept and scores are integrated out in closed form, tau and sigma2 by a table.

    Parameters
    ----------
    max_rows
        Largest number of rows to use, chosen at random with the share of each class.
    """

    max_rows: int = 1024

    def __post_init__(self) -> None:
        check_count("max_rows", self.max_rows, smallest=2)

    def check_model(self, kernel: Kernel, coupling: str, likelihood: str) -> None:
        """Raise ``ValueError`` unless the evidence of the model is known in closed form."""
        check_stationary(type(self).__name__, kernel)
        for name, got, needed in (
            ("likelihood", likelihood, "squared"),
            ("coupling", coupling, "sum_to_zero"),
        ):
            if got != needed:
                raise ValueError(
                    f'lengthscale=ClosedFormEvidence() needs {name}="{needed}"; got {got!r}'
                )

    def select(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rng_key: jax.Array | None = None,
        kernel: Kernel | str = "gaussian",
        coupling: str = "sum_to_zero",
        likelihood: str = "squared",
        hyperparameters: Hyperparameters = DEFAULT,
        row_weights: ArrayLike | None = None,
    ) -> Selection:
        """Choose a lengthscale for rows X (n, p) and labels y (n,); see :class:`Method`."""
        self.check_model(as_kernel(kernel), coupling, likelihood)
        rows, labels = np.asarray(X, np.float64), np.asarray(y)
        weights = None if row_weights is None else np.asarray(row_weights)
        if len(labels) > self.max_rows:
            chosen = representative_rows(labels, self.max_rows, np.random.default_rng(0))
            rows, labels = rows[chosen], labels[chosen]
            weights = None if weights is None else weights[chosen]
        grid = lengthscale_grid(rows)
        with jax.enable_x64(True):
            problem = prepare(
                rows,
                labels,
                kernel=kernel,
                lengthscale=Sampled(prior="log-uniform", grid=grid),
                likelihood=likelihood,
                hyperparameters=hyperparameters,
                row_weights=weights,
            )
            best = int(np.argmax(PosteriorTable(problem, step=STEP).log_evidence))
        return Selection(float(grid[best]), hyperparameters, len(labels))
