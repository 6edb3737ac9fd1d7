"""Draws from the joint distribution of parameters, scores and labels, in plain NumPy.

The model's density of everything is ``p(parameters) p(S | parameters, y) prod_i L(y_i | z_i)``, S
being the scores that exist. Every likelihood is at most 1, and so each of its forms can be drawn
from exactly, with no chain:

``direct``
    ``sum_to_zero`` with ``normalized``. All scores exist whatever the labels are, and
    L sums to 1 over the labels: parameters, scores and labels in turn.
``tilted``
    ``sum_to_zero`` with ``hinge``, which sums to ``s(z) = sum_j L(j | z)`` and not to 1. The joint
    density, normalised over labels and scores, has ``prod_i s(z_i)`` beside the prior. Since the
    excesses ``e_j = (z_j + d)_+`` sum to E >= c/(c-1), ``s = exp(-E) sum_j exp(e_j)`` is at most
    ``1 + (c-1) exp(-E) <= 1 + (c-1) exp(-c/(c-1))``, which a perfect row attains: a draw of the
    prior is kept with probability ``prod_i s(z_i)/bound``, and labels are drawn by L.
``squared``
    ``sum_to_zero`` with ``squared``, which does not sum to 1 either. Hardly a draw of the prior has
    all its scores near codes. But L is Gaussian: given (theta, tau, sigma2) the evidence
    ``E prod_i L(y_i | z_i)`` is a normal density of the codes. Its sum over all labels decides
    which values are kept, labels are drawn by its terms, and all else by conditioning a draw of the
    prior on their codes.
``paired``
    ``independent``. Which scores exist depends on the labels: these are drawn first, uniformly,
    then the scores, and a draw is kept with probability ``prod_i L(y_i | z_i)``.

Rows are drawn one after the other, and a draw that is rejected at one row is dropped at once, so
that the cost is that of the first few rows. Nothing here is shared with the sampler but the factor
of the kernel, the contrast of the classes and the hyperparameters.
"""

from __future__ import annotations

import itertools
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
"""The same for ``squared``: scores are about as large as codes, and more draws are kept."""

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


def _array(values: Any) -> jax.Array:
    """Pass a NumPy array where the type says JAX."""
    return cast(jax.Array, values)


def likelihood_of_rows(scores: np.ndarray, labels: np.ndarray, likelihood: str) -> np.ndarray:
    """L(y | z) of scores (..., c) at labels (...): eqs. (11) and (21).

    Under ``squared`` ``exp(-|z - code_y|^2/(2 s^2))`` with s half the margin offset.
    """
    c = scores.shape[-1]
    if likelihood == "squared":
        codes = (c * np.eye(c) - 1) / (c - 1)
        distance = np.sum((scores - codes[labels]) ** 2, axis=-1)
        return np.exp(-2 * (c - 1) ** 2 * distance)
    excess = np.maximum(scores + 1 / (c - 1), 0)
    own = np.take_along_axis(excess, labels[..., None], -1)[..., 0]
    if likelihood == "hinge":
        return np.exp(own - excess.sum(-1))
    largest = excess.max(-1)
    return np.exp(own - largest) / np.exp(excess - largest[..., None]).sum(-1)


