"""From rows and labels to a :class:`Problem`: check, encode the labels, factor the Gram matrix."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.typing import ArrayLike

from bmsvm._validation import (
    check_choice,
    check_count,
    check_flag,
    check_row_weights,
    check_rows_and_labels,
)
from bmsvm.kernels.covariance import gram
from bmsvm.kernels.factor import Factor, factorize
from bmsvm.kernels.functions import (
    Kernel,
    KernelFn,
    Parametric,
    Precomputed,
    Stationary,
    as_kernel,
    check_lengthscale,
    gram_of,
    median_distance,
)
from bmsvm.kernels.low_rank import (
    Approximation,
    BasisMap,
    basis_maps_on_grid,
    build_basis_map,
    low_rank_factor,
)
from bmsvm.kernels.scales import warn_of_scales
from bmsvm.models.couplings import COUPLINGS
from bmsvm.models.family import constrained, kernel_family, lengthscale_family
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.models.problem import Problem, with_spare_rows
from bmsvm.models.theta import (
    GRID_BYTES,
    GRID_SIZES,
    Design,
    KernelFamily,
    KernelGrid,
    Sampled,
    check_grid_fits,
    make_grid,
    masked_design,
    nearest_on_grid,
    room_for_grid,
    stacked_grid,
)

MOST_SPARE_ROWS = 1 << 16
"""Largest number of spare rows."""


def chooses_lengthscale(lengthscale: Any) -> bool:
    """Whether it is an object that chooses a lengthscale from data, such as ``bmsvm.ModeCV()``."""
    return hasattr(lengthscale, "check_model")  # as each ``bmsvm.selection.Method`` has


def as_lengthscale(lengthscale: Any, kernel: Kernel) -> Any:
    """Return a lengthscale as a number, an array or a :class:`Sampled`.

    None for a kernel without a lengthscale, which ignores a number that is given.

    Raises
    ------
    ValueError
        If the kernel has a lengthscale and none is given, or if it has none to sample.
    """
    if isinstance(lengthscale, str) and lengthscale == "sample":
        lengthscale = Sampled()
    if isinstance(lengthscale, str) or chooses_lengthscale(lengthscale):
        raise ValueError(
            'lengthscale must be a positive number, one per feature, or "sample"; got '
            f"{lengthscale!r}: bmsvm.ModeCV().select(X, y) chooses one from the data"
        )
    if not isinstance(kernel, Stationary):
        if isinstance(lengthscale, Sampled):
            raise ValueError(
                "lengthscale can be sampled only with a kernel that has one, such as Gaussian or "
                f"Laplacian; got kernel {kernel}"
            )
        return None
    if lengthscale is None:
        raise ValueError(
            f"lengthscale must be given for the kernel {kernel}: a positive number in the units of "
            "the rows, one per feature, or bmsvm.Sampled(); bmsvm.ModeCV().select(X, y) chooses "
            "one from the data"
        )
    return lengthscale if isinstance(lengthscale, Sampled) else check_lengthscale(lengthscale)


class _Factored(NamedTuple):
    """What depends on the kernel; fields as in :class:`Problem`."""

    factor: Factor
    masked: Design | None
    grid: KernelGrid | None = None
    family: KernelFamily | None = None
    basis_map: BasisMap | None = None
    remainder: np.ndarray | None = None


class _Data(NamedTuple):
    """Checked rows, class indices (spare rows included) and what is needed to factor them."""

    rows: np.ndarray
    labels: np.ndarray
    n_classes: int
    coupling: str
    spare: int
    name: str

    def factored(self, matrix: np.ndarray, *, complete: bool = True) -> _Factored:
        """Factor a Gram matrix (n, n) of the rows."""
        factor = factorize(matrix, name=self.name, complete=complete)
        factor = with_spare_rows(factor, self.spare)
        if self.coupling != "independent":
            return _Factored(factor, None)
        return _Factored(factor, masked_design(factor, self.labels, self.n_classes))


def prepare(
    X: ArrayLike,
    y: ArrayLike,
    *,
    kernel: Kernel | KernelFn | str = "gaussian",
    lengthscale: ArrayLike | Sampled | str | None = None,
    coupling: str = "sum_to_zero",
    likelihood: str = "normalized",
    hyperparameters: Hyperparameters = DEFAULT,
    row_weights: ArrayLike | None = None,
    spare_rows: int = 0,
    approximation: Approximation | None = None,
    warn: bool = True,
) -> Problem:
    """Check the data, encode the labels and factor the Gram matrix, before anything is compiled.

    Parameters
    ----------
    X
        Rows, shape (n, p); or the Gram matrix, shape (n, n), with ``kernel="precomputed"``.
    y
        Labels, shape (n,): anything that sorts. Classes are numbered in sorted order.
    kernel
        ``"gaussian"`` (or ``"rbf"``), ``"laplacian"``, ``"matern32"``, ``"matern52"``,
        ``"linear"``, ``"poly"``, ``"precomputed"``; an object of :mod:`bmsvm.kernels`, such as
        :class:`bmsvm.kernels.Parametric`, whose parameters are sampled; or a callable
        ``kernel(X1, X2) -> (n1, n2)`` such as a tinygp kernel.
    lengthscale
        theta of a stationary kernel, in the units of the rows: a number, one per feature, or
        :class:`bmsvm.Sampled` (``"sample"``), which makes it a parameter.
    coupling
        ``"sum_to_zero"`` or ``"independent"``.
    likelihood
        ``"normalized"`` (21), ``"hinge"`` (11) or ``"squared"``.
    hyperparameters
        Constants of the priors.
    row_weights
        Weight of each row's log likelihood, shape (n,), not negative. A weight of 0 removes the
        label of the row from the model. A weight of 2 differs from a row that occurs twice, which
        would have two sets of scores.
    spare_rows
        Number of rows to add at the end, with weight 0 and kernel values 0 with all others. They
        change only the number of rows, so that data of different sizes share one compiled program.
    approximation
        :class:`bmsvm.Nystrom` or :class:`bmsvm.Fourier`: a Gram matrix of low rank, which is never
        formed. It needs ``coupling="sum_to_zero"`` and a lengthscale that is fixed or sampled on a
        given grid. None: the exact Gram matrix.
    warn
        Whether to warn of a lengthscale that does not suit the features.

    Returns
    -------
    Problem
        Arrays in JAX's current default float type; factorisations are computed in float64.

    Warns
    -----
    UserWarning
        If the lengthscale does not suit the features (:mod:`bmsvm.kernels.scales`): rows are nearly
        uncorrelated or nearly identical, or one feature determines nearly all distances.
        Features are not standardised here; use :func:`bmsvm.scaling.learn`.
    """
    check_choice("coupling", coupling, COUPLINGS)
    check_choice("likelihood", likelihood, LIKELIHOODS)
    if not isinstance(hyperparameters, Hyperparameters):
        raise ValueError(
            f"hyperparameters must be a bmsvm.Hyperparameters; got {hyperparameters!r}"
        )
    hyperparameters.validate()
    covariance = as_kernel(kernel)
    theta = as_lengthscale(lengthscale, covariance)
    precomputed = isinstance(covariance, Precomputed)
    if approximation is not None:
        _check_low_rank(approximation, covariance, theta, coupling)
    rows, classes, labels = check_rows_and_labels(X, y, precomputed=precomputed)
    check_flag("warn", warn)
    if warn:
        fixed = None if isinstance(theta, Sampled) else theta
        warn_of_scales(rows, covariance, fixed, stacklevel=2)
    weights = None if row_weights is None else check_row_weights(row_weights, len(rows))
    check_count("spare_rows", spare_rows, smallest=0, largest=MOST_SPARE_ROWS)
    if spare_rows:
        weights = np.pad(np.ones(len(rows)) if weights is None else weights, (0, spare_rows))
        labels = np.pad(labels, (0, spare_rows))
    name = "X" if precomputed else "kernel"
    data = _Data(rows, labels, len(classes), coupling, spare_rows, name)
    # Factors are computed on the host in float64 before they are given to JAX, by device_put:
    # jnp.asarray would compile a program for each shape.
    if approximation is not None:
        made = _low_rank(data, covariance, theta, approximation)
    else:
        made = _exact(data, covariance, theta)
    return Problem(
        labels=jax.device_put(np.asarray(labels, np.int32)),
        factor=jax.device_put(made.factor),
        masked=jax.device_put(made.masked),
        hyper=jax.device_put(jax.tree.map(float, hyperparameters)),
        n_classes=len(classes),
        coupling=coupling,
        likelihood=likelihood,
        grid=made.grid,
        family=made.family,
        row_weights=jax.device_put(weights),
        basis_map=jax.device_put(made.basis_map),
        remainder=jax.device_put(made.remainder),
    )


def _exact(data: _Data, kernel: Kernel, theta: Any) -> _Factored:
    """Factor the Gram matrix at a fixed theta, at each value of a grid, or at a starting point."""
    if isinstance(kernel, Parametric):
        return _of_family(data, kernel_family(kernel, data.rows, data.spare))
    if not isinstance(theta, Sampled):
        return data.factored(gram_of(kernel, data.rows, theta), complete=False)
    stationary = cast(Stationary, kernel)
    n_bases = data.n_classes if data.coupling == "independent" else 1
    room = room_for_grid(len(data.labels), n_bases)
    if theta.off_grid or (theta.grid is None and room < GRID_SIZES[0]):
        return _of_family(data, lengthscale_family(stationary, data.rows, theta, data.spare))
    values, log_prior = make_grid(theta, room)
    check_grid_fits(
        values.size, room, f"factors of {len(data.labels)} rows", '"off" to factor as chains run'
    )
    each = [data.factored(gram_of(kernel, data.rows, value))[:2] for value in values]
    start = int(nearest_on_grid(np.asarray(median_distance(data.rows, kernel)), values))
    return _at_start(stacked_grid(values, log_prior, start, each))


def _of_family(data: _Data, family: KernelFamily) -> _Factored:
    """Factor the Gram matrix where chains begin."""
    kernel = family.build(constrained(family.start, family))
    return data.factored(gram(kernel, data.rows))._replace(family=family)


def _at_start(grid: KernelGrid) -> _Factored:
    """Take the factor of the value where chains begin."""
    factor, masked, basis_map, remainder = jax.tree.map(
        lambda leaf: leaf[grid.start], (grid.factors, grid.masked, grid.basis_map, grid.remainder)
    )
    return _Factored(factor, masked, grid, None, basis_map, remainder)


def _check_low_rank(approximation: Any, kernel: Kernel, theta: Any, coupling: str) -> None:
    """Raise ``ValueError`` if the model does not allow an approximation of low rank."""
    if not isinstance(approximation, Approximation):
        raise ValueError(
            f"approximation must be bmsvm.Nystrom(), bmsvm.Fourier() or None; got {approximation!r}"
        )
    if isinstance(kernel, Parametric) or (isinstance(theta, Sampled) and theta.given_grid is None):
        raise ValueError(
            f"approximation={approximation!r} needs a kernel with fixed parameters, or one "
            "lengthscale sampled on a given grid: Sampled(grid=numpy.geomspace(0.5, 5, 8)), say"
        )
    if coupling == "independent":
        raise ValueError(
            f'approximation={approximation!r} needs coupling="sum_to_zero", in which all columns '
            f"share one basis; got {coupling!r}"
        )


def _low_rank(data: _Data, kernel: Kernel, theta: Any, how: Approximation) -> _Factored:
    """Low-rank factors of the rows at a fixed theta, or at each value of a grid."""
    rows, n_rows, dtype = data.rows, len(data.labels), how.basis_dtype
    if not isinstance(theta, Sampled):
        basis_map = build_basis_map(rows, kernel, how, theta)
        factor, left = low_rank_factor(basis_map, rows, kernel, theta, n_rows=n_rows, dtype=dtype)
        # The array may be as large as memory allows: hand it over without a copy.
        basis = jax.device_put(factor.basis, may_alias=True)
        return _Factored(factor._replace(basis=basis), None, None, None, basis_map, left)
    values, log_prior = make_grid(theta, GRID_SIZES[1])
    start = int(nearest_on_grid(np.asarray(median_distance(rows, kernel)), values))
    maps = basis_maps_on_grid(rows, kernel, how, values, start)
    rank = maps[0].rotation.shape[1]
    room = GRID_BYTES // (dtype.itemsize * n_rows * rank)
    check_grid_fits(
        values.size, room, f"bases of {n_rows} rows and {rank} columns", "a smaller rank"
    )
    each = []
    for basis_map, value in zip(maps, values, strict=True):
        factor, left = low_rank_factor(basis_map, rows, kernel, value, n_rows=n_rows, dtype=dtype)
        each.append((factor, None, basis_map, left))
    return _at_start(stacked_grid(values, log_prior, start, each))
