"""The quantities by which convergence is judged, computed from draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.special

from bmsvm.models.couplings import class_map
from bmsvm.models.likelihoods import margin_offset
from bmsvm.models.problem import Problem

WATCHED_ROWS = 10
"""Training rows at which the functions are watched."""

FEWEST_ROWS = 3
WATCHED_FUNCTIONS = 60
"""Fewest of these rows, and approximate number of watched functions, with many classes."""


def _functions_at(
    samples: Mapping[str, np.ndarray], problem: Problem, rows: np.ndarray
) -> np.ndarray:
    """Class functions of draws at training rows, shape (chain, draw, m, c).

    If the kernel is sampled off a grid, the basis differs from draw to draw, and the scores of the
    rows are returned instead.
    """
    if problem.family is not None:
        return np.asarray(samples["scores"])[:, :, rows]
    weights, intercept = np.asarray(samples["weights"]), np.asarray(samples["intercept"])
    to_classes = class_map(problem.coupling, problem.n_classes)
    if problem.grid is None:
        basis, eigenvalues = problem.factor
        design = np.asarray(basis)[rows] * np.sqrt(np.asarray(eigenvalues))
        columns = np.einsum("mr,sdrk->sdmk", design, weights)
    else:
        index = problem.grid.index_of(samples["lengthscale"])
        bases, each = (np.asarray(part) for part in problem.grid.factors)
        designs = bases[:, rows] * np.sqrt(each)[:, None]
        columns = np.einsum("sdmr,sdrk->sdmk", designs[index], weights)
    return intercept[:, :, None] + columns @ to_classes


class Watched(NamedTuple):
    """Quantities by which convergence is judged.

    quantities
        By name, each of shape (chain, draw): the logarithms of sigma2, tau and theta, and the
        class functions at some training rows.
    probabilities
        Class probabilities (21) of these rows without noise, shape (chain, draw, m c).
    """

    quantities: dict[str, np.ndarray]
    probabilities: np.ndarray


def watch(
    samples: Mapping[str, np.ndarray], problem: Problem, n_rows: int, classes: np.ndarray
) -> Watched:
    """Compute the watched quantities from draws.

    Parameters
    ----------
    samples
        Draws of each site, shape (chain, draw, ...).
    problem
        The prepared data.
    n_rows
        Number of rows without spare ones.
    classes
        Names of the classes, shape (c,).
    """
    found = {
        name: np.log(samples[name])
        for name in ("noise_variance", "precision", "lengthscale")
        if name in samples and samples[name].ndim == 2
    }
    most = max(FEWEST_ROWS, min(WATCHED_ROWS, WATCHED_FUNCTIONS // len(classes)))
    rows = np.unique(np.linspace(0, n_rows - 1, min(n_rows, most)).astype(int))
    functions = _functions_at(samples, problem, rows)
    # The functions sum to zero, so the last is determined by the others.
    for place, row in enumerate(rows):
        for j, name in enumerate(classes[:-1]):
            found[f"f at training row {row}, class {name}"] = functions[:, :, place, j]
    excess = np.maximum(functions + margin_offset(len(classes)), 0.0)
    chances = scipy.special.softmax(excess, axis=-1)
    return Watched(found, chances.reshape(*chances.shape[:2], -1))
