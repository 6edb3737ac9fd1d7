"""Kernel parameters theta off a grid: how a family of kernels is made, and what it gives.

The class itself is :class:`bmsvm.models.theta.KernelFamily`, where pickled models look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import biject_to

from bmsvm.kernels.factor import Factor
from bmsvm.kernels.functions import (
    KernelFn,
    Parametric,
    Stationary,
    is_distribution,
    median_distance,
)
from bmsvm.models.theta import KernelFamily, KernelOfLengthscale, Sampled

RESERVED = frozenset(
    {"noise_variance", "precision", "intercept", "scores", "weights", "y", "accept_prob"}
    | {"step_size", "num_steps", "lengthscale_accept_prob"}
)
"""Names that parameters of a kernel must not have."""


def lengthscale_family(
    kernel: Stationary, rows: np.ndarray, sampled: Sampled, spare: int = 0
) -> KernelFamily:
    """Family of a stationary kernel with one lengthscale, or one for each feature."""
    low, high = map(float, sampled.bounds)
    shape = (rows.shape[1],) if sampled.per_feature else ()
    kind = dist.Uniform if sampled.prior == "uniform" else dist.LogUniform
    prior = kind(np.full(shape, low), np.full(shape, high))
    ratio = high / low
    typical = np.clip(median_distance(rows, kernel), low * ratio**0.01, low * ratio**0.99)
    family = Parametric(KernelOfLengthscale(kernel), {"lengthscale": prior}, sampled.every)
    return kernel_family(family, rows, spare, start={"lengthscale": jnp.full(shape, typical)})


def kernel_family(
    kernel: Parametric, rows: np.ndarray, spare: int = 0, start: Any = None
) -> KernelFamily:
    """Family of kernels ``build(parameters)`` under a pytree of priors.

    Chains begin at ``start``, or else at the middle of the prior's support (zero, unconstrained).
    """
    prior = kernel.prior
    clash = sorted(RESERVED & set(named_parameters(prior, is_leaf=is_distribution)))
    if clash:
        raise ValueError(
            "prior must name its parameters unlike those of the model, by whose names draws are "
            f"told apart; got {clash[0]!r}"
        )

    def middle(prior: Any) -> jax.Array:
        return jnp.zeros(biject_to(prior.support).inverse_shape(prior.shape()))

    def at(prior: Any, value: Any) -> jax.Array:
        return biject_to(prior.support).inv(value)

    if start is None:
        begin = jax.tree.map(middle, prior, is_leaf=is_distribution)
    else:
        begin = jax.tree.map(at, prior, start, is_leaf=is_distribution)
    prior = jax.tree.map(jnp.asarray, prior)
    return KernelFamily(jnp.asarray(rows), prior, begin, kernel.build, kernel.every, spare)


def constrained(parameters: Any, family: KernelFamily) -> Any:
    """Parameters on their own scale from unconstrained ones."""
    return jax.tree.map(
        lambda prior, value: biject_to(prior.support)(value),
        family.prior,
        parameters,
        is_leaf=is_distribution,
    )


def named_parameters(
    parameters: Any, is_leaf: Callable[[Any], bool] | None = None
) -> dict[str, Any]:
    """Leaves of a pytree by name: ``{"a": {"b": x}}`` has the name ``a.b``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(parameters, is_leaf=is_leaf)
    return {
        jax.tree_util.keystr(path, simple=True, separator=".") or "kernel_parameter": leaf
        for path, leaf in leaves
    }


def kernels_of_draws(
    draws_of: Callable[[str], np.ndarray], family: KernelFamily
) -> Iterator[KernelFn]:
    """Build the kernel of each draw; ``draws_of(name)`` are those of a parameter, (s, ...)."""
    tree = jax.tree.structure(family.prior, is_leaf=is_distribution)
    names = named_parameters(family.prior, is_leaf=is_distribution)
    for values in zip(*(draws_of(name) for name in names), strict=True):
        with jax.enable_x64(True):
            kernel = family.build(jax.tree.unflatten(tree, values))
        yield kernel


def unconstrained(draws: dict[str, Any], family: KernelFamily) -> Any:
    """Undo :func:`constrained` for parameters by name, with any leading axes."""
    named = named_parameters(family.prior, is_leaf=is_distribution)
    leaves = [biject_to(prior.support).inv(draws[name]) for name, prior in named.items()]
    return jax.tree.unflatten(jax.tree.structure(family.prior, is_leaf=is_distribution), leaves)


def log_prior_of(parameters: Any, family: KernelFamily) -> jax.Array:
    """Log prior density of unconstrained parameters, including the Jacobian."""

    def one(prior: Any, value: jax.Array) -> jax.Array:
        transform = biject_to(prior.support)
        here = transform(value)
        jacobian = transform.log_abs_det_jacobian(value, here)
        return jnp.sum(prior.log_prob(here)) + jnp.sum(jacobian)

    terms = jax.tree.map(one, family.prior, parameters, is_leaf=is_distribution)
    return jnp.sum(jnp.stack(jax.tree.leaves(terms)))


def family_gram(parameters: Any, family: KernelFamily) -> jax.Array:
    """Gram matrix at parameters on their own scale, spare rows included, shape (n, n)."""
    return jnp.pad(family.build(parameters)(family.rows, family.rows), (0, family.spare))


def family_factor(parameters: Any, family: KernelFamily) -> Factor:
    """Factor the Gram matrix at unconstrained parameters, inside a compiled program.

    It uses the type of the rows. Eigenvalues that are rounding errors are set to zero; all are NaN,
    so that no move is accepted, if the matrix is not positive semi-definite.
    """
    gram = family_gram(constrained(parameters, family), family)
    values, vectors = jnp.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    tolerance = 10 * jnp.finfo(gram.dtype).eps * values[0]
    values = jnp.where(values[-1] < -len(gram) * tolerance, jnp.nan, values)
    return Factor(vectors, jnp.where(values <= tolerance, 0.0, values))
