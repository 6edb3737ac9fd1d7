"""Draws from the joint distribution of parameters, scores and labels, in plain NumPy.

The model's density of everything is ``p(parameters) p(S | parameters, y) prod_i L(y_i | z_i)``, S
being the scores that exist. Every likelihood is at most 1, and so each of its forms can be drawn
from exactly, with no chain:

``direct``
    ``sum_to_zero`` with ``normalized`` or ``probit``. All scores exist whatever the labels are, and
    L sums to 1 over the labels: parameters, scores and labels in turn.
``tilted``
    ``sum_to_zero`` with ``hinge`` or ``squared``, which sum to ``s(z) = sum_j L(j | z)`` and not
    to 1. The joint density, normalised over labels and scores, has ``prod_i s(z_i)`` beside the
    prior. Under ``hinge``, since the excesses ``e_j = (z_j + d)_+`` sum to E >= c/(c-1),
    ``s = exp(-E) sum_j exp(e_j)`` is at most ``1 + (c-1) exp(-E) <= 1 + (c-1) exp(-c/(c-1))``,
    which a perfect row attains: a draw of the prior is kept with probability
    ``prod_i s(z_i)/bound``, and labels are drawn by L.
    The same with ``squared``: of the codes, a distance D apart, all but one are D/2 or more from z,
    and s is at most ``1 + (c-1) exp(-D^2/(8 s^2))``.
``paired``
    ``independent``. Which scores exist depends on the labels: these are drawn first, uniformly,
    then the scores, and a draw is kept with probability ``prod_i L(y_i | z_i)``.

Rows are drawn one after the other, and a draw that is rejected at one row is dropped at once, so
that the cost is that of the first few rows. Nothing here is shared with the sampler but the factor
of the kernel, the contrast of the classes and the hyperparameters.

Collapsed HMC samples a model of its own (:mod:`bmsvm.models.integrated`): the noise of a row is one
of a few equally probable nodes, and its variance is ``sigma2 (1 + h/tau)``, where h is the part of
k(x, x) that a basis of low rank leaves out. That model is simulated if the nodes are given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from bmsvm import Hyperparameters, Problem
from bmsvm.models import Position
from bmsvm.models.couplings import contrast

__all__ = ["COMPACT", "LIVELY", "Joint", "draw_joint", "draw_parameters", "likelihood_of_rows"]

LIVELY = Hyperparameters(
    noise_shape=5.0,
    noise_rate=4.0,
    precision_shape=3.0,
    precision_rate=2.0,
    intercept_precision=2.0,
)
"""Priors under which no scale is much larger than another, so that every term matters."""

COMPACT = Hyperparameters(
    noise_shape=10.0,
    noise_rate=3.0,
    precision_shape=6.0,
    precision_rate=4.0,
    intercept_precision=2.0,
)
"""The same for ``squared``: scores are about as large as codes, or hardly a draw would be kept."""

BATCH = 1 << 16


class Joint(NamedTuple):
    """Draws of everything; every array leads with their number.

    position
        The parameters; ``kernel`` numbers theta in the grid, or is None where it is fixed.
    functions
        Column functions at the rows, shape (size, n, k).
    labels
        Class indices, shape (size, n).
    """

    position: Position
    functions: np.ndarray
    labels: np.ndarray


def draw_parameters(
    rng: np.random.Generator, size: int, problem: Problem
) -> tuple[Position, np.ndarray]:
    """Draw from the prior all but the scores; and the column functions, shape (size, n, k).

    The factor of the problem may lead with ``size``.
    """
    basis, eigenvalues = (np.asarray(part) for part in problem.factor)
    hyper, k = problem.hyper, problem.n_columns
    noise = 1 / rng.gamma(float(hyper.noise_shape) / 2, 2 / float(hyper.noise_rate), size)
    precision = rng.gamma(float(hyper.precision_shape) / 2, 2 / float(hyper.precision_rate), size)
    sigma = np.sqrt(noise)[:, None]
    intercept = sigma * rng.normal(size=(size, k)) / np.sqrt(float(hyper.intercept_precision))
    weights = rng.normal(size=(size, eigenvalues.shape[-1], k)) * (eigenvalues > 0)[..., None]
    weights *= (sigma / np.sqrt(precision)[:, None])[:, None]
    functions = intercept[:, None] + (basis * np.sqrt(eigenvalues)[..., None, :]) @ weights
    position = Position(cast(Any, None), *map(_array, (intercept, weights, noise, precision)))
    return position, functions


def _array(values: np.ndarray) -> jax.Array:
    """Pass a NumPy array where the type says JAX."""
    return cast(jax.Array, values)


def likelihood_of_rows(scores: np.ndarray, labels: np.ndarray, likelihood: str) -> np.ndarray:
    """L(y | z) of scores (..., c) at labels (...): eqs. (11) and (21), or the largest score.

    Under ``squared`` ``exp(-|z - code_y|^2/(2 s^2))`` with s half the margin offset.
    """
    c = scores.shape[-1]
    if likelihood == "squared":
        codes = (c * np.eye(c) - 1) / (c - 1)
        distance = np.sum((scores - codes[labels]) ** 2, axis=-1)
        return np.exp(-2 * (c - 1) ** 2 * distance)
    if likelihood == "probit":
        return (scores.argmax(-1) == labels).astype(float)
    excess = np.maximum(scores + 1 / (c - 1), 0)
    own = np.take_along_axis(excess, labels[..., None], -1)[..., 0]
    if likelihood == "hinge":
        return np.exp(own - excess.sum(-1))
    largest = excess.max(-1)
    return np.exp(own - largest) / np.exp(excess - largest[..., None]).sum(-1)


def _noise(
    rng: np.random.Generator, shape: tuple[int, ...], nodes: np.ndarray | None
) -> np.ndarray:
    """Noise of one row, shape (size, k): standard normal, or one of the nodes (J, k)."""
    if nodes is None:
        return rng.normal(size=shape)
    return nodes[rng.integers(len(nodes), size=shape[0])]


def _scales(position: Position, problem: Problem, nodes: np.ndarray | None) -> np.ndarray:
    """Scale of the noise of each row, shape (size, n)."""
    variance, precision = (
        np.asarray(part)[:, None] for part in (position.noise_variance, position.precision)
    )
    left = np.zeros(problem.n_rows)
    if nodes is not None and problem.remainder is not None:
        left = np.asarray(problem.remainder)
    return np.sqrt(variance * (1 + left / precision))


def _rows_of_scores(
    rng: np.random.Generator,
    means: np.ndarray,
    sigma: np.ndarray,
    problem: Problem,
    nodes: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns (size, k), a label (size,) and whether it is kept, for one row with means (size, k).

    One of the three ways above; see the docstring of the module.
    """
    c, likelihood = problem.n_classes, problem.likelihood
    size = len(means)
    columns = means + sigma[:, None] * _noise(rng, means.shape, nodes)
    if problem.coupling == "independent":
        labels = rng.integers(c, size=size)
        columns[np.arange(size), labels] = 0.0
        scores = columns.copy()
        scores[np.arange(size), labels] = -columns.sum(-1)
        return (
            columns,
            labels,
            rng.uniform(size=size) < likelihood_of_rows(scores, labels, likelihood),
        )
    scores = columns @ contrast(c).T
    each = np.stack(
        [likelihood_of_rows(scores, np.full(size, j), likelihood) for j in range(c)], axis=-1
    )
    total = each.sum(-1)
    tilted = likelihood in ("hinge", "squared")
    exponent = c / (c - 1) if likelihood == "hinge" else c**2  # D^2 = 2 c^2/(c-1)^2
    bound = 1 + (c - 1) * np.exp(-exponent) if tilted else 1.0
    assert np.all(total <= bound * (1 + 1e-12))
    kept = rng.uniform(size=size) * bound < total if tilted else np.full(size, True)
    shares = np.cumsum(each, axis=-1)
    labels = (rng.uniform(size=size)[:, None] * shares[:, -1:] >= shares).sum(-1)
    return columns, np.minimum(labels, c - 1), kept


