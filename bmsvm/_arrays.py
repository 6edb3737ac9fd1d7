"""Pytrees of arrays that survive pickling whatever precision JAX is set to; random keys."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key, or an array of them."""
    return jnp.issubdtype(getattr(leaf, "dtype", float), jax.dtypes.prng_key)


def _plain(leaf: Any) -> bool:
    """Whether a leaf is no array of numbers: a random key, or a name."""
    return isinstance(leaf, str) or is_key(leaf)


def _on_host(leaf: Any) -> Any:
    """Return a leaf as a NumPy array; JAX would unpickle arrays in its float type of that time.

    Python numbers stay what they are to JAX, or compiled programs would not be found again.
    """
    if is_key(leaf) or not isinstance(leaf, jax.Array):
        return leaf
    return leaf.item() if leaf.aval.weak_type and leaf.ndim == 0 else np.asarray(leaf)


def key_of(seed: int) -> jax.Array:
    """``jax.random.key`` of a seed below 2^32; its default kind without a program to compile."""
    settings: Any = jax.config
    if settings.jax_default_prng_impl != "threefry2x32":
        return jax.random.key(seed)
    words = jax.device_put(np.array([0, seed], np.uint32))
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def for_pickling(tree: Any) -> Any:
    """Return a pytree of arrays whose types do not depend on how JAX is set when unpickled."""
    return jax.tree.map(_on_host, tree)


def unpickled(tree: Any) -> Any:
    """Undo :func:`for_pickling`."""
    with jax.enable_x64(True):
        return jax.tree.map(lambda leaf: leaf if _plain(leaf) else jax.device_put(leaf), tree)
