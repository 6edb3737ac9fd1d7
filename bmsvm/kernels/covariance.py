"""Kernel values between two sets of rows, in NumPy or in JAX."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.spatial.distance
from jax.typing import ArrayLike


@dataclass(frozen=True)
class Covariance:
    """A function ``k(X1, X2) -> (n1, n2)`` of NumPy or JAX arrays.

    ``+`` and ``*`` combine it with numbers, with others like it and with any callable on its right.
    """

    values: Callable[[Any, Any, Any], Any]
    """From rows (n1, p) and (n2, p) and their module, NumPy or ``jax.numpy``, to (n1, n2)."""

    def __call__(self, X1: ArrayLike, X2: ArrayLike) -> Any:
        """Return the kernel values; in float64 unless rows are JAX arrays."""
        if isinstance(X1, jax.Array) or isinstance(X2, jax.Array):
            return self.values(jnp.asarray(X1), jnp.asarray(X2), jnp)
        return self.values(np.asarray(X1, np.float64), np.asarray(X2, np.float64), np)

    def __add__(self, other: Any) -> Covariance:
        return Covariance(partial(_combined, operator.add, self, other))

    def __mul__(self, other: Any) -> Covariance:
        return Covariance(partial(_combined, operator.mul, self, other))

    __radd__, __rmul__ = __add__, __mul__


def _combined(
    combine: Callable[[Any, Any], Any], one: Any, other: Any, X1: Any, X2: Any, xp: Any
) -> Any:
    """Sum or product of two kernels, or of a kernel and a number."""
    evaluate = gram if xp is np else _evaluate
    return combine(*(evaluate(k, X1, X2) if callable(k) else k for k in (one, other)))


def distances(X1: Any, X2: Any, metric: str, xp: Any) -> Any:
    """Distances between rows (n1, p) and (n2, p), shape (n1, n2); gradients are finite."""
    if xp is np:
        return scipy.spatial.distance.cdist(X1, X2, metric)
    apart = X1[:, None] - X2
    if metric == "cityblock":
        return jnp.sum(jnp.abs(apart), axis=-1)
    squares = jnp.sum(apart**2, axis=-1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


_compiled = jax.jit(lambda kernel, left, right: kernel(left, right))


def _evaluate(kernel: Any, left: jax.Array, right: jax.Array) -> Any:
    """Evaluate a callable with JAX arrays; tinygp kernels, pytrees, compile once for each kind."""
    tinygp = sys.modules.get("tinygp")
    if tinygp is not None and isinstance(kernel, tinygp.kernels.Kernel):
        return _compiled(kernel, left, right)
    return kernel(left, right)


def gram(
    kernel: Callable[[Any, Any], Any], X1: ArrayLike, X2: ArrayLike | None = None
) -> np.ndarray:
    """Evaluate a kernel between two sets of rows in float64.

    Parameters
    ----------
    kernel
        Callable ``kernel(X1, X2) -> (n1, n2)``.
    X1, X2
        Rows, shapes (n1, p) and (n2, p); ``X2`` defaults to ``X1``.

    Returns
    -------
    numpy.ndarray
        Gram matrix, shape (n1, n2), float64.
    """
    left = np.asarray(X1, dtype=np.float64)
    right = left if X2 is None else np.asarray(X2, dtype=np.float64)
    if isinstance(kernel, Covariance):
        values = np.asarray(kernel(left, right))
    else:
        with jax.enable_x64(True):
            try:
                values = np.asarray(_evaluate(kernel, jnp.asarray(left), jnp.asarray(right)))
            except Exception as error:
                error.add_note(
                    f"bmsvm called kernel with two matrices of rows, {left.shape} and "
                    f"{right.shape}: it must return the matrix of their values, "
                    f"({len(left)}, {len(right)})"
                )
                raise
    shape = (left.shape[0], right.shape[0])
    if values.shape != shape:
        raise ValueError(
            f"kernel must return one value per pair of rows, shape {shape}; it returned shape "
            f"{values.shape}. It is called with matrices of rows, {left.shape} and {right.shape}"
        )
    return values.astype(np.float64, copy=False)
