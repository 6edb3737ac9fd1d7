"""The hierarchy as a NumPyro model, built from the same functions as everything else.

Everything Gaussian is a standard normal site pushed through the model's own maps, so that NUTS
sees a whitened density; what a user wants to read are deterministic sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import Position, latent, noise_prior, precision_prior, scores_of
from bmsvm.models.likelihoods import LIKELIHOODS, class_probabilities, weigh
from bmsvm.models.problem import Problem
from bmsvm.models.theta import KernelFamily, family_gram, named_parameters
from bmsvm.models.whitening import White, colour, white_shapes

__all__ = [
    "Labels",
    "hierarchical_model",
    "machine_sites",
    "observation_model",
    "position_of_sites",
]


class Labels(dist.Distribution):
    """Distribution of the labels given the scores.

    Under ``hinge`` the log density is the pseudo-likelihood (11), a factor that does not sum to
    one over the classes; draws are then from the class probabilities (21). Under ``squared`` it
    does not sum to one either; draws are from its shares.

    Parameters
    ----------
    scores
        Z, shape (n, c).
    likelihood
        A name from :data:`bmsvm.models.likelihoods.LIKELIHOODS`.
    weights
        Weight of each row's log likelihood, shape (n,); None where all are one. Draws do not
        depend on it.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"scores": constraints.real_matrix}
    pytree_data_fields = ("scores", "weights")
    pytree_aux_fields = ("likelihood",)

    def __init__(
        self,
        scores: jax.Array,
        likelihood: str,
        weights: jax.Array | None = None,
        *,
        validate_args: bool | None = None,
    ):
        self.scores = scores
        self.likelihood = likelihood
        self.weights = weights
        super().__init__(batch_shape=scores.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """Class indices."""
        return constraints.integer_interval(0, self.scores.shape[-1] - 1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log (pseudo-)likelihood of each row times its weight, shape (n,)."""
        return weigh(LIKELIHOODS[self.likelihood](self.scores, value), self.weights)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Labels drawn from their class probabilities, shape ``sample_shape + (n,)``."""
        logits = jnp.log(class_probabilities(self.scores, self.likelihood))
        return jax.random.categorical(key, logits, shape=(*sample_shape, *self.batch_shape))


def _sample_parameters(family: KernelFamily) -> Any:
    """Kernel parameters as sites, each named by its path in the pytree."""
    is_prior = lambda leaf: isinstance(leaf, dist.Distribution)  # noqa: E731
    named = named_parameters(family.prior, is_leaf=is_prior)
    drawn = [numpyro.sample(name, prior) for name, prior in named.items()]
    return jax.tree.unflatten(jax.tree.structure(family.prior, is_leaf=is_prior), drawn)


def _cholesky_factors(parameters: Any, precision: jax.Array, problem: Problem) -> jax.Array:
    """Lower L with LL' = I + K/tau over the rows each group observes, shape (g, n, n)."""
    family = cast(KernelFamily, problem.family)
    observed = problem.design.mask
    seen = observed[:, :, None] * observed[:, None, :] * family_gram(parameters, family)
    return jnp.linalg.cholesky(jnp.eye(problem.n_rows) + seen / precision)


def hierarchical_model(
    problem: Problem, *, integrate_weights: bool = True, observed: bool = True
) -> None:
    """Run the model of section 3 as a NumPyro program.

    Sites: ``noise_variance``, ``precision``, whitened Gaussians, the deterministic ``intercept``
    (class) and ``scores`` (row, class), and the observed ``y`` (row); where the kernel's
    parameters are sampled off a grid, these too, with a Cholesky factor for each of their values.

    Parameters
    ----------
    problem
        Prepared data.
    integrate_weights
        Whether the weights are integrated out, which is the density that the default sampler
        and the benchmarks use. If not, there are deterministic sites ``weights`` (r, k) and
        ``latent``, the class functions at the rows (row, class), too.
    observed
        Whether ``y`` is the data. If not it is drawn, as posterior predictive checks need. With
        draws of :class:`bmsvm.BMSVMGibbs`, whose scores are a deterministic site here, pass
        ``condition_deterministic=True`` to ``numpyro.infer.Predictive``.
    """
    n, k = problem.n_rows, problem.n_columns
    noise_variance = numpyro.sample("noise_variance", noise_prior(problem))
    precision = numpyro.sample("precision", precision_prior(problem))
    scale = jnp.sqrt(noise_variance)

    def white(name: str, *shape: int) -> jax.Array:
        return numpyro.sample(name, dist.Normal().expand(shape).to_event(len(shape)))

    if problem.grid is not None or (problem.family is not None and not integrate_weights):
        raise ValueError(
            "a NumPyro model with the kernel's parameters needs data prepared with "
            'Sampled(grid="off"), and integrate_weights=True'
        )
    intercept = scale * white("white_intercept", k) / jnp.sqrt(problem.hyper.intercept_precision)
    if problem.family is not None:
        factors = _cholesky_factors(_sample_parameters(problem.family), precision, problem)
        noise = white("white_noise", n, k).reshape(n, factors.shape[0], -1)
        columns = jnp.einsum("gnm,mgj->ngj", factors, noise).reshape(n, k)
        columns = intercept + scale * columns
    elif integrate_weights:
        inside, outside = white_shapes(problem)
        coordinates = White(
            white("white_inside", *inside),
            None if outside is None else white("white_outside", *outside),
        )
        columns = intercept + scale * colour(coordinates, precision, problem)
    else:
        rank = problem.factor.eigenvalues.shape[0]
        weights = scale / jnp.sqrt(precision) * white("white_weights", rank, k)
        numpyro.deterministic("weights", weights)
        functions = latent(intercept, weights, problem)
        columns = functions + scale * white("white_noise", n, k)
    rows = numpyro.plate("row", n, dim=-2)
    with numpyro.plate("class", problem.n_classes, dim=-1):
        numpyro.deterministic("intercept", class_vector(intercept, problem.coupling))
        with rows:
            if not integrate_weights:
                numpyro.deterministic("latent", class_vector(functions, problem.coupling))
            scores = numpyro.deterministic("scores", scores_of(columns, problem))
    with numpyro.plate("row", n, dim=-1):
        labels = problem.labels if observed else None
        numpyro.sample("y", Labels(scores, problem.likelihood, problem.row_weights), obs=labels)


def machine_sites(position: Position, problem: Problem) -> dict[str, jax.Array]:
    """Sites of :func:`hierarchical_model` with ``integrate_weights=False`` at a position.

    They are independent of everything where a column does not observe a row, and past the rank of
    K; there they are zero.
    """
    scale = jnp.sqrt(position.noise_variance)
    root_eta = jnp.sqrt(problem.hyper.intercept_precision)
    functions = latent(position.intercept, position.weights, problem)
    observed = problem.design.mask.T > 0
    return {
        "noise_variance": position.noise_variance,
        "precision": position.precision,
        "white_intercept": position.intercept * root_eta / scale,
        "white_weights": position.weights * jnp.sqrt(position.precision) / scale,
        "white_noise": jnp.where(observed, position.columns - functions, 0.0) / scale,
    }


def position_of_sites(
    sites: Mapping[str, jax.Array], position: Position, problem: Problem
) -> Position:
    """Undo :func:`machine_sites`, under a problem whose hyperparameters may be others."""
    noise_variance, precision = sites["noise_variance"], sites["precision"]
    scale = jnp.sqrt(noise_variance)
    intercept = scale * sites["white_intercept"] / jnp.sqrt(problem.hyper.intercept_precision)
    weights = scale / jnp.sqrt(precision) * sites["white_weights"]
    columns = latent(intercept, weights, problem) + scale * sites["white_noise"]
    return position._replace(
        columns=jnp.where(problem.design.mask.T > 0, columns, 0.0),
        intercept=intercept,
        weights=weights,
        noise_variance=noise_variance,
        precision=precision,
    )


def observation_model(labels_of: Callable[..., tuple[Any, int, str, Any]]) -> Callable[..., None]:
    """Model of data ``(X, y)`` in which ArviZ finds the labels, their dims and likelihood.

    It holds what depends on a draw's ``scores`` alone. Without them the scores are NaN, and so
    is the log likelihood.

    Parameters
    ----------
    labels_of
        From the model's arguments to labels (n,), the number of classes, the likelihood and the
        weights of the rows.
    """

    def model(*args: Any, **kwargs: Any) -> None:
        labels, n_classes, likelihood, weights = labels_of(*args, **kwargs)
        missing = jnp.full((len(labels), n_classes), jnp.nan)
        rows = numpyro.plate("row", len(labels), dim=-2)
        with numpyro.plate("class", n_classes, dim=-1):
            numpyro.deterministic("intercept", missing[0])
            with rows:
                scores = numpyro.deterministic("scores", missing)
        observed = Labels(scores, likelihood, weights, validate_args=False)
        with numpyro.plate("row", len(labels), dim=-1):
            numpyro.sample("y", observed, obs=labels)

    return model
