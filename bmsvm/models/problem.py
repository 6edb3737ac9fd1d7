"""A classification problem made ready for sampling: checked, encoded and factored once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bmsvm import kernels
from bmsvm._validation import (
    check_bounds,
    check_choice,
    check_count,
    check_row_weights,
    check_rows_and_labels,
)
from bmsvm.features import FeatureMap, LowRank, build_features, features_on, low_rank_factor
from bmsvm.kernels import Factor, KernelFn
from bmsvm.models.computed_basis import computed_basis
from bmsvm.models.couplings import COUPLINGS, n_columns
from bmsvm.models.hyperparameters import PAPER, Hyperparameters
from bmsvm.models.kernel_parameters import (
    BOUNDS,
    EVERY,
    GRID_SIZES,
    LENGTHSCALE_PRIORS,
    Design,
    KernelFamily,
    KernelGrid,
    KernelPoint,
    check_bases_fit,
    check_grid_fits,
    constrained,
    family_factor,
    kernel_family,
    lengthscale_family,
    make_grid,
    masked_design,
    named_parameters,
    nearest_on_grid,
    room_for_grid,
    stacked_grid,
)
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.models.reference import Reference
from bmsvm.rows import PiecewiseRows, Rows, in_pieces

__all__ = ["Problem", "prepare"]


Kernel = jax.Array | KernelPoint | None
"""A value of theta: its number in the grid, a point off it, or None where theta is fixed."""


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
    """Where theta is sampled on a grid. ``factor`` and ``masked`` are then those of one value."""
    family: KernelFamily | None = None
    """Where theta is sampled off a grid; as above."""
    row_weights: jax.Array | None = None
    """Weight of each row's log likelihood, shape (n,); None where all are one."""
    features: FeatureMap | None = None
    """Where ``factor`` is an approximation of low rank: what it was made with."""
    remainder: jax.Array | None = None
    """``k(x, x) - |Phi(x)|^2`` of each row, shape (n,), of such a factor; None where it is zero."""
    reference: Reference | None = None
    """A normal distribution near the posterior, which some moves go by; no part of the model."""
    row_parts: int = field(default=1, metadata={"static": True})
    """Equal parts into which rows are spread over devices; no part of the model."""

    @property
    def samples_kernel(self) -> bool:
        """Whether theta is a parameter."""
        return self.grid is not None or self.family is not None

    def at(self, kernel: Kernel) -> Problem:
        """Return the problem at a value of theta; itself where theta is fixed."""
        if kernel is None:
            return self
        if isinstance(kernel, KernelPoint):
            return replace(self, factor=kernel.factor, masked=kernel.masked)
        grid = cast(KernelGrid, self.grid)
        factor, masked, *low = jax.tree.map(
            lambda leaf: leaf[kernel],
            (grid.factors, grid.masked, grid.features, grid.remainder, grid.reference),
        )
        features, remainder, reference = low
        return replace(
            self,
            factor=factor,
            masked=masked,
            features=features,
            remainder=remainder,
            reference=reference,
        )

    def kernel_point(self, parameters: Any) -> KernelPoint:
        """Factor the Gram matrix at unconstrained parameters off the grid."""
        factor = family_factor(parameters, cast(KernelFamily, self.family))
        masked = None
        if self.coupling == "independent":
            masked = masked_design(factor, self.labels, self.n_classes)
        return KernelPoint(parameters, factor, masked)

    def first_kernel(self) -> Kernel:
        """Value of theta at which chains begin."""
        if self.family is not None:
            return KernelPoint(self.family.start, self.factor, self.masked)
        return None if self.grid is None else self.grid.start

    def kernel_values(self, kernel: Kernel) -> dict[str, jax.Array]:
        """Theta by name: ``lengthscale``, or a family's parameters; empty where it is fixed."""
        if self.grid is not None:
            return {"lengthscale": self.grid.values[kernel]}
        if self.family is not None:
            parameters = cast(KernelPoint, kernel).parameters
            return named_parameters(constrained(parameters, self.family))
        return {}

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


