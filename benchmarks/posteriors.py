"""Posteriors of the benchmark of samplers: their data, their density, and what is watched of draws.

Every sampler moves, or is translated into, the same coordinates: those in which the prior of
everything Gaussian is a standard normal, with log sigma2 and log tau beside them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from data import stratified_split

from bmsvm import PAPER, Hyperparameters, ModeCV, prepare, scaling
from bmsvm.models.couplings import class_vector, to_columns
from bmsvm.models.hierarchy import (
    log_likelihood,
    log_noise_prior,
    log_precision_prior,
    typical_precision,
)
from bmsvm.models.problem import Problem
from bmsvm.models.whitening import White, colour, white_shapes, whiten

LENGTHSCALES = {"wine": 3.5, "glass": 10.0, "vehicle": 6.0, "waveform": 3.5, "ecoli": 3.0}
"""theta under the paper's priors, in units of the standardised features."""

WATCHED_ROWS = 10


class Coordinates(NamedTuple):
    """Whitened columns (1, k, n), whitened intercept (k,), and (log sigma2, log tau)."""

    inside: jax.Array
    intercept: jax.Array
    logs: jax.Array


def training_rows(name: str, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Standardised rows, as the classifier standardises them, and classes; the first ``rows``."""
    split = stratified_split(name, 0)
    X, y = split.train[:rows], split.train_labels[:rows]
    return scaling.learn(X, "robust", None).apply(X), np.unique(y, return_inverse=True)[1]


def default_model(name: str, rows: int | None) -> dict[str, Any]:
    """theta and the priors that the classifier chooses by default, as plain numbers."""
    X, y = training_rows(name, rows)
    found = ModeCV().select(X, y, kernel="gaussian", rng_key=jax.random.key(0))
    numbers = {key: float(value) for key, value in asdict(found.hyperparameters).items()}
    return {"lengthscale": float(found.lengthscale), "hyperparameters": numbers}


def paper_model(name: str) -> dict[str, Any]:
    """theta of :data:`LENGTHSCALES` and the paper's priors, as plain numbers."""
    return {"lengthscale": LENGTHSCALES[name], "hyperparameters": asdict(PAPER)}


def posterior(
    name: str, rows: int | None, model: dict[str, Any], likelihood: str, spare_multiple: int = 1
) -> Problem:
    """Prepare the posterior of a data set; rows of weight zero fill it up to a multiple."""
    X, y = training_rows(name, rows)
    return prepare(
        X,
        y,
        lengthscale=model["lengthscale"],
        likelihood=likelihood,
        hyperparameters=Hyperparameters(**model["hyperparameters"]),
        row_weights=np.ones(len(y)) if spare_multiple > 1 else None,
        spare_rows=-len(y) % spare_multiple,
    )


def _columns(at: Coordinates, problem: Problem) -> jax.Array:
    """Columns T, shape (n, k)."""
    sigma, tau = jnp.exp(0.5 * at.logs[0]), jnp.exp(at.logs[1])
    intercept = at.intercept / jnp.sqrt(problem.hyper.intercept_precision)
    return sigma * (intercept + colour(White(at.inside, None), tau, problem))


def log_density(at: Coordinates, problem: Problem) -> jax.Array:
    """Log posterior density of the coordinates, up to a constant."""
    noise_variance, precision = jnp.exp(at.logs)
    return (
        jnp.sum(log_likelihood(_columns(at, problem), problem))
        - 0.5 * (jnp.sum(at.inside**2) + jnp.sum(at.intercept**2))
        + log_noise_prior(noise_variance, problem)
        + log_precision_prior(precision, problem)
        + jnp.sum(at.logs)
    )


def starts(key: jax.Array, problem: Problem, chains: int) -> Coordinates:
    """Starting points of chains: functions of the prior, typical sigma2 and tau."""
    keys = jax.random.split(key, 3)
    inside, _ = white_shapes(problem)
    typical = jnp.log(
        jnp.stack(
            [problem.hyper.noise_rate / problem.hyper.noise_shape, typical_precision(problem)]
        )
    )
    return Coordinates(
        jax.random.normal(keys[0], (chains, *inside)),
        jax.random.normal(keys[1], (chains, problem.n_columns)),
        typical + 0.5 * jax.random.normal(keys[2], (chains, 2)),
    )


def coordinates_of(samples: dict[str, np.ndarray], problem: Problem) -> Coordinates:
    """Coordinates of draws of ``run_chains``; spare rows at their end are left out."""

    def one(draw: tuple[jax.Array, ...]) -> Coordinates:
        scores, intercept, noise_variance, precision = draw
        columns = to_columns(scores[: problem.n_rows], problem.labels, problem.coupling)
        shift = to_columns(intercept[None], problem.labels[:1], problem.coupling)[0]
        scale = jnp.sqrt(noise_variance)
        white = whiten(White(jnp.zeros(0), None), (columns - shift) / scale, precision, problem)
        return Coordinates(
            white.inside,
            shift / scale * jnp.sqrt(problem.hyper.intercept_precision),
            jnp.log(jnp.stack([noise_variance, precision])),
        )

    sites = [samples[site] for site in ("scores", "intercept", "noise_variance", "precision")]
    return _each_draw(one, tuple(sites))


def watch(draws: Coordinates, problem: Problem) -> dict[str, np.ndarray]:
    """Watched quantities of draws, each of shape (chain, draw).

    They are log sigma2, log tau, the log density, and at ten rows the means of the class functions
    given scores, intercept and tau: a function of the coordinates, with no noise of its own.
    """
    rows = np.unique(np.linspace(0, problem.n_rows - 1, WATCHED_ROWS).astype(int))
    basis, eigenvalues = problem.factor

    def one(at: Coordinates) -> tuple[jax.Array, jax.Array]:
        sigma, tau = jnp.exp(0.5 * at.logs[0]), jnp.exp(at.logs[1])
        shrink = eigenvalues / (eigenvalues + tau) * jnp.sqrt(1 + eigenvalues / tau)
        intercept = at.intercept / jnp.sqrt(problem.hyper.intercept_precision)
        columns = sigma * (intercept + basis[rows] @ (shrink[:, None] * at.inside[0].T))
        return log_density(at, problem), class_vector(columns, problem.coupling)[:, :-1]

    density, functions = _each_draw(one, draws)
    found = {"log sigma2": draws.logs[..., 0], "log tau": draws.logs[..., 1], "density": density}
    for place, row in enumerate(rows):
        for j in range(functions.shape[-1]):  # the last class is determined by the others
            found[f"f {row} {j}"] = functions[:, :, place, j]
    return {name: np.asarray(value) for name, value in found.items()}


def _each_draw(function, draws: Any) -> Any:
    """Apply a function to each draw of a pytree of shape (chain, draw, ...), in float64."""
    shape = jax.tree.leaves(draws)[0].shape[:2]
    flat = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64).reshape(-1, *np.shape(x)[2:]), draws)
    result = jax.jit(lambda x: jax.lax.map(function, x, batch_size=64))(flat)
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), result)
