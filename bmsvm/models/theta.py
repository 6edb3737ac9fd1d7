"""Sampled kernel parameters theta, on a grid or off it.

On a grid every Gram matrix is factored once, before sampling, and theta is an index of the grid.
Off it theta is any pytree with a prior, and each proposal factors a Gram matrix. The rest of the
sampler treats both alike: :meth:`bmsvm.models.Problem.at` returns the problem at a value of theta.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from bmsvm._validation import check_bounds, check_choice, check_count, check_flag
from bmsvm.kernels.factor import Factor
from bmsvm.kernels.functions import KernelFn, Stationary
from bmsvm.kernels.low_rank import BasisMap

BOUNDS = (0.1, 200.0)
"""Support of theta's prior, section 5."""

GRID_SIZES = (8, 64)
"""Smallest and largest size of a grid that is not given."""

GRID_BYTES = 2**31
"""Largest size of the factors of a grid."""

LENGTHSCALE_PRIORS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": np.log,  # a cell of a log grid is as wide as its value
    "log-uniform": np.zeros_like,
}
"""Log prior weight of the values of a log grid."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """A lengthscale that is sampled together with the other parameters.

    Parameters
    ----------
    prior
        ``"uniform"``, the paper's, or ``"log-uniform"``.
    bounds
        Support of the prior. Default: the paper's, 0.1 to 200.
    grid
        Values of theta, shape (G,), evenly spaced on a log scale, which are then the support of the
        prior. Their Gram matrices are factored once. ``"off"``: theta is continuous, and each
        proposal factors a Gram matrix. Default: 64 values over the bounds, or as many as fit into
        2 GiB; continuous if fewer than 8 fit.
    per_feature
        Whether there is a continuous lengthscale for each feature, shape (p,).
    every
        Sweeps between two proposals off the grid.
    """

    prior: str = "uniform"
    bounds: tuple[float, float] = BOUNDS
    grid: Any = None
    per_feature: bool = False
    every: int = 10

    def __post_init__(self) -> None:
        check_choice("prior", self.prior, LENGTHSCALE_PRIORS)
        check_bounds("bounds", self.bounds)
        check_count("every", self.every)
        check_flag("per_feature", self.per_feature)
        if self.grid is not None and not (isinstance(self.grid, str) and self.grid == "off"):
            _check_grid(self.grid)
            if self.per_feature:
                raise ValueError(
                    'per_feature needs grid to be None or "off": a grid has one lengthscale for '
                    "all features"
                )

    @property
    def off_grid(self) -> bool:
        """Whether theta is continuous by choice."""
        return self.per_feature or (isinstance(self.grid, str) and self.grid == "off")

    @property
    def given_grid(self) -> Any:
        """The values that were given, or None."""
        return None if self.grid is None or self.off_grid else self.grid


class Design(NamedTuple):
    """Designs of the columns, one for each group of columns that observe the same rows.

    ``sum_to_zero`` has one group of c - 1 columns, ``independent`` c groups of one column. The
    masked design of a group is ``Phi_g = U_g diag(sqrt(lambda_g)) W_g'``.

    basis
        U, shape (g, n, r), zero on rows the group does not observe.
    eigenvalues
        lambda, shape (g, r), of Phi_g Phi_g'.
    rotation
        W, shape (g, r, r), or None for the identity.
    mask
        1 where the group observes the row, shape (g, n).
    """

    basis: jax.Array
    eigenvalues: jax.Array
    rotation: jax.Array | None
    mask: jax.Array


def masked_design(factor: Factor, labels: Any, n_classes: int) -> Design:
    """Factor the rows each column observes: column j does not observe rows of class j, eq. (14).

    NumPy arrays stay in NumPy, and so in float64 whatever precision JAX is set to.
    """
    basis, eigenvalues = cast(Any, factor)
    xp: Any = np if isinstance(basis, np.ndarray) else jnp
    mask = (labels[None, :] != np.arange(n_classes)[:, None]).astype(basis.dtype)
    design = basis * xp.sqrt(eigenvalues)
    # Phi is n x r with r <= n, so the thin SVD of each masked design gives r columns.
    thin_svd = _thin_svd if xp is np else functools.partial(jnp.linalg.svd, full_matrices=False)
    u, d, wt = thin_svd(mask[:, :, None] * design)
    tolerance = d[:, :1] * max(design.shape) * xp.finfo(basis.dtype).eps
    d = xp.where(d > tolerance, d, 0.0)
    parts = xp.where(d[:, None, :] > 0, u, 0.0), d**2, xp.swapaxes(wt, 1, 2), mask
    return Design(*(cast(jax.Array, part) for part in parts))


def _thin_svd(matrices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Thin SVD of matrices (g, n, r); by LAPACK's slower gesvd where gesdd does not converge."""
    try:
        return tuple(np.linalg.svd(matrices, full_matrices=False))
    except np.linalg.LinAlgError:
        each = [scipy.linalg.svd(one, False, lapack_driver="gesvd") for one in matrices]
        return tuple(np.stack(part) for part in zip(*each, strict=True))


