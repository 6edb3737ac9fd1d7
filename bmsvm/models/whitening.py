"""Coordinates in which everything Gaussian is a standard normal, weights integrated out.

Given (sigma2, tau) the columns less their intercept have covariance ``sigma2 R``. In the
eigenbasis of R, ``T = 1 b' + sigma (U diag(sqrt(1 + lambda/tau)) a + (I - UU') e)``: ``a`` are the
coordinates inside the span of the basis, ``e`` is noise of which the part outside matters. Where
the basis spans all rows there is no outside.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bmsvm.models.conditionals import group, ungroup
from bmsvm.models.problem import Problem

__all__ = ["White", "colour", "white_shapes", "whiten"]


class White(NamedTuple):
    """Standard normal coordinates of the columns.

    inside
        a, shape (g, r, k/g).
    outside
        e, shape (n, k), or None where the basis spans the rows.
    """

    inside: jax.Array
    outside: jax.Array | None


def white_shapes(problem: Problem) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shapes of ``inside`` and ``outside``; the second is None where there is no outside."""
    g, _, r = problem.design.basis.shape
    outside = None if problem.spans else (problem.n_rows, problem.n_columns)
    return (g, r, problem.n_columns // g), outside


def _roots(precision: jax.Array, problem: Problem) -> jax.Array:
    return jnp.sqrt(1 + problem.design.eigenvalues / precision)[:, :, None]


def colour(white: White, precision: jax.Array, problem: Problem) -> jax.Array:
    """Columns with covariance R(tau), shape (n, k), zero where a column observes nothing."""
    basis, _, _, mask = problem.design
    coordinates = _roots(precision, problem) * white.inside
    if white.outside is None:
        return ungroup(jnp.einsum("gnr,grk->gnk", basis, coordinates))
    outside = mask[:, :, None] * group(white.outside, problem)
    coordinates = coordinates - jnp.einsum("gnr,gnk->grk", basis, outside)
    return ungroup(outside + jnp.einsum("gnr,grk->gnk", basis, coordinates))


def whiten(key: jax.Array, columns: jax.Array, precision: jax.Array, problem: Problem) -> White:
    """Coordinates that :func:`colour` maps to given columns (n, k).

    What the columns do not determine, the noise inside the span and on rows not observed, is
    drawn afresh from its standard normal.
    """
    basis, _, _, mask = problem.design
    grouped = group(columns, problem)
    coordinates = jnp.einsum("gnr,gnk->grk", basis, grouped)
    inside = coordinates / _roots(precision, problem)
    if problem.spans:
        return White(inside, None)
    key_inside, key_outside = jax.random.split(key)
    absent = (jnp.sum(basis**2, axis=1) < 0.5)[:, :, None]  # columns of zeros pad masked designs
    inside = jnp.where(absent, jax.random.normal(key_inside, inside.shape, inside.dtype), inside)
    fresh = jax.random.normal(key_outside, grouped.shape, grouped.dtype)
    shift = coordinates - jnp.einsum("gnr,gnk->grk", basis, fresh)
    outside = grouped - jnp.einsum("gnr,grk->gnk", basis, shift)
    return White(inside, ungroup(jnp.where(mask[:, :, None] > 0, outside, fresh)))
