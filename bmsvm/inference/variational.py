"""A fast approximate posterior: stochastic variational inference on mini-batches of rows.

The density is that of the sampler, with the noise of the scores integrated out row by row by fixed
quasi-random points, so that what is left, the intercept, the weights, sigma2 and tau, does not grow
with the data and a batch of rows gives an unbiased estimate of the objective. In the whitened
coordinates of :mod:`bmsvm.models.numpyro_model` the posterior is close to a normal, which
is what is fitted, by NumPyro's SVI and optax. docs/distributed.md says how far it is from MCMC.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoNormal
from tqdm.auto import tqdm

from bmsvm._validation import check_choice, check_count, check_positive
from bmsvm.inference.quasirandom import normal_points
from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import noise_prior, precision_prior
from bmsvm.models.likelihoods import log_likelihoods_of_several, log_mean_likelihood
from bmsvm.models.problem import Problem

__all__ = ["GUIDES", "VariationalFit", "fit_variational"]

GUIDES: dict[str, Any] = {"diagonal": AutoNormal, "low-rank": AutoLowRankMultivariateNormal}
"""Kinds of normal distributions to fit."""

START_SCALE = 0.1
"""Standard deviation of each coordinate to begin with."""

POINTS_SEED = 0

PIECE = 100
"""Steps between two looks at the progress bar."""


@dataclass(frozen=True)
class VariationalFit:
    """A normal approximation of the posterior in whitened coordinates.

    problem
        The prepared data.
    losses
        Estimates of minus the evidence lower bound, one a step, shape (steps,).
    guide
        NumPyro's guide.

    Parameters
    ----------
        What was fitted: parameters of the guide.
    points
        Points at which the noise of the scores was integrated, shape (J, k).
    """

    problem: Problem
    losses: np.ndarray
    guide: Any
    parameters: dict[str, Any]
    points: np.ndarray

    def sample(
        self, rng_key: jax.Array, num_samples: int, *, scores: bool = False
    ) -> dict[str, np.ndarray]:
        """Draws of ``weights``, ``intercept``, ``noise_variance``, ``precision``, and ``scores``.

        Each has the shape (1, draw, ...), as one chain would: what
        :func:`bmsvm.inference.posterior.posterior_of` needs to predict. The last, (n, c) for each
        draw, only if asked for.
        """
        check_count("num_samples", num_samples)
        drawn = self._draw(rng_key, num_samples)
        if scores:
            drawn["scores"] = self._scores(jax.random.fold_in(rng_key, 1), drawn)
        drawn["intercept"] = class_vector(drawn.pop("columns"), self.problem.coupling)
        return {name: np.asarray(value)[None] for name, value in drawn.items()}

    def init_params(self, rng_key: jax.Array, num_chains: int = 4) -> dict[str, jax.Array]:
        """Where chains may start: ``init_params`` of :func:`bmsvm.run_chains`.

        Draws of sigma2 and tau, and scores drawn given the functions and the labels, by choosing
        among the points of the noise in proportion to the likelihood.
        """
        check_count("num_chains", num_chains)
        drawn = self._draw(rng_key, num_chains)
        return {
            "scores": self._scores(jax.random.fold_in(rng_key, 1), drawn),
            "noise_variance": drawn["noise_variance"],
            "precision": drawn["precision"],
        }

    def _scores(self, rng_key: jax.Array, drawn: dict[str, jax.Array]) -> jax.Array:
        """Scores of each draw given its functions and the labels, shape (draw, n, c)."""
        problem = self.problem
        points = jnp.asarray(self.points, problem.factor.basis.dtype)

        def scores(inputs):
            key, columns, weights, noise_variance, precision = inputs
            at_rows = _functions(columns, weights, problem.factor.basis, problem)
            scale = _noise_scale(noise_variance, precision, problem.remainder)
            each = _scores_at_points(at_rows, scale, points, problem)
            logits = log_likelihoods_of_several(
                each, problem.labels, problem.likelihood, problem.row_weights
            )
            chosen = jax.random.categorical(key, logits, axis=1)
            return jnp.take_along_axis(each, chosen[:, None, None], axis=1)[:, 0]

        sites = (drawn[name] for name in ("columns", "weights", "noise_variance", "precision"))
        keys = jax.random.split(rng_key, len(drawn["precision"]))
        return jax.lax.map(scores, (keys, *sites))

    def _draw(self, rng_key: jax.Array, count: int) -> dict[str, jax.Array]:
        white = self.guide.sample_posterior(rng_key, self.parameters, sample_shape=(count,))
        return jax.vmap(lambda each: _parameters(each, self.problem))(
            {name: white[name] for name in SITES}
        )


SITES = ("noise_variance", "precision", "white_intercept", "white_weights")


def _parameters(white: Mapping[str, jax.Array], problem: Problem) -> dict[str, jax.Array]:
    """Turn whitened sites into weights (r, k) and intercepts of the columns (k,)."""
    noise_variance, precision = white["noise_variance"], white["precision"]
    scale = jnp.sqrt(noise_variance)
    in_rank = (problem.factor.eigenvalues > 0)[:, None]
    return {
        "noise_variance": noise_variance,
        "precision": precision,
        "columns": scale * white["white_intercept"] / jnp.sqrt(problem.hyper.intercept_precision),
        "weights": jnp.where(in_rank, scale / jnp.sqrt(precision) * white["white_weights"], 0.0),
    }


def _functions(
    intercept: jax.Array, weights: jax.Array, basis: jax.Array, problem: Problem
) -> jax.Array:
    """Column functions at rows of the basis (m, r): shape (m, k)."""
    roots = jnp.sqrt(problem.factor.eigenvalues).astype(basis.dtype)
    return intercept + basis @ (roots[:, None] * weights)


def _noise_scale(
    noise_variance: jax.Array, precision: jax.Array, remainder: jax.Array | None
) -> jax.Array:
    """Scale of the noise, that of each row (m, 1, 1) where a low rank leaves it a remainder (m,).

    See :func:`bmsvm.models.collapsed.log_scales`.
    """
    if remainder is None:
        return jnp.sqrt(noise_variance)
    return jnp.sqrt(noise_variance * (1 + remainder / precision))[:, None, None]


def _scores_at_points(
    functions: jax.Array, scale: jax.Array, points: jax.Array, problem: Problem
) -> jax.Array:
    """Scores (m, J, c) of functions (m, k) with the noise at each of J points (J, k)."""
    noisy = functions[:, None] + scale * points
    return class_vector(noisy, problem.coupling)


def _model(problem: Problem, points: jax.Array, batch_size: int) -> None:
    """Everything but the noise, which is integrated; the likelihood of a batch is scaled up."""
    n, r, k = problem.n_rows, problem.factor.eigenvalues.shape[0], problem.n_columns
    white = {
        "noise_variance": numpyro.sample("noise_variance", noise_prior(problem)),
        "precision": numpyro.sample("precision", precision_prior(problem)),
        "white_intercept": numpyro.sample("white_intercept", dist.Normal().expand([k]).to_event(1)),
        "white_weights": numpyro.sample("white_weights", dist.Normal().expand([r, k]).to_event(2)),
    }
    found = _parameters(white, problem)
    with numpyro.plate("row", n, subsample_size=batch_size) as rows:
        basis, labels = problem.factor.basis[rows], problem.labels[rows]
        functions = _functions(found["columns"], found["weights"], basis, problem)
        remainder = None if problem.remainder is None else problem.remainder[rows]
        scale = _noise_scale(found["noise_variance"], found["precision"], remainder)
        scores = _scores_at_points(functions, scale, points, problem)
        weights = None if problem.row_weights is None else problem.row_weights[rows]
        integrated = log_mean_likelihood(scores, labels, problem.likelihood, weights)
        numpyro.factor("labels", integrated)


def fit_variational(
    problem: Problem,
    *,
    rng_key: jax.Array,
    batch_size: int | None = None,
    num_steps: int = 2000,
    step_size: float = 0.02,
    guide: str = "diagonal",
    points: int = 32,
    progress_bar: bool = True,
) -> VariationalFit:
    """Fit a normal approximation to the posterior, a batch of rows at a time.

    Parameters
    ----------
    problem
        Prepared data, with a fixed kernel and ``coupling="sum_to_zero"``; not ``probit``, whose
        likelihood has no slope.
    rng_key
        Random key.
    batch_size
        Rows of a step. Default: 1024, or all if there are fewer.
    num_steps
        Steps of the optimiser.
    step_size
        Of Adam, at first; it falls to nothing along a cosine.
    guide
        ``"diagonal"``, coordinates independent, or ``"low-rank"``.
    points
        Points at which the noise of the scores is integrated; a power of two.
    progress_bar
        Whether to show progress.
    """
    check_count("num_steps", num_steps)
    check_count("points", points, smallest=2)
    check_positive("step_size", step_size)
    check_choice("guide", guide, GUIDES)
    if problem.samples_kernel or problem.coupling != "sum_to_zero":
        raise ValueError(
            'problem must have a fixed kernel and coupling="sum_to_zero"; got coupling='
            f"{problem.coupling!r}{', and a sampled kernel' if problem.samples_kernel else ''}"
        )
    if problem.likelihood == "probit":
        raise ValueError(
            'likelihood must be "hinge" or "normalized", which have a slope; got probit'
        )
    batch_size = min(1024, problem.n_rows) if batch_size is None else batch_size
    check_count("batch_size", batch_size)
    if batch_size > problem.n_rows:
        raise ValueError(f"batch_size must be at most {problem.n_rows}, the rows; got {batch_size}")
    optimiser = _adam(step_size, num_steps)
    noise = normal_points(points, problem.n_columns, POINTS_SEED)
    arguments = problem, jnp.asarray(noise, problem.factor.basis.dtype)
    chosen = GUIDES[guide](_model, init_scale=START_SCALE)
    svi = SVI(_model, chosen, optimiser, Trace_ELBO())
    state, losses = svi.init(rng_key, *arguments, batch_size), []
    with tqdm(total=num_steps, desc="variational", disable=not progress_bar) as bar:
        for begin in range(0, num_steps, PIECE):
            count = min(PIECE, num_steps - begin)
            state, found = _steps(state, count, *arguments, svi=svi, batch_size=batch_size)
            losses.append(np.asarray(found)[:count])
            bar.update(count)
    return VariationalFit(problem, np.concatenate(losses), chosen, svi.get_params(state), noise)


@functools.partial(jax.jit, static_argnames=("svi", "batch_size"))
def _steps(
    state: Any, count: jax.Array, problem: Problem, points: jax.Array, *, svi: SVI, batch_size: int
) -> tuple[Any, jax.Array]:
    """Make ``count`` steps; losses past ``count`` are zeros. The data are not compiled in."""

    def step(i, carry):
        state, losses = carry
        state, loss = svi.update(state, problem, points, batch_size)
        return state, losses.at[i].set(loss)

    return jax.lax.fori_loop(0, count, step, (state, jnp.zeros(PIECE, points.dtype)))


def _adam(step_size: float, num_steps: int) -> Any:
    try:
        import optax
    except ImportError as error:
        raise ImportError(
            "fit_variational needs optax, which is not installed: pip install 'bmsvm[variational]'"
        ) from error
    return optax.adam(optax.cosine_decay_schedule(step_size, num_steps))
