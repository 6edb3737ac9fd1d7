"""A classification problem made ready for sampling: checked, encoded and factored once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bmsvm import kernels
from bmsvm._validation import check_choice, check_rows_and_labels
from bmsvm.kernels import Factor, KernelFn
from bmsvm.models.couplings import COUPLINGS, n_columns
from bmsvm.models.hyperparameters import PAPER, Hyperparameters
from bmsvm.models.likelihoods import LIKELIHOODS

__all__ = ["Design", "Problem", "prepare"]


class Design(NamedTuple):
    """The regressions behind the columns, one per group of columns with the same rows.

    ``sum_to_zero`` has one group of c - 1 columns, ``independent`` c groups of one column. The
    masked design of a group is ``Phi_g = U_g diag(sqrt(lambda_g)) W_g'``.

    basis
        U, shape (g, n, r), zero on rows the group does not observe.
    eigenvalues
        lambda, shape (g, r), of Phi_g Phi_g'.
    rotation
        W, shape (g, r, r), or None where it is the identity.
    mask
        1 where the group observes the row, shape (g, n).
    """

    basis: jax.Array
    eigenvalues: jax.Array
    rotation: jax.Array | None
    mask: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """Everything the posterior depends on; a pytree, so that it is data and not a constant."""

    labels: jax.Array
    """Class index of each row, shape (n,)."""
    factor: Factor
    """K = U diag(lambda) U'."""
    masked: Design | None
    """The designs of the ``independent`` coupling; ``sum_to_zero`` shares ``factor``."""
    hyper: Hyperparameters
    n_classes: int = field(metadata={"static": True})
    coupling: str = field(metadata={"static": True})
    likelihood: str = field(metadata={"static": True})

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return self.labels.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of free columns k."""
        return n_columns(self.coupling, self.n_classes)

    @property
    def n_scores(self) -> int:
        """Number of free scores, n(c - 1): the size of the set S."""
        return self.n_rows * (self.n_classes - 1)

    @property
    def rank(self) -> jax.Array:
        """Numerical rank of K."""
        return jnp.sum(self.factor.eigenvalues > 0)

    @property
    def design(self) -> Design:
        """The regressions behind the columns, whatever the coupling."""
        if self.masked is not None:
            return self.masked
        basis, eigenvalues = self.factor
        mask = jnp.ones((1, self.n_rows), basis.dtype)
        return Design(basis[None], eigenvalues[None], None, mask)

    @property
    def spans(self) -> bool:
        """Whether the basis spans all rows, so that eigen-coordinates are coordinates."""
        return self.masked is None and self.factor.basis.shape[0] == self.factor.basis.shape[1]


def _masked_design(factor: Factor, labels: np.ndarray, n_classes: int) -> Design:
    """Factor the rows each column observes: column j never sees a row of class j, eq. (14)."""
    basis, eigenvalues = factor
    mask = (labels[None, :] != np.arange(n_classes)[:, None]).astype(float)
    design = basis * np.sqrt(eigenvalues)
    # Phi is n x r with r <= n, so the thin SVD of each masked design gives r columns.
    u, d, wt = np.linalg.svd(mask[:, :, None] * design, full_matrices=False)
    tolerance = d[:, :1] * max(design.shape) * np.finfo(float).eps
    d = np.where(d > tolerance, d, 0.0)
    parts = np.where(d[:, None, :] > 0, u, 0.0), d**2, np.swapaxes(wt, 1, 2), mask
    return Design(*(jnp.asarray(part) for part in parts))


def prepare(
    X: ArrayLike,
    y: ArrayLike,
    *,
    kernel: KernelFn | str = "gaussian",
    lengthscale: ArrayLike = 1.0,
    coupling: str = "sum_to_zero",
    likelihood: str = "hinge",
    hyperparameters: Hyperparameters = PAPER,
) -> Problem:
    """Check the data, encode the labels and factor the Gram matrix, before anything is compiled.

    Parameters
    ----------
    X
        Rows, shape (n, p); or the Gram matrix, shape (n, n), with ``kernel="precomputed"``.
    y
        Labels, shape (n,): anything that sorts. Classes are numbered in sorted order.
    kernel
        ``"gaussian"``, ``"matern32"``, ``"matern52"``, ``"linear"``, ``"precomputed"``, or a
        callable ``kernel(X1, X2) -> (n1, n2)`` such as a tinygp kernel.
    lengthscale
        theta of the stationary kernels named by a string: a number, or one per feature.
    coupling
        ``"sum_to_zero"`` or ``"independent"``.
    likelihood
        ``"hinge"`` (11), ``"normalized"`` (21), or ``"probit"``.
    hyperparameters
        Constants of the priors.

    Returns
    -------
    Problem
        Arrays in JAX's current default float type; the factorisation itself is float64.
    """
    check_choice("coupling", coupling, COUPLINGS)
    check_choice("likelihood", likelihood, LIKELIHOODS)
    if not isinstance(hyperparameters, Hyperparameters):
        raise ValueError(
            f"hyperparameters must be a bmsvm.Hyperparameters; got {hyperparameters!r}"
        )
    hyperparameters.validate()
    precomputed = isinstance(kernel, str) and kernel == "precomputed"
    rows, classes, labels = check_rows_and_labels(X, y, precomputed=precomputed)
    gram_matrix = kernels.gram_of(kernel, rows, lengthscale)
    factor = kernels.factorize(gram_matrix, name="X" if precomputed else "kernel")
    masked = None
    if coupling == "independent":
        masked = _masked_design(factor, labels, len(classes))
    return Problem(
        labels=jnp.asarray(labels, jnp.int32),
        factor=jax.tree.map(jnp.asarray, factor),
        masked=jax.tree.map(jnp.asarray, masked),
        hyper=jax.tree.map(lambda value: jnp.asarray(float(value)), hyperparameters),
        n_classes=len(classes),
        coupling=coupling,
        likelihood=likelihood,
    )