class KernelGrid(NamedTuple):
    """Values of the kernel parameter theta, each with the Gram matrix factored once.

    values
        theta, shape (G,), increasing.
    log_prior
        Log prior weight of each, shape (G,), up to a constant.
    start
        Index of the value at which chains begin.
    factors
        The factors, with a leading axis of G.
    masked
        The designs of the ``independent`` coupling, with a leading axis of G.
    basis_map, remainder
        As in :class:`bmsvm.models.Problem`, for factors of low rank, with a leading axis of G.
    """

    values: jax.Array
    log_prior: jax.Array
    start: jax.Array
    factors: Factor
    masked: Design | None
    basis_map: BasisMap | None = None
    remainder: jax.Array | None = None

    def index_of(self, lengthscales: ArrayLike) -> np.ndarray:
        """Find the values nearest to lengthscales (...): their indices, in NumPy."""
        return np.asarray(nearest_on_grid(np.asarray(lengthscales), np.asarray(self.values)))


class KernelPoint(NamedTuple):
    """A value of theta off the grid, with its factor.

    unconstrained
        Unconstrained parameters, a pytree like the prior.
    factor, masked
        As in :class:`bmsvm.models.Problem`.
    """

    unconstrained: Any
    factor: Factor
    masked: Design | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KernelFamily:
    """Kernels indexed by a pytree of parameters with a prior, at the training rows."""

    rows: jax.Array
    """Training rows, shape (n, p)."""
    prior: Any
    """Pytree of NumPyro distributions."""
    start: Any
    """Unconstrained parameters at which chains begin."""
    build: Callable[[Any], KernelFn] = field(metadata={"static": True})
    """From parameters to a kernel."""
    every: int = field(metadata={"static": True})
    """Sweeps between two proposals."""
    spare: int = field(metadata={"static": True})
    """Rows of kernel values zero with all others, which follow the training rows."""


def _check_grid(values: Any) -> np.ndarray:
    """Return given values of a grid, shape (G,), or raise ``ValueError``."""
    try:
        grid = np.asarray(values)
    except ValueError:  # ragged
        grid = np.asarray("")
    numbers = grid.ndim == 1 and grid.size >= 2 and grid.dtype.kind in "fiu"
    if not numbers or not np.all(np.isfinite(grid) & (grid > 0)) or np.any(np.diff(grid) <= 0):
        raise ValueError(
            'grid must be "off", or two or more positive numbers, increasing, evenly spaced on a '
            f"log scale such as numpy.geomspace(0.1, 200, 64); got {values!r}"
        )
    steps = np.diff(np.log(grid.astype(np.float64)))
    if steps.max() > 1.001 * steps.min():
        raise ValueError(
            "grid must be evenly spaced on a log scale, as numpy.geomspace makes it; its ratios go "
            f"from {np.exp(steps.min()):.4g} to {np.exp(steps.max()):.4g}"
        )
    return grid.astype(np.float64)


def make_grid(sampled: Sampled, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of theta, shape (G,), and their log prior weights; at most ``room`` of them."""
    if sampled.given_grid is None:
        grid = np.geomspace(*sampled.bounds, min(GRID_SIZES[1], room))
    else:
        grid = _check_grid(sampled.given_grid)
    return grid, LENGTHSCALE_PRIORS[sampled.prior](grid)


def is_sampled(lengthscale: Any) -> bool:
    """Whether a lengthscale, by name or as an object, is a parameter that is sampled."""
    named = isinstance(lengthscale, str) and lengthscale == "sample"
    return named or isinstance(lengthscale, Sampled)


def nearest_on_grid(lengthscales: Any, values: Any) -> Any:
    """Find the values (G,) of a grid nearest to lengthscales (...) on a log scale: their indices.

    NumPy arrays stay in NumPy.
    """
    xp = np if isinstance(lengthscales, np.ndarray) else jnp
    return xp.argmin(xp.abs(xp.log(lengthscales)[..., None] - xp.log(values)), axis=-1)


def room_for_grid(n_rows: int, n_bases: int) -> int:
    """Return how many factors of the rows fit into :data:`GRID_BYTES`."""
    return GRID_BYTES // (8 * n_rows**2 * n_bases)


def check_grid_fits(size: int, room: int, what: str, otherwise: str) -> None:
    """Raise ``ValueError`` unless the factors of a grid fit into :data:`GRID_BYTES`."""
    if size > room:
        raise ValueError(
            f"grid: {size} {what} do not fit into {GRID_BYTES / 2**30:.0f} GiB; pass a grid of at "
            f"most {room} values, or {otherwise}"
        )


def stacked_grid(
    values: np.ndarray, log_prior: np.ndarray, start: int, each: Sequence[tuple[Any, ...]]
) -> KernelGrid:
    """Stack the factors of all values of a grid, computed on the host, as JAX arrays."""
    stacked = jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *each))
    first = np.asarray(start)  # a Python integer would be of another type than moves
    return KernelGrid(*jax.device_put((values, log_prior, first)), *stacked)


@dataclass(frozen=True)
class KernelOfLengthscale:
    """The function from ``{"lengthscale": theta}`` to a kernel."""

    kernel: Stationary

    def __call__(self, parameters: Any) -> KernelFn:
        """Return the kernel at parameters."""
        return self.kernel.traced(parameters["lengthscale"])
