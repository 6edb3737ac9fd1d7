"""Base classes and helpers of the methods that choose a lengthscale."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import check_count, check_row_weights, check_rows_and_labels
from bmsvm.kernels.functions import Kernel, Stationary
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.selection.kernel import candidates_of


@dataclass(frozen=True)
class Selection:
    """The kernel, lengthscale and priors chosen from the data."""

    kernel: Kernel
    """The kernel, given or chosen."""
    lengthscale: Any
    """theta: a number, or an array."""
    hyperparameters: Hyperparameters
    """Priors for the chains: those that were given; if tau was chosen, with a prior around it."""
    num_rows: int
    """Number of rows that were used."""
    pairs: tuple[tuple[Kernel, float], ...] = field(default=(), kw_only=True)
    """Kernels and lengthscales of the least squares that are pooled with chains
    (:class:`bmsvm.selection.kernel.Choice`). Empty: this kernel, at several lengthscales."""


class Method:
    """Base of the methods that choose a lengthscale from the data before sampling."""

    max_rows: int | None
    """Largest number of rows to use; None: all."""

    def check_model(self, kernel: Kernel, coupling: str, likelihood: str) -> None:
        """Raise ``ValueError`` if the method cannot choose a lengthscale for this model."""
        check_stationary(type(self).__name__, kernel)

    def select(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rng_key: jax.Array | None = None,
        kernel: Kernel | str = "auto",
        coupling: str = "sum_to_zero",
        likelihood: str = "normalized",
        hyperparameters: Hyperparameters = DEFAULT,
        row_weights: ArrayLike | None = None,
    ) -> Selection:
        """Choose a lengthscale for rows X (n, p) and labels y (n,).

        Parameters
        ----------
        X, y
            Rows and labels.
        rng_key
            Random key. Default: ``jax.random.key(0)``.
        kernel
            The kernel; ``"auto"``: Gaussian or Laplacian (:mod:`bmsvm.selection.kernel`).
        coupling, likelihood, hyperparameters, row_weights
            The rest of the model; see :func:`bmsvm.prepare`.
        """
        candidates = candidates_of(kernel)
        for each in candidates:
            self.check_model(each, coupling, likelihood)
        hyperparameters.validate()
        rng = generator_of(rng_key)
        data = rows_to_use(X, y, row_weights, self.max_rows, rng)
        return self.choose(data, candidates, hyperparameters, rng)

    def choose(
        self,
        data: Chosen,
        candidates: tuple[Kernel, ...],
        hyperparameters: Hyperparameters,
        rng: np.random.Generator,
    ) -> Selection:
        """Choose one of the candidate kernels and its lengthscale, from checked rows.

        Parameters
        ----------
        data
            The rows.
        candidates
            Kernels to choose from.
        hyperparameters
            Priors, which the method may change.
        rng
            Source of randomness.
        """
        raise NotImplementedError


def check_stationary(name: str, kernel: Kernel) -> Stationary:
    """Return a kernel that has a lengthscale, or raise ``ValueError``."""
    if not isinstance(kernel, Stationary):
        raise ValueError(
            f"lengthscale={name}() needs a kernel that has one, such as Gaussian or Laplacian; "
            f"got kernel {kernel}"
        )
    return kernel


class Chosen(NamedTuple):
    """Selected rows (m, p), class indices (m,), weights (m,), and the number of classes."""

    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    n_classes: int


def rows_to_use(
    X: ArrayLike,
    y: ArrayLike,
    row_weights: ArrayLike | None,
    max_rows: int | None,
    rng: np.random.Generator,
) -> Chosen:
    """Check the data, and choose at most ``max_rows`` of the rows of positive weight."""
    rows, classes, labels = check_rows_and_labels(X, y)
    weights = np.ones(len(rows))
    if row_weights is not None:
        weights = check_row_weights(row_weights, len(rows))
    kept = np.flatnonzero(weights > 0)
    if max_rows is not None and max_rows < len(kept):
        check_count("max_rows", max_rows, smallest=len(classes))
        kept = kept[representative_rows(labels[kept], max_rows, rng)]
    used = np.asarray(rows[kept], np.float64)
    return Chosen(used, labels[kept], weights[kept], len(classes))


def generator_of(rng_key: jax.Array | None) -> np.random.Generator:
    """Return NumPy's generator with the seed of a key; None: that of ``jax.random.key(0)``."""
    key = jax.random.key(0) if rng_key is None else rng_key
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())


def representative_rows(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Choose rows at random, as many of each class as its share, and at least one.

    Parameters
    ----------
    labels
        Class of each row, shape (n,).
    count
        Number of rows, from the number of classes to n.
    rng
        Source of randomness.

    Returns
    -------
    ndarray of int, shape (count,)
        Indices of the rows, increasing.
    """
    # Rank of a row in a random order of its class: each class has one row at 0.
    place = np.empty(len(labels))
    for label in np.unique(labels):
        mine = rng.permutation(np.flatnonzero(labels == label))
        place[mine] = np.arange(len(mine)) / len(mine)
    return np.sort(np.argsort(place, kind="stable")[:count])