def _draw_batch(
    rng: np.random.Generator, size: int, problem: Problem, nodes: np.ndarray | None
) -> Joint:
    """Draw ``size`` times from the prior; return the accepted draws, with scores and labels."""
    kernel, here = None, problem
    if problem.grid is not None:
        log_prior = np.asarray(problem.grid.log_prior)
        chances = np.exp(log_prior - log_prior.max())
        kernel = rng.choice(len(chances), size=size, p=chances / chances.sum())
        factor, remainder = jax.tree.map(
            lambda leaf: np.asarray(leaf)[kernel], (problem.grid.factors, problem.grid.remainder)
        )
        here = replace(problem, factor=factor, remainder=remainder)
    position, functions = draw_parameters(rng, size, here)
    scales = _scales(position, here, nodes)
    alive = np.arange(size)
    columns = np.zeros(functions.shape)
    labels = np.zeros(functions.shape[:2], int)
    for row in range(problem.n_rows):
        drawn, label, kept = _rows_of_scores(
            rng, functions[alive, row], scales[alive, row], problem, nodes
        )
        columns[alive, row], labels[alive, row] = drawn, label
        alive = alive[kept]
    full = position._replace(columns=_array(columns), kernel=cast(Any, kernel))
    return jax.tree.map(lambda leaf: leaf[alive], Joint(full, functions, labels))


def draw_joint(
    rng: np.random.Generator, size: int, problem: Problem, nodes: np.ndarray | None = None
) -> Joint:
    """Draw parameters, scores and labels from the joint distribution, exactly.

    Parameters
    ----------
    rng
        Source of randomness.
    size
        Number of independent draws.
    problem
        The model, without row weights; theta fixed or on a grid. Its own labels do not matter.
    nodes
        Equally probable values of the noise of a row, shape (J, k), for the model of collapsed
        HMC: ``setup.reference.nodes``. None: the noise is normal.
    """
    if problem.row_weights is not None or problem.family is not None:
        raise ValueError("problem must have no row weights, and theta fixed or on a grid")
    parts: list[Joint] = []
    found, batch = 0, max(size, 64)
    while found < size:
        part = _draw_batch(rng, batch, problem, nodes)
        parts.append(part)
        found += len(part.labels)
        batch = BATCH
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:size], *parts)
