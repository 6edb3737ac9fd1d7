"""A classification problem made ready for sampling: checked, encoded and factored once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bmsvm import kernels
from bmsvm._validation import check_choice, check_count, check_row_weights, check_rows_and_labels
from bmsvm.kernels import Factor, KernelFn
from bmsvm.models.couplings import COUPLINGS, n_columns
from bmsvm.models.hyperparameters import PAPER, Hyperparameters
from bmsvm.models.likelihoods import LIKELIHOODS

__all__ = ["Design", "KernelGrid", "Problem", "prepare"]


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


class KernelGrid(NamedTuple):
    """Values of the kernel parameter theta, each with the Gram matrix factored once.

    values
        theta, shape (G,), increasing.
    log_prior
        Log prior weight of each, shape (G,), up to a constant.
    factors
        The factors, with a leading axis of G.
    masked
        The designs of the ``independent`` coupling, with a leading axis of G.
    """

    values: jax.Array
    log_prior: jax.Array
    factors: Factor
    masked: Design | None


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
    grid: KernelGrid | None = None
    """Where theta is sampled: its values. ``factor`` and ``masked`` are then those of one value."""
    row_weights: jax.Array | None = None
    """Weight of each row's log likelihood, shape (n,); None where all are one."""

    def at(self, kernel: jax.Array | None) -> Problem:
        """Return the problem at value number ``kernel`` of theta; itself where theta is fixed."""
        if self.grid is None or kernel is None:
            return self
        factor, masked = jax.tree.map(
            lambda leaf: leaf[kernel], (self.grid.factors, self.grid.masked)
        )
        return replace(self, factor=factor, masked=masked)

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


def _with_spare_rows(factor: Factor, count: int) -> Factor:
    """Factor of ``K`` with rows and columns of zeros added; a complete basis stays complete."""
    basis, eigenvalues = (np.asarray(part) for part in factor)
    n, r = basis.shape
    if count == 0:
        return factor
    if r < n:
        return Factor(cast(jax.Array, np.pad(basis, ((0, count), (0, 0)))), factor.eigenvalues)
    wider = np.pad(basis, ((0, count), (0, count)))
    wider[n:, n:] = np.eye(count)
    return Factor(cast(jax.Array, wider), cast(jax.Array, np.pad(eigenvalues, (0, count))))


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
    return Design(*(cast(jax.Array, part) for part in parts))


LENGTHSCALE_BOUNDS = (0.1, 200.0)
"""Support of theta's prior, section 5."""

GRID_SIZE = 64
GRID_BYTES = 2**31
"""The most that the factors of a grid may take."""

LENGTHSCALE_PRIORS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": np.log,  # a cell of a log grid is as wide as its value
    "log-uniform": np.zeros_like,
}
"""Log prior weight of the values of a log grid."""