def with_spare_rows(factor: Factor, count: int) -> Factor:
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


def some_rows(problem: Problem, count: int) -> Problem:
    """Problem with at most so many of its rows, evenly spaced; its basis is cut, and not masked."""
    n = problem.n_rows
    which = np.unique(np.linspace(0, n - 1, min(n, count)).astype(int))

    def of(part):
        return None if part is None else part[which]

    grid = problem.grid
    if grid is not None:
        left, factors = grid.remainder, grid.factors
        grid = grid._replace(
            factors=factors._replace(basis=factors.basis[:, which]),
            remainder=None if left is None else left[:, which],
        )
    return replace(
        problem,
        labels=problem.labels[which],
        factor=problem.factor._replace(basis=problem.factor.basis[which]),
        row_weights=of(problem.row_weights),
        remainder=of(problem.remainder),
        grid=grid,
        row_parts=1,
    )


MOST_SPARE_ROWS = 1 << 16
"""More rows of weight 0 than this would serve nobody."""

FOR_SAMPLING = {"lengthscale_bounds": BOUNDS, "lengthscale_grid": None, "per_feature": False}
"""Settings of a sampled lengthscale, with their defaults."""


def check_fixed(lengthscale: Any, **settings: Any) -> None:
    """Raise ``ValueError`` if a setting of a sampled lengthscale is given with another one."""
    for name, given in settings.items():
        default = FOR_SAMPLING[name]
        if (given is not None) if default is None else (given != default):
            raise ValueError(
                f'{name} is for lengthscale="sample"; got {name}={given!r} with lengthscale='
                f"{lengthscale!r}. A fixed lengthscale per feature is lengthscale=[...]; what "
                "finds it from the data has lengthscale_options"
            )


def _check_sampled(kernel: Any, lengthscale: Any, kernel_prior: Any, **settings: Any) -> None:
    """Raise ``ValueError`` where it is not plain which parameters of the kernel are sampled."""
    if not isinstance(settings["per_feature"], bool | np.bool_):
        raise ValueError(f"per_feature must be True or False; got {settings['per_feature']!r}")
    sampled = isinstance(lengthscale, str)
    if sampled and lengthscale != "sample":
        raise ValueError(
            "lengthscale must be a positive number, one positive number per feature, or "
            f'"sample"; got {lengthscale!r}'
        )
    if not sampled:
        check_fixed(lengthscale, **settings)
    if kernel_prior is not None:
        if sampled:
            raise ValueError(
                'kernel_prior and lengthscale="sample" exclude each other: the prior of a sampled '
                "lengthscale is lengthscale_prior"
            )
        if not callable(kernel):
            raise ValueError(
                "kernel must be a function from the parameters of kernel_prior to a kernel, such "
                f"as lambda p: tinygp.kernels.ExpSquared(p['scale']); got {kernel!r}"
            )
    elif sampled and not (isinstance(kernel, str) and kernel in kernels.STATIONARY):
        raise ValueError(
            f'lengthscale="sample" needs a kernel that has one: kernel must be one of '
            f"{', '.join(map(repr, kernels.STATIONARY))}; got {kernel!r}"
        )


