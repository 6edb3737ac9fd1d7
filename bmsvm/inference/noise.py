"""Random numbers of one move, all from one call.

Each call of JAX's generator in a program adds to its compilation, however few numbers it makes:
calls for each kind of number would be most of what a sweep takes to compile.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.special import ndtr

Tree = TypeVar("Tree")


def normals_like(key: jax.Array, like: Tree, dtype: Any) -> Tree:
    """Draw standard normals in the shapes of a pytree of arrays or shapes' structs."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype), like)
    flat, unravel = ravel_pytree(zeros)
    half = -(-flat.size // 2)

    def part(number: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(key, number), (half,), dtype)

    # A loop of two: otherwise the compiler writes the quantile function into every use.
    return unravel(jax.lax.map(part, jnp.arange(2)).ravel()[: flat.size])


def uniform_of(normal: jax.Array) -> jax.Array:
    """Uniform numbers on (0, 1) from standard normals, by their distribution function."""
    return ndtr(normal)
