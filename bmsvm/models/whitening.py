"""Coordinates in which the columns are standard normal, with the weights integrated out.

Given (sigma2, tau) the columns less their intercept have covariance ``sigma2 R``. In the
eigenbasis of R, ``T = 1 b' + sigma (U diag(sqrt(1 + lambda/tau)) a + (I - UU') e)``: ``a`` are the
coordinates inside the span of the basis, and only the part of the noise ``e`` outside that span
matters. If the basis spans all rows, there is no outside.

Coordinates are stored as (k, r), not (r, k): k is small, and products with the basis run along the
long axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from bmsvm.models.problem import Problem


class White(NamedTuple):
    """Standard normal coordinates of the columns.

    inside
        a, shape (g, k/g, r).
    outside
        e, shape (k, n), or None where the basis spans the rows.
    """

    inside: jax.Array
    outside: jax.Array | None


def white_shapes(problem: Problem) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shapes of ``inside`` and ``outside``; the second is None if there is no outside."""
    g, _, r = problem.design.basis.shape
    outside = None if problem.spans else (problem.n_columns, problem.n_rows)
    return (g, problem.n_columns // g, r), outside


def _grouped(rows: jax.Array, problem: Problem) -> jax.Array:
    """Reshape (k, n) to groups (g, k/g, n)."""
    return rows.reshape(problem.design.mask.shape[0], -1, rows.shape[-1])


def _onto_rows(coordinates: jax.Array, basis: jax.Array) -> jax.Array:
    """Apply the basis: (g, k/g, r) to (g, k/g, n)."""
    return jnp.einsum("gkr,gnr->gkn", coordinates, basis)


def _onto_basis(rows: jax.Array, basis: jax.Array) -> jax.Array:
    """Apply the transposed basis: (g, k/g, n) to (g, k/g, r)."""
    return jnp.einsum("gkn,gnr->gkr", rows, basis)


def _roots(precision: jax.Array, problem: Problem) -> jax.Array:
    return jnp.sqrt(1 + problem.design.eigenvalues / precision)[:, None, :]


def shrinkage(eigenvalues: jax.Array, precision: Any) -> tuple[jax.Array, jax.Array]:
    """``I - R^-1`` in the eigenbasis, shape (..., r), and ``log |R|``, shape (...)."""
    shrink = eigenvalues / (eigenvalues + precision)
    return shrink, jnp.sum(jnp.log1p(eigenvalues / precision), axis=-1)


def colour(white: White, precision: jax.Array, problem: Problem) -> jax.Array:
    """Columns with covariance R(tau), shape (n, k), zero where a column observes nothing."""
    basis, _, _, mask = problem.design
    if white.outside is None:  # one group; the compiler must see a plain matrix product
        return (_roots(precision, problem)[0] * white.inside[0] @ basis[0].T).T
    outside = mask[:, None, :] * _grouped(white.outside, problem)
    coordinates = _roots(precision, problem) * white.inside - _onto_basis(outside, basis)
    coloured = outside + _onto_rows(coordinates, basis)
    return coloured.reshape(problem.n_columns, -1).T


def whiten(noise: White, columns: jax.Array, precision: jax.Array, problem: Problem) -> White:
    """Coordinates that :func:`colour` maps to given columns (n, k).

    Columns do not determine the noise inside the span and on rows that are not observed. It is
    taken from ``noise``, standard normals of the shapes :func:`white_shapes`. If the basis spans
    the rows, the columns determine all coordinates.
    """
    basis, _, _, mask = problem.design
    grouped = _grouped(columns.T, problem)
    coordinates = _onto_basis(grouped, basis)
    inside = coordinates / _roots(precision, problem)
    if noise.outside is None:
        return White(inside, None)
    absent = (jnp.sum(basis**2, axis=1) < 0.5)[:, None, :]  # columns of zeros pad masked designs
    inside = jnp.where(absent, noise.inside, inside)
    fresh = _grouped(noise.outside, problem)
    shift = coordinates - _onto_basis(fresh, basis)
    outside = grouped - _onto_rows(shift, basis)
    outside = jnp.where(mask[:, None, :] > 0, outside, fresh)
    return White(inside, outside.reshape(problem.n_columns, -1))


class Spectral(NamedTuple):
    """Columns and their coordinates in the eigenbasis of R, from which functions of R are cheap.

    rows
        The columns, shape (g, k/g, n).
    coordinates
        U' of them, shape (g, k/g, r).
    """

    rows: jax.Array
    coordinates: jax.Array


def spectral(problem: Problem, *columns: jax.Array) -> tuple[Spectral, ...]:
    """Project several sets of columns (n, k), reading the basis once."""
    grouped = [_grouped(each.T, problem) for each in columns]
    ends = list(itertools.accumulate(each.shape[1] for each in grouped))[:-1]
    together = _onto_basis(jnp.concatenate(grouped, axis=1), problem.design.basis)
    return tuple(map(Spectral, grouped, jnp.split(together, ends, axis=1)))


def sum_of_functions(
    terms: Sequence[tuple[Callable[[jax.Array], jax.Array], Spectral]],
    precision: Any,
    problem: Problem,
) -> jax.Array:
    """``sum_i f_i(R(tau)) T_i``, shape (n, k), for functions of the eigenvalues of R.

    The result is continuous in the kernel; products with eigenvectors alone are not.
    """
    basis, eigenvalues, _, _ = problem.design
    one = jnp.ones((), eigenvalues.dtype)
    values = (1 + eigenvalues / precision)[:, None, :]
    inside = sum((f(values) - f(one)) * part.coordinates for f, part in terms)
    outside = sum(f(one) * part.rows for f, part in terms)
    result = outside + _onto_rows(cast(jax.Array, inside), basis)
    return result.reshape(-1, problem.n_rows).T


def matrix_function(
    columns: jax.Array, function: Callable[[jax.Array], jax.Array], precision: Any, problem: Problem
) -> jax.Array:
    """``function(R(tau)) T`` of columns (n, k)."""
    (part,) = spectral(problem, columns)
    return sum_of_functions([(function, part)], precision, problem)


def log_density_given_noise(
    columns: Spectral, noise: jax.Array | float, precision: jax.Array, problem: Problem
) -> jax.Array:
    """``log N(T | 0, R(tau) + s I)`` over all columns, up to a constant."""
    # R(tau) + s I = (1 + s) R(tau (1 + s)).
    shrink, log_det = shrinkage(problem.design.eigenvalues, precision * (1 + noise))
    explained = jnp.sum(columns.coordinates**2 * shrink[:, None, :]) / (1 + noise)
    return 0.5 * (explained - columns.coordinates.shape[1] * jnp.sum(log_det))