def prepare(
    X: ArrayLike,
    y: ArrayLike,
    *,
    kernel: KernelFn | str | Callable[[Any], KernelFn] = "gaussian",
    lengthscale: ArrayLike | Literal["sample"] = 1.0,
    lengthscale_prior: str = "uniform",
    lengthscale_bounds: tuple[float, float] = BOUNDS,
    lengthscale_grid: ArrayLike | Literal["off"] | None = None,
    per_feature: bool = False,
    kernel_prior: Any = None,
    propose_every: int = EVERY,
    coupling: str = "sum_to_zero",
    likelihood: str = "hinge",
    hyperparameters: Hyperparameters = PAPER,
    row_weights: ArrayLike | None = None,
    spare_rows: int = 0,
    features: LowRank | None = None,
) -> Problem:
    """Check the data, encode the labels and factor the Gram matrix, before anything is compiled.

    Parameters
    ----------
    X
        Rows, shape (n, p); or the Gram matrix, shape (n, n), with ``kernel="precomputed"``. With
        ``features`` a memory map or a Zarr array is read in pieces.
    y
        Labels, shape (n,): anything that sorts. Classes are numbered in sorted order.
    kernel
        ``"gaussian"``, ``"matern32"``, ``"matern52"``, ``"linear"``, ``"precomputed"``, or a
        callable ``kernel(X1, X2) -> (n1, n2)`` such as a tinygp kernel; with ``kernel_prior``, a
        function from parameters to such a callable.
    lengthscale
        theta of the stationary kernels named by a string: a number, or one per feature; or
        ``"sample"``, to make it a parameter.
    lengthscale_prior
        ``"uniform"``, the paper's, or ``"log-uniform"``.
    lengthscale_bounds
        Support of that prior. Default: the paper's, 0.1 to 200.
    lengthscale_grid
        Values of theta, shape (G,), evenly spaced on a log scale, whose Gram matrices are factored
        once; they then are the support of the prior. ``"off"``: theta is continuous, and each
        proposal factors a Gram matrix. Default: 64 values over the bounds, or as many as fit into
        2 GiB; off the grid where those are fewer than 8.
    per_feature
        Whether a sampled theta has a lengthscale for each feature, shape (p,); off the grid.
    kernel_prior
        Pytree of NumPyro distributions, the prior of the parameters of which ``kernel`` is a
        function: ``kernel=lambda p: p["a"] * tinygp.kernels.Matern32(p["l"])`` with
        ``kernel_prior={"a": LogNormal(0, 1), "l": LogNormal(0, 1)}``.
    propose_every
        Sweeps between two proposals of theta off the grid.
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
    features
        How to approximate the Gram matrix by one of low rank, which is then never formed; None:
        it is factored as it is. With ``coupling="sum_to_zero"``, and a lengthscale that is fixed or
        sampled on a given grid, whose bases fit into 2 GiB.

    Returns
    -------
    Problem
        Arrays in JAX's current default float type; a factorisation done here is float64.
    """
    check_choice("coupling", coupling, COUPLINGS)
    check_choice("likelihood", likelihood, LIKELIHOODS)
    check_choice("lengthscale_prior", lengthscale_prior, LENGTHSCALE_PRIORS)
    check_count("propose_every", propose_every)
    bounds = check_bounds("lengthscale_bounds", lengthscale_bounds)
    if not isinstance(hyperparameters, Hyperparameters):
        raise ValueError(
            f"hyperparameters must be a bmsvm.Hyperparameters; got {hyperparameters!r}"
        )
    hyperparameters.validate()
    precomputed = isinstance(kernel, str) and kernel == "precomputed"
    given: Any = X
    if features is not None and in_pieces(X) and not isinstance(X, PiecewiseRows):
        given = PiecewiseRows(X)
    rows, classes, labels = check_rows_and_labels(given, y, precomputed=precomputed)
    _check_sampled(
        kernel,
        lengthscale,
        kernel_prior,
        lengthscale_bounds=bounds,
        lengthscale_grid=lengthscale_grid,
        per_feature=per_feature,
    )
    weights = None if row_weights is None else check_row_weights(row_weights, len(rows))
    if weights is not None and likelihood == "probit" and not np.all(np.isin(weights, (0, 1))):
        bad = int(np.flatnonzero(~np.isin(weights, (0, 1)))[0])
        raise ValueError(
            'row_weights must be 0 or 1 with likelihood="probit", whose log likelihood is 0 or '
            f"minus infinity; got row_weights[{bad}] = {weights[bad]}"
        )
    check_count("spare_rows", spare_rows, smallest=0, largest=MOST_SPARE_ROWS)
    if spare_rows:
        weights = np.append(np.ones(len(rows)) if weights is None else weights, [0.0] * spare_rows)
        labels = np.append(labels, [0] * spare_rows)

    if features is not None:
        _check_low_rank(
            features, lengthscale, kernel_prior, coupling, lengthscale_grid, per_feature
        )
        if features.recompute:
            _check_recompute(kernel, lengthscale)

    def factored(kernel, theta: Any = 1.0, complete: bool = True):
        gram = kernels.gram_of(kernel, rows, theta)
        factor = kernels.factorize(gram, name="X" if precomputed else "kernel", complete=complete)
        factor = with_spare_rows(factor, spare_rows)
        if coupling != "independent":
            return factor, None
        return factor, masked_design(factor, labels, len(classes))

    # Factors are made on the host, and in float64, before they are given to JAX.
    grid = family = None
    if kernel_prior is not None:
        build = cast(Callable[[Any], KernelFn], kernel)
        family = kernel_family(build, rows, kernel_prior, every=propose_every, spare=spare_rows)
    elif isinstance(lengthscale, str):
        name, n_bases = cast(str, kernel), len(classes) if coupling == "independent" else 1
        off = isinstance(lengthscale_grid, str) and lengthscale_grid == "off"
        room = room_for_grid(len(labels), n_bases)
        if lengthscale_grid is None:
            off = per_feature or room < GRID_SIZES[0]
        if off:
            family = lengthscale_family(
                name,
                rows,
                prior=lengthscale_prior,
                bounds=bounds,
                per_feature=per_feature,
                every=propose_every,
                spare=spare_rows,
            )
        elif features is not None:
            grid = _low_rank_grid(
                features, rows, name, lengthscale_grid, lengthscale_prior, bounds, len(labels)
            )
        elif per_feature:
            raise ValueError(
                'per_feature needs lengthscale_grid to be None or "off": a grid has one '
                "lengthscale for all features"
            )
        else:
            given = cast(ArrayLike | None, lengthscale_grid)
            values, log_prior = make_grid(given, lengthscale_prior, bounds, room)
            check_grid_fits(values.size, len(labels), n_bases)
            each = [factored(name, theta) for theta in values]
            start = int(nearest_on_grid(np.asarray(kernels.median_distance(rows)), values))
            grid = stacked_grid(values, log_prior, start, each)
    if grid is not None:
        factor, masked = jax.tree.map(lambda leaf: leaf[grid.start], (grid.factors, grid.masked))
    elif family is not None:
        factor, masked = factored(family.build(constrained(family.start, family)))
    elif features is None:
        factor, masked = factored(kernel, lengthscale, complete=False)
    made = remainder = None
    if features is not None and grid is not None:
        made, remainder = jax.tree.map(
            lambda leaf: leaf[grid.start], (grid.features, grid.remainder)
        )
    elif features is not None:
        made, factor, remainder = _low_rank(features, rows, kernel, lengthscale, len(labels))
        masked = None
    return Problem(
        labels=jnp.asarray(labels, jnp.int32),
        factor=jax.tree.map(jnp.asarray, factor),
        masked=jax.tree.map(jnp.asarray, masked),
        hyper=jax.tree.map(lambda value: jnp.asarray(float(value)), hyperparameters),
        n_classes=len(classes),
        coupling=coupling,
        likelihood=likelihood,
        grid=grid,
        family=family,
        row_weights=None if weights is None else jnp.asarray(weights),
        features=jax.tree.map(jnp.asarray, made),
        remainder=None if remainder is None else jnp.asarray(remainder),
    )