def _lengthscale_grid(
    values: ArrayLike | None, prior: str, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values of theta, shape (G,), and their log prior weights."""
    check_choice("lengthscale_prior", prior, LENGTHSCALE_PRIORS)
    if values is None:
        grid = np.geomspace(*LENGTHSCALE_BOUNDS, GRID_SIZE)
    else:
        grid = np.asarray(values)
        numbers = grid.ndim == 1 and grid.size >= 2 and grid.dtype.kind in "fiu"
        if not numbers or not np.all(np.isfinite(grid) & (grid > 0)) or np.any(np.diff(grid) <= 0):
            raise ValueError(
                "lengthscale_grid must be two or more positive numbers, increasing, evenly spaced "
                f"on a log scale such as numpy.geomspace(0.1, 200, 64); got {values!r}"
            )
        grid = grid.astype(np.float64)
        steps = np.diff(np.log(grid))
        if steps.max() > 1.001 * steps.min():
            raise ValueError(
                "lengthscale_grid must be evenly spaced on a log scale, as numpy.geomspace makes "
                f"it; its ratios go from {np.exp(steps.min()):.4g} to {np.exp(steps.max()):.4g}"
            )
    if grid.size * len(rows) ** 2 * 8 > GRID_BYTES:
        room = GRID_BYTES // (8 * len(rows) ** 2)
        raise ValueError(
            f"lengthscale_grid: {grid.size} factors of {len(rows)} rows do not fit into "
            f"{GRID_BYTES / 2**30:.0f} GiB; pass a grid of at most {room} values"
        )
    return grid, LENGTHSCALE_PRIORS[prior](grid)


def prepare(
    X: ArrayLike,
    y: ArrayLike,
    *,
    kernel: KernelFn | str = "gaussian",
    lengthscale: ArrayLike | Literal["sample"] = 1.0,
    lengthscale_prior: str = "uniform",
    lengthscale_grid: ArrayLike | None = None,
    coupling: str = "sum_to_zero",
    likelihood: str = "hinge",
    hyperparameters: Hyperparameters = PAPER,
    row_weights: ArrayLike | None = None,
    spare_rows: int = 0,
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
        theta of the stationary kernels named by a string: a number, or one per feature; or
        ``"sample"``, to make it a parameter on a grid.
    lengthscale_prior
        ``"uniform"``, the paper's, or ``"log-uniform"``; over the span of the grid.
    lengthscale_grid
        Values of theta, shape (G,), evenly spaced on a log scale. Default: 64 values from 0.1 to
        200, the paper's bounds.
    coupling
        ``"sum_to_zero"`` or ``"independent"``.
    likelihood
        ``"hinge"`` (11), ``"normalized"`` (21), or ``"probit"``.
    hyperparameters
        Constants of the priors.
    row_weights
        Weight of each row's log likelihood, shape (n,), not negative: a weight of 0 takes the label
        of the row out of the model. A weight of 2 is not a row that occurs twice, which would have
        two scores. Under ``probit``, whose log likelihood is 0 or minus infinity, 0 or 1.
    spare_rows
        Rows of weight 0, and of kernel values 0 with all others, to add at the end. They change
        nothing but the number of rows: data of different sizes then share one program.

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
    weights = None if row_weights is None else check_row_weights(row_weights, len(rows))
    if weights is not None and likelihood == "probit" and not np.all(np.isin(weights, (0, 1))):
        bad = int(np.flatnonzero(~np.isin(weights, (0, 1)))[0])
        raise ValueError(
            'row_weights must be 0 or 1 with likelihood="probit", whose log likelihood is 0 or '
            f"minus infinity; got row_weights[{bad}] = {weights[bad]}"
        )
    check_count("spare_rows", spare_rows, smallest=0)
    if spare_rows:
        weights = np.append(np.ones(len(rows)) if weights is None else weights, [0.0] * spare_rows)
        labels = np.append(labels, [0] * spare_rows)
    name = "X" if precomputed else "kernel"
    sampled = isinstance(lengthscale, str)
    if sampled:
        if lengthscale != "sample":
            raise ValueError(
                "lengthscale must be a positive number, one positive number per feature, or "
                f'"sample"; got {lengthscale!r}'
            )
        if not isinstance(kernel, str) or kernel not in kernels.STATIONARY:
            raise ValueError(
                f'lengthscale="sample" needs a kernel that has one: kernel must be one of '
                f"{', '.join(map(repr, kernels.STATIONARY))}; got {kernel!r}"
            )
        values, log_prior = _lengthscale_grid(lengthscale_grid, lengthscale_prior, rows)

    def factored(theta):
        factor = kernels.factorize(
            kernels.gram_of(kernel, rows, theta), name=name, complete=sampled
        )
        factor = _with_spare_rows(factor, spare_rows)
        independent = coupling == "independent"
        return factor, _masked_design(factor, labels, len(classes)) if independent else None

    # On the host, and in float64: the grid is stacked before it is given to JAX.
    each = [factored(theta) for theta in (values if sampled else [lengthscale])]
    grid = None
    if sampled:
        factors, masked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *each)
        grid = KernelGrid(jnp.asarray(values), jnp.asarray(log_prior), factors, masked)
    factor, masked = each[len(each) // 2]
    return Problem(
        labels=jnp.asarray(labels, jnp.int32),
        factor=jax.tree.map(jnp.asarray, factor),
        masked=jax.tree.map(jnp.asarray, masked),
        hyper=jax.tree.map(lambda value: jnp.asarray(float(value)), hyperparameters),
        n_classes=len(classes),
        coupling=coupling,
        likelihood=likelihood,
        grid=grid,
        row_weights=None if weights is None else jnp.asarray(weights),
    )
