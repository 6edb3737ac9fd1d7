"""The kernel's parameters theta where they are sampled: on a grid, or off it.

On a grid every Gram matrix is factored once, before sampling, and theta is a number of the grid.
Off it theta is any pytree with a prior, and each proposal costs a factorisation. To the rest of
the sampler both are the same: a value that :meth:`bmsvm.models.Problem.at` turns into a problem.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import biject_to

from bmsvm import kernels
from bmsvm.features import FeatureMap
from bmsvm.kernels import Factor, KernelFn
from bmsvm.models.reference import Reference

__all__ = [
    "Design",
    "KernelFamily",
    "KernelGrid",
    "KernelPoint",
    "constrained",
    "family_factor",
    "family_gram",
    "kernel_family",
    "lengthscale_family",
    "log_prior_of",
    "make_grid",
    "masked_design",
    "named_parameters",
    "nearest_on_grid",
    "stacked_grid",
    "unconstrained",
]

BOUNDS = (0.1, 200.0)
"""Support of theta's prior, section 5."""

GRID_SIZES = (8, 64)
"""Least and most values of a grid that is not given."""

GRID_BYTES = 2**31
"""The most that the factors of a grid may take."""

RESERVED = frozenset(
    {"noise_variance", "precision", "intercept", "scores", "weights", "y", "accept_prob"}
    | {"step_size", "num_steps", "lengthscale_accept_prob"}
)
"""Names that parameters of a kernel must not have."""

EVERY = 10
"""Sweeps between two proposals of theta off the grid."""


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


def masked_design(factor: Factor, labels: Any, n_classes: int) -> Design:
    """Factor the rows each column observes: column j never sees a row of class j, eq. (14).

    NumPy arrays are worked on in NumPy, and so in float64 whatever precision JAX is set to.
    """
    xp = np if isinstance(factor.basis, np.ndarray) else jnp
    basis, eigenvalues = factor
    mask = (labels[None, :] != np.arange(n_classes)[:, None]).astype(basis.dtype)
    design = basis * xp.sqrt(eigenvalues)
    # Phi is n x r with r <= n, so the thin SVD of each masked design gives r columns.
    u, d, wt = xp.linalg.svd(mask[:, :, None] * design, full_matrices=False)
    tolerance = d[:, :1] * max(design.shape) * xp.finfo(basis.dtype).eps
    d = xp.where(d > tolerance, d, 0.0)
    parts = xp.where(d[:, None, :] > 0, u, 0.0), d**2, xp.swapaxes(wt, 1, 2), mask
    return Design(*(cast(jax.Array, part) for part in parts))


class KernelGrid(NamedTuple):
    """Values of the kernel parameter theta, each with the Gram matrix factored once.

    values
        theta, shape (G,), increasing.
    log_prior
        Log prior weight of each, shape (G,), up to a constant.
    start
        Number of the value at which chains begin.
    factors
        The factors, with a leading axis of G.
    masked
        The designs of the ``independent`` coupling, with a leading axis of G.
    features, remainder, reference
        As in :class:`bmsvm.models.Problem`, where the factors are of low rank, with a leading axis
        of G.
    """

    values: jax.Array
    log_prior: jax.Array
    start: jax.Array
    factors: Factor
    masked: Design | None
    features: FeatureMap | None = None
    remainder: jax.Array | None = None
    reference: Reference | None = None


class KernelPoint(NamedTuple):
    """A value of theta off the grid, with what was factored for it.

    Parameters
    ----------
        Unconstrained parameters, a pytree like the prior.
    factor, masked
        As in :class:`bmsvm.models.Problem`.
    """

    parameters: Any
    factor: Factor
    masked: Design | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KernelFamily:
    """Kernels indexed by a pytree of parameters with a prior."""

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


LENGTHSCALE_PRIORS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": np.log,  # a cell of a log grid is as wide as its value
    "log-uniform": np.zeros_like,
}
"""Log prior weight of the values of a log grid."""