def _check_low_rank(
    features: Any,
    lengthscale: Any,
    kernel_prior: Any,
    coupling: str,
    lengthscale_grid: Any,
    per_feature: bool,
) -> None:
    """Raise ``ValueError`` where the model and an approximation of low rank do not go together."""
    if not isinstance(features, LowRank):
        raise ValueError(f"features must be a bmsvm.LowRank, or None; got {features!r}")
    features.validate()
    if kernel_prior is not None or per_feature:
        raise ValueError(
            f"features={features.kind!r} needs parameters of the kernel that are fixed, or one "
            'lengthscale sampled on a grid: pass features="exact" to sample others'
        )
    if isinstance(lengthscale, str) and (
        lengthscale_grid is None or isinstance(lengthscale_grid, str)
    ):
        raise ValueError(
            f"lengthscale_grid must be given to sample the lengthscale with features="
            f"{features.kind!r}: a few values around where it may be, such as "
            f"numpy.geomspace(0.5, 5, 8); got {lengthscale_grid!r}"
        )
    if coupling == "independent":
        raise ValueError(
            f'features={features.kind!r} needs coupling="sum_to_zero", in which all columns share '
            f"one basis; got {coupling!r}"
        )


def _check_recompute(kernel: Any, lengthscale: Any) -> None:
    """Raise ``ValueError`` where a basis cannot be computed again and again."""
    if not (isinstance(kernel, str) and kernel in kernels.STATIONARY):
        raise ValueError(
            "recompute needs a stationary kernel by name: kernel must be one of "
            f"{', '.join(map(repr, kernels.STATIONARY))}; got {kernel!r}"
        )
    if isinstance(lengthscale, str):
        raise ValueError(f"recompute needs a fixed lengthscale; got {lengthscale!r}")
    if jnp.result_type(float) != np.float64:
        raise ValueError("recompute needs float64: call numpyro.enable_x64() first")


