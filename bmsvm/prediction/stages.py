"""Posterior draws grouped by kernel, for evaluation at new rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from bmsvm.kernels.covariance import gram
from bmsvm.kernels.factor import Factor, factorize
from bmsvm.kernels.functions import Kernel, as_kernel
from bmsvm.models.family import kernels_of_draws
from bmsvm.models.problem import Problem
from bmsvm.models.theta import KernelFamily
from bmsvm.prediction.evaluate import Stage, projection_of

Flat = Callable[[str], np.ndarray]
"""From the name of a site to its draws, flat over chains: shape (s, ...)."""


def stages_of(
    flat: Flat, problem: Problem, rows: np.ndarray, kernel: Kernel, lengthscale: Any
) -> tuple[Stage, ...]:
    """Group draws by their value of theta, fixed or on a grid.

    Parameters
    ----------
    flat
        The draws.
    problem
        The prepared training data.
    rows
        Training rows (n, p); not used if the problem has a basis of low rank.
    kernel, lengthscale
        The kernel, and theta if it is fixed.
    """
    weights = flat("weights")
    # As NumPy arrays: outside float64 mode JAX would round what it indexes.
    maps: Any = problem.factor if problem.basis_map is None else problem.basis_map
    each: list[tuple[Any, Any, np.ndarray]] = [(lengthscale, maps, np.arange(len(weights)))]
    if problem.grid is not None:
        grid, values = problem.grid, np.asarray(problem.grid.values)
        maps = grid.factors if problem.basis_map is None else grid.basis_map
        maps = jax.tree.map(np.asarray, maps)
        index = grid.index_of(flat("lengthscale"))
        each = [
            (values[g], jax.tree.map(operator.itemgetter(g), maps), np.flatnonzero(index == g))
            for g in np.unique(index)
        ]

    def stage(theta: Any, here: Any, draws: np.ndarray) -> Stage:
        if isinstance(here, Factor):
            # A spare row has no part in any function; its place is taken by any row.
            training = np.asarray(rows, np.float64)
            spare = np.repeat(training[-1:], problem.n_rows - len(training), axis=0)
            points = np.concatenate([training, spare])
            kind, projection = "nystrom", projection_of(here)
        else:
            points = np.asarray(here.points, np.float64)
            kind, projection = here.kind, np.asarray(here.rotation, np.float64)
        return Stage(kernel, theta, kind, points, projection, weights[draws], draws)

    return tuple(stage(*one) for one in each)


def family_stages(flat: Flat, family: KernelFamily) -> Iterator[Stage]:
    """One stage for each draw of kernel parameters off a grid, factored when it is needed."""
    rows = np.asarray(family.rows, np.float64)
    coefficients = flat("coefficients")[:, : len(rows)].astype(np.float64)
    kernels = kernels_of_draws(flat, family)
    for draw, (here, held) in enumerate(zip(kernels, coefficients, strict=True)):
        factor = factorize(gram(here, rows))
        basis, eigenvalues = (np.asarray(part) for part in factor)
        weights = np.sqrt(eigenvalues)[:, None] * (basis.T @ held)
        numbers = np.array([draw])
        yield Stage(
            as_kernel(here), None, "nystrom", rows, projection_of(factor), weights[None], numbers
        )