def make_grid(
    values: ArrayLike | None, prior: str, bounds: tuple[float, float], room: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values of theta, shape (G,), and their log prior weights; as many as there is room for."""
    if values is None:
        grid = np.geomspace(*bounds, min(GRID_SIZES[1], room))
    else:
        try:
            grid = np.asarray(values)
        except ValueError:  # ragged
            grid = np.asarray("")
        numbers = grid.ndim == 1 and grid.size >= 2 and grid.dtype.kind in "fiu"
        if not numbers or not np.all(np.isfinite(grid) & (grid > 0)) or np.any(np.diff(grid) <= 0):
            raise ValueError(
                'lengthscale_grid must be "off", or two or more positive numbers, increasing, '
                "evenly spaced on a log scale such as numpy.geomspace(0.1, 200, 64); "
                f"got {values!r}"
            )
        grid = grid.astype(np.float64)
        steps = np.diff(np.log(grid))
        if steps.max() > 1.001 * steps.min():
            raise ValueError(
                "lengthscale_grid must be evenly spaced on a log scale, as numpy.geomspace makes "
                f"it; its ratios go from {np.exp(steps.min()):.4g} to {np.exp(steps.max()):.4g}"
            )
    return grid, LENGTHSCALE_PRIORS[prior](grid)


def nearest_on_grid(lengthscales: Any, values: Any) -> Any:
    """Numbers of the values (G,) of a grid nearest to lengthscales (...) on a log scale.

    NumPy arrays are worked on in NumPy.
    """
    xp = np if isinstance(lengthscales, np.ndarray) else jnp
    return xp.argmin(xp.abs(xp.log(lengthscales)[..., None] - xp.log(values)), axis=-1)


def room_for_grid(n_rows: int, n_bases: int) -> int:
    """Return how many factors of the rows fit into :data:`GRID_BYTES`."""
    return GRID_BYTES // (8 * n_rows**2 * n_bases)


def check_bases_fit(size: int, n_rows: int, rank: int, itemsize: int) -> None:
    """Raise ``ValueError`` unless the bases of low rank of a grid fit: :data:`GRID_BYTES`."""
    room = GRID_BYTES // (itemsize * n_rows * rank)
    if size > room:
        raise ValueError(
            f"lengthscale_grid: {size} bases of {n_rows} rows and {rank} columns do not fit into "
            f"{GRID_BYTES / 2**30:.0f} GiB; pass a grid of at most {room} values, a smaller rank, "
            "or another lengthscale"
        )


def check_grid_fits(size: int, n_rows: int, n_bases: int) -> None:
    """Raise ``ValueError`` unless the factors of a grid fit into :data:`GRID_BYTES`."""
    room = room_for_grid(n_rows, n_bases)
    if size > room:
        raise ValueError(
            f"lengthscale_grid: {size} factors of {n_rows} rows do not fit into "
            f"{GRID_BYTES / 2**30:.0f} GiB; pass a grid of at most {room} values, or "
            '"off" to factor as the chain goes'
        )


def stacked_grid(
    values: np.ndarray, log_prior: np.ndarray, start: int, each: Sequence[tuple[Any, ...]]
) -> KernelGrid:
    """Grid of what was made on the host for each value, stacked there and then given to JAX."""
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *each)
    return KernelGrid(jnp.asarray(values), jnp.asarray(log_prior), jnp.asarray(start), *stacked)


def _is_prior(leaf: Any) -> bool:
    return isinstance(leaf, dist.Distribution)


def _lengthscale_prior(name: str, bounds: tuple[float, float], n_features: int | None) -> Any:
    low, high = map(float, bounds)
    prior = dist.Uniform(low, high) if name == "uniform" else dist.LogUniform(low, high)
    return {"lengthscale": prior if n_features is None else prior.expand((n_features,))}


@functools.cache
def _kernel_of_lengthscale(kernel: str) -> Callable[[Any], KernelFn]:
    """Return the function from ``{"lengthscale": theta}`` to a named kernel, always the same."""
    return lambda parameters: kernels.stationary(kernel, parameters["lengthscale"])


def lengthscale_family(
    kernel: str,
    rows: np.ndarray,
    *,
    prior: str,
    bounds: tuple[float, float],
    per_feature: bool,
    every: int,
    spare: int = 0,
) -> KernelFamily:
    """Family of a named kernel with one lengthscale, or one for each feature."""
    n_features = rows.shape[1] if per_feature else None
    priors = _lengthscale_prior(prior, bounds, n_features)
    low, ratio = bounds[0], bounds[1] / bounds[0]
    typical = np.clip(kernels.median_distance(rows), low * ratio**0.01, low * ratio**0.99)
    shape = () if n_features is None else (n_features,)
    start = {"lengthscale": jnp.full(shape, typical)}
    build = _kernel_of_lengthscale(kernel)
    return kernel_family(build, rows, priors, every=every, spare=spare, start=start)


def kernel_family(
    build: Callable[[Any], KernelFn],
    rows: np.ndarray,
    prior: Any,
    *,
    every: int,
    spare: int = 0,
    start: Any = None,
) -> KernelFamily:
    """Family of kernels ``build(parameters)`` under a pytree of priors.

    Chains begin at ``start``, or else at the middle of the prior's support (zero, unconstrained).
    """
    leaves = jax.tree.leaves(prior, is_leaf=_is_prior)
    if not leaves or not all(_is_prior(leaf) for leaf in leaves):
        raise ValueError(
            "kernel_prior must be a NumPyro distribution, or a dict or other pytree of them; "
            f"got {prior!r}"
        )
    clash = sorted(RESERVED & set(named_parameters(prior, is_leaf=_is_prior)))
    if clash:
        raise ValueError(
            "kernel_prior must name its parameters unlike those of the model, by whose names draws "
            f"are told apart; got {clash[0]!r}"
        )
    if any(leaf.support.is_discrete for leaf in leaves):
        raise ValueError("kernel_prior must be continuous distributions; got a discrete one")

    def middle(prior):
        return jnp.zeros(biject_to(prior.support).inverse_shape(prior.shape()))

    def at(prior, value):
        return biject_to(prior.support).inv(value)

    if start is None:
        begin = jax.tree.map(middle, prior, is_leaf=_is_prior)
    else:
        begin = jax.tree.map(at, prior, start, is_leaf=_is_prior)
    prior = jax.tree.map(jnp.asarray, prior)
    return KernelFamily(jnp.asarray(rows), prior, begin, build, every, spare)


def constrained(parameters: Any, family: KernelFamily) -> Any:
    """Parameters on their own scale from unconstrained ones."""
    return jax.tree.map(
        lambda prior, value: biject_to(prior.support)(value),
        family.prior,
        parameters,
        is_leaf=_is_prior,
    )


def named_parameters(parameters: Any, is_leaf: Callable[[Any], bool] | None = None) -> dict:
    """Leaves of a pytree by name: ``{"a": {"b": x}}`` has the name ``a.b``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(parameters, is_leaf=is_leaf)
    return {
        jax.tree_util.keystr(path, simple=True, separator=".") or "kernel_parameter": leaf
        for path, leaf in leaves
    }


def unconstrained(draws: dict[str, jax.Array], family: KernelFamily) -> Any:
    """Undo :func:`constrained` for parameters by name, with any leading axes."""
    named = named_parameters(family.prior, is_leaf=_is_prior)
    leaves = [biject_to(prior.support).inv(draws[name]) for name, prior in named.items()]
    return jax.tree.unflatten(jax.tree.structure(family.prior, is_leaf=_is_prior), leaves)


def log_prior_of(parameters: Any, family: KernelFamily) -> jax.Array:
    """Log prior density of unconstrained parameters: the Jacobian is in it."""

    def one(prior, value):
        transform = biject_to(prior.support)
        here = transform(value)
        jacobian = transform.log_abs_det_jacobian(value, here)
        return jnp.sum(prior.log_prob(here)) + jnp.sum(jacobian)

    terms = jax.tree.map(one, family.prior, parameters, is_leaf=_is_prior)
    return jnp.sum(jnp.stack(jax.tree.leaves(terms)))


def family_gram(parameters: Any, family: KernelFamily) -> jax.Array:
    """Gram matrix at parameters on their own scale, spare rows included, shape (n, n)."""
    return jnp.pad(family.build(parameters)(family.rows, family.rows), (0, family.spare))


def family_factor(parameters: Any, family: KernelFamily) -> Factor:
    """Factor the Gram matrix at unconstrained parameters, inside a compiled program.

    It is done in the type of the rows. Eigenvalues that are rounding errors are set to zero.
    """
    gram = family_gram(constrained(parameters, family), family)
    values, vectors = jnp.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    tolerance = 10 * jnp.finfo(gram.dtype).eps * values[0]
    return Factor(vectors, jnp.where(values > tolerance, values, 0.0))