def _rows_of_scores(
    rng: np.random.Generator, means: np.ndarray, sigma: np.ndarray, problem: Problem
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns (size, k), a label (size,) and whether it is kept, for one row with means (size, k).

    One of the three ways above; see the docstring of the module.
    """
    c, likelihood = problem.n_classes, problem.likelihood
    size = len(means)
    columns = means + sigma[:, None] * rng.normal(size=means.shape)
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
    tilted = likelihood == "hinge"
    bound = 1 + (c - 1) * np.exp(-c / (c - 1)) if tilted else 1.0
    assert np.all(total <= bound * (1 + 1e-12))
    kept = rng.uniform(size=size) * bound < total if tilted else np.full(size, True)
    shares = np.cumsum(each, axis=-1)
    labels = (rng.uniform(size=size)[:, None] * shares[:, -1:] >= shares).sum(-1)
    return columns, np.minimum(labels, c - 1), kept


def _draw_kernel(
    rng: np.random.Generator, size: int, problem: Problem
) -> tuple[np.ndarray | None, Problem]:
    """Draw theta from its prior, and return the problem with the factors of the draws."""
    if problem.grid is None:
        return None, problem
    log_prior = np.asarray(problem.grid.log_prior)
    chances = np.exp(log_prior - log_prior.max())
    kernel = rng.choice(len(chances), size=size, p=chances / chances.sum())
    factor = jax.tree.map(lambda leaf: np.asarray(leaf)[kernel], problem.grid.factors)
    return kernel, replace(problem, factor=factor)


class _Evidence(NamedTuple):
    """Evidence of all labels at N values of the parameters, under ``squared``.

    labels, codes
        All l = c^n labels, shape (l, n), and their codes in columns, shape (l, n, k).
    values
        ``E prod_i L(y_i | z_i)``, shape (N, l).
    scores
        Covariance of a column of scores, shape (N, n, n).
    inverse
        Inverse of the covariance of a column of codes, shape (N, n, n).
    """

    labels: np.ndarray
    codes: np.ndarray
    values: np.ndarray
    scores: np.ndarray
    inverse: np.ndarray


def _evidence(
    design: np.ndarray, noise_variance: np.ndarray, precision: np.ndarray, eta: float, c: int
) -> _Evidence:
    """Return normal densities of the codes of all labels, of rows with design (N, n, r)."""
    n, spread = design.shape[1], 0.25 / (c - 1) ** 2  # s^2
    sigma2, tau = noise_variance[:, None, None], precision[:, None, None]
    scores = sigma2 * (design @ np.swapaxes(design, 1, 2) / tau + 1 / eta + np.eye(n))
    inverse = np.linalg.inv(scores + spread * np.eye(n))
    labels = np.array(list(itertools.product(range(c), repeat=n)))
    codes = (((c * np.eye(c) - 1) / (c - 1)) @ contrast(c))[labels]
    pairs = np.einsum("lik,ljk->lij", codes, codes).reshape(len(labels), -1)
    logs = -0.5 * inverse.reshape(len(inverse), -1) @ pairs.T
    logs += 0.5 * (c - 1) * (np.linalg.slogdet(inverse)[1][:, None] + n * np.log(spread))
    return _Evidence(labels, codes, np.exp(logs), scores, inverse)


def _most_evidence(problem: Problem) -> float:
    """Bound of the evidence of all labels together: a little above its largest value on a grid."""
    factors = problem.factor if problem.grid is None else problem.grid.factors
    basis, eigenvalues = (np.asarray(part) for part in factors)
    designs = basis * np.sqrt(eigenvalues)[..., None, :]
    designs = designs.reshape(-1, *designs.shape[-2:])
    sigma2, tau = (
        each.ravel()
        for each in np.meshgrid(np.geomspace(1e-4, 1e3, 40), np.geomspace(1e-5, 1e5, 40))
    )
    eta = float(problem.hyper.intercept_precision)
    largest = 0.0
    for design in designs:
        each = np.broadcast_to(design, (len(tau), *design.shape))
        found = _evidence(each, sigma2, tau, eta, problem.n_classes)
        largest = max(largest, float(found.values.sum(axis=1).max()))
    return 1.1 * largest


def _draw_squared(
    rng: np.random.Generator,
    position: Position,
    functions: np.ndarray,
    kernel: np.ndarray | None,
    problem: Problem,
    bound: float,
) -> Joint:
    """Keep draws of the prior by their evidence, and condition them on labels that are drawn."""
    basis, eigenvalues = (np.asarray(part) for part in problem.factor)
    design = basis * np.sqrt(eigenvalues)[..., None, :]
    design = np.broadcast_to(design, (len(functions), *design.shape[-2:]))
    sigma2, tau = (np.asarray(part) for part in (position.noise_variance, position.precision))
    eta, c = float(problem.hyper.intercept_precision), problem.n_classes
    found = _evidence(design, sigma2, tau, eta, c)
    total = found.values.sum(axis=1)
    assert total.max() < bound
    kept = np.flatnonzero(rng.uniform(size=len(total)) * bound < total)
    below = np.cumsum(found.values[kept], axis=1)
    chosen = (rng.uniform(size=len(kept))[:, None] * below[:, -1:] >= below).sum(axis=1)
    position, functions, design = jax.tree.map(
        lambda leaf: leaf[kept], (position, functions, design)
    )
    sigma2, tau = sigma2[kept, None, None], tau[kept, None, None]
    columns = functions + np.sqrt(sigma2) * rng.normal(size=functions.shape)
    noisy = columns + 0.5 / (c - 1) * rng.normal(size=functions.shape)
    change = found.inverse[kept] @ (found.codes[chosen] - noisy)
    weights = position.weights + sigma2 / tau * np.swapaxes(design, 1, 2) @ change
    intercept = position.intercept + sigma2[:, 0] / eta * change.sum(axis=1)
    full = position._replace(
        columns=_array(columns + found.scores[kept] @ change),
        weights=_array(weights),
        intercept=_array(intercept),
        kernel=cast(Any, None if kernel is None else kernel[kept]),
    )
    return Joint(full, intercept[:, None] + design @ weights, found.labels[chosen])


def _draw_batch(rng: np.random.Generator, size: int, problem: Problem, bound: float) -> Joint:
    """Draw ``size`` times from the prior; return the accepted draws, with scores and labels.

    ``bound`` is that of the evidence under ``squared``.
    """
    kernel, here = _draw_kernel(rng, size, problem)
    position, functions = draw_parameters(rng, size, here)
    if problem.likelihood == "squared" and problem.coupling == "sum_to_zero":
        return _draw_squared(rng, position, functions, kernel, here, bound)
    sigma = np.sqrt(np.asarray(position.noise_variance))
    alive = np.arange(size)
    columns = np.zeros(functions.shape)
    labels = np.zeros(functions.shape[:2], int)
    for row in range(problem.n_rows):
        drawn, label, kept = _rows_of_scores(rng, functions[alive, row], sigma[alive], problem)
        columns[alive, row], labels[alive, row] = drawn, label
        alive = alive[kept]
    full = position._replace(columns=_array(columns), kernel=cast(Any, kernel))
    return jax.tree.map(lambda leaf: leaf[alive], Joint(full, functions, labels))


def draw_joint(rng: np.random.Generator, size: int, problem: Problem) -> Joint:
    """Draw parameters, scores and labels from the joint distribution, exactly.

    Parameters
    ----------
    rng
        Source of randomness.
    size
        Number of independent draws.
    problem
        The model, without row weights; theta fixed or on a grid. Its own labels do not matter.
    """
    if problem.row_weights is not None or problem.family is not None:
        raise ValueError("problem must have no row weights, and theta fixed or on a grid")
    in_closed_form = problem.likelihood == "squared" and problem.coupling == "sum_to_zero"
    bound = _most_evidence(problem) if in_closed_form else 1.0
    parts: list[Joint] = []
    found, batch = 0, max(size, 64)
    while found < size:
        part = _draw_batch(rng, batch, problem, bound)
        parts.append(part)
        found += len(part.labels)
        batch = 1 << 13 if in_closed_form else BATCH
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:size], *parts)