def _low_rank_grid(
    how: LowRank,
    rows: Rows,
    kernel: str,
    given: Any,
    prior: str,
    bounds: tuple[float, float],
    n_rows: int,
) -> KernelGrid:
    """Low-rank factors of rows at each value of a grid, zeros following up to ``n_rows``."""
    values, log_prior = make_grid(given, prior, bounds, GRID_SIZES[1])
    start = int(nearest_on_grid(np.asarray(kernels.median_distance(cast(Any, rows))), values))
    made = features_on(rows, kernel, how, values, start)
    dtype, (_, rank) = _dtype_of(how), made[0].rotation.shape
    check_bases_fit(values.size, n_rows, rank, dtype.itemsize)
    each = []
    for features, theta in zip(made, values, strict=True):
        factor, remainder = _factor_of(features, rows, kernel, theta, n_rows, dtype)
        each.append((factor, None, features, remainder))
    return stacked_grid(values, log_prior, start, each)


def _dtype_of(how: LowRank) -> np.dtype:
    return np.dtype(jnp.result_type(float) if how.dtype is None else how.dtype)


def _low_rank(
    how: LowRank, rows: Rows, kernel: Any, lengthscale: Any, n_rows: int
) -> tuple[FeatureMap, Factor, np.ndarray | None]:
    """Features of rows, the factor and remainder they make, zeros following up to ``n_rows``."""
    made = build_features(rows, kernel, how, lengthscale)
    dtype = _dtype_of(how)
    keep = not how.recompute
    factor, left = _factor_of(made, rows, kernel, lengthscale, n_rows, dtype, keep=keep)
    basis: Any
    if keep:  # nobody else has this array, which may be as large as memory allows: no copy of it
        basis = jax.device_put(factor.basis, may_alias=True)
    else:
        values = np.asarray(factor.eigenvalues)
        basis = computed_basis(made, rows, kernel, lengthscale, values, n_rows, dtype)
    return made, factor._replace(basis=basis), left


def _factor_of(
    made: FeatureMap,
    rows: Rows,
    kernel: Any,
    lengthscale: Any,
    n_rows: int,
    dtype: np.dtype,
    keep: bool = True,
) -> tuple[Factor, np.ndarray | None]:
    """Return the factor of rows under their features, and what those leave, None if nothing."""
    whole = made.kind == "fourier"
    factor, remainder = low_rank_factor(
        made,
        rows,
        None if whole else kernels.kernel_at(kernel, lengthscale),
        constant=isinstance(kernel, str) and kernel in kernels.STATIONARY,
        n_rows=n_rows,
        dtype=dtype,
        keep=keep,
    )
    return factor, None if whole else remainder
