"""The hierarchy as a NumPyro model, built from the same functions as everything else.

Every Gaussian variable is a standard normal site, transformed by the model's own maps, so that NUTS
samples a whitened density. Scores, functions and intercept are deterministic sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn, cast

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.primitives import apply_stack

from bmsvm.models.couplings import class_vector
from bmsvm.models.family import family_gram, named_parameters
from bmsvm.models.hierarchy import Position, latent, noise_prior, precision_prior, scores_of
from bmsvm.models.likelihoods import LIKELIHOODS, class_probabilities, weigh
from bmsvm.models.problem import Problem, check_precision
from bmsvm.models.theta import KernelFamily
from bmsvm.models.whitening import White, colour, white_shapes


class Labels(dist.Distribution):
    """Distribution of the labels given the scores.

    Under ``hinge`` the log density is the pseudo-likelihood (11), a factor that does not sum to
    one over the classes; draws are then from the class probabilities (21). Under ``squared`` it
    does not sum to one either; draws are from the pseudo-likelihood normalised over the classes.

    Parameters
    ----------
    scores
        Z, shape (n, c).
    likelihood
        A name from :data:`bmsvm.models.likelihoods.LIKELIHOODS`.
    weights
        Weight of each row's log likelihood, shape (n,); None if all are one. Draws do not depend
        on it.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"scores": constraints.real_matrix}
    pytree_data_fields = ("scores", "weights")
    pytree_aux_fields = ("likelihood",)
    has_enumerate_support = True

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

    def enumerate_support(self, expand: bool = True) -> jax.Array:
        """All class indices, shape (c, n); or (c, 1) without ``expand``."""
        classes = jnp.arange(self.scores.shape[-1])[:, None]
        return jnp.broadcast_to(classes, (len(classes), *self.batch_shape)) if expand else classes


class Machine(NamedTuple):
    """What :func:`hierarchical_model` returns to a larger model.

    scores
        Z, shape (n, c).
    functions
        Class functions f at the rows, shape (n, c); None if the weights are integrated out.
    labels
        Class indices, observed or drawn, shape (n,); None if the model has none.
    """

    scores: jax.Array
    functions: jax.Array | None
    labels: jax.Array | None


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


class _NotGivenError(Exception):
    """No handler has a value for a site."""


def _given_draw(name: str, shape: tuple[int, ...]) -> jax.Array | None:
    """Value of a deterministic site in draws that a handler substitutes, or None.

    The message is of type ``param``: by default ``Predictive`` does not substitute deterministic
    sites, and would draw the variables behind them from the prior.
    """

    def not_given() -> NoReturn:
        raise _NotGivenError

    message: Any = {
        "type": "param",
        "name": name,
        "fn": not_given,
        "args": (),
        "kwargs": {},
        "value": None,
        "scale": None,
        "cond_indep_stack": [],
    }
    try:
        value = apply_stack(message)["value"]
    except _NotGivenError:
        return None
    if jnp.shape(value) != shape:
        raise ValueError(
            f"draws of {name!r} must have shape {shape}, that of the problem; got "
            f"{jnp.shape(value)}. Predictions at other rows are those of "
            "bmsvm.Posterior.from_numpyro(mcmc)"
        )
    return value


def _machine_of_draws(
    noise_variance: jax.Array, precision: jax.Array, problem: Problem
) -> Machine | None:
    """Scores from substituted draws, or drawn given their functions; None without draws."""
    n, c = problem.n_rows, problem.n_classes
    scores = _given_draw("scores", (n, c))
    if scores is not None:
        return Machine(scores, None, None)
    intercept = _given_draw("intercept", (c,))
    if intercept is None:
        return None
    coupled = problem.coupling == "sum_to_zero"
    weights = _given_draw("weights", (problem.factor.eigenvalues.shape[0], problem.n_columns))
    if weights is None or not coupled or numpyro.prng_key() is None:
        raise ValueError(
            "draws must have the scores, or, to replicate labels with "
            'coupling="sum_to_zero", the weights; got draws without them'
        )
    functions = intercept + class_vector(latent(jnp.zeros(()), weights, problem), problem.coupling)
    left = 0.0 if problem.remainder is None else problem.remainder[:, None]
    scale = jnp.sqrt(noise_variance * (1 + left / precision))
    noise = scale * _white("white_noise", n, problem.n_columns)
    return Machine(functions + class_vector(noise, problem.coupling), functions, None)


def _white(name: str, *shape: int) -> jax.Array:
    """Sample a site of standard normals."""
    return numpyro.sample(name, dist.Normal().expand(shape).to_event(len(shape)))


def _labels(scores: jax.Array, problem: Problem, observed: bool | None) -> jax.Array | None:
    """Sample the site of the labels: the data, drawn, or none."""
    if observed is None:
        return None
    with numpyro.plate("row", problem.n_rows, dim=-1):
        labels = problem.labels if observed else None
        each = Labels(scores, problem.likelihood, problem.row_weights)
        return numpyro.sample("y", each, obs=labels)


def hierarchical_model(
    problem: Problem, *, integrate_weights: bool = True, observed: bool | None = True
) -> Machine:
    """Run the model of section 3 as a NumPyro program.

    Sites: ``noise_variance``, ``precision``, whitened Gaussians, the deterministic ``intercept``
    (class) and ``scores`` (row, class), and the observed ``y`` (row); where the kernel's
    parameters are sampled off a grid, these too, with a Cholesky factor for each of their values.

    Given draws, of :class:`bmsvm.BMSVMGibbs` or of NUTS, the model is conditioned on their scores;
    or on their intercept and weights, if the scores were not kept. Therefore
    ``numpyro.infer.log_likelihood(hierarchical_model, draws, problem)`` is the log likelihood given
    the scores, and ``numpyro.infer.Predictive(hierarchical_model, draws)(key, problem,
    observed=False)`` replicates the labels of the training rows.

    Parameters
    ----------
    problem
        Prepared data.
    integrate_weights
        Whether the weights are integrated out, which is the density that the default sampler
        and the benchmarks use. If not, there are deterministic sites ``weights`` (r, k) and
        ``latent``, the class functions at the rows (row, class), too.
    observed
        Whether ``y`` is the data. If not, it is drawn, for posterior predictive checks, or is a
        parameter of a larger model. None: there is no ``y``, and a larger model has its own
        observations given the scores.

    Returns
    -------
    Machine
        Scores, class functions and labels, for the rest of a larger model.

    Raises
    ------
    ValueError
        If draws are given that have neither scores nor weights, or are those of other rows; or if
        the problem is none, or was prepared in another precision than JAX now has.
    """
    if not isinstance(problem, Problem):
        raise ValueError(
            "problem must be that of bmsvm.prepare(X, y, ...), the first argument of the model; "
            f"got {type(problem).__name__}"
        )
    check_precision(problem)
    if problem.grid is not None or (problem.family is not None and not integrate_weights):
        raise ValueError(
            "a NumPyro model with the kernel's parameters needs data prepared with "
            'Sampled(grid="off"), and integrate_weights=True'
        )
    n, k = problem.n_rows, problem.n_columns
    noise_variance = numpyro.sample("noise_variance", noise_prior(problem))
    precision = numpyro.sample("precision", precision_prior(problem))
    drawn = _machine_of_draws(noise_variance, precision, problem)
    if drawn is not None:
        return drawn._replace(labels=_labels(drawn.scores, problem, observed))
    scale, functions = jnp.sqrt(noise_variance), None
    intercept = scale * _white("white_intercept", k) / jnp.sqrt(problem.hyper.intercept_precision)
    if problem.family is not None:
        factors = _cholesky_factors(_sample_parameters(problem.family), precision, problem)
        noise = _white("white_noise", n, k).reshape(n, factors.shape[0], -1)
        columns = jnp.einsum("gnm,mgj->ngj", factors, noise).reshape(n, k)
        columns = intercept + scale * columns
    elif integrate_weights:
        inside, outside = white_shapes(problem)
        coordinates = White(
            _white("white_inside", *inside),
            None if outside is None else _white("white_outside", *outside),
        )
        columns = intercept + scale * colour(coordinates, precision, problem)
    else:
        rank = problem.factor.eigenvalues.shape[0]
        weights = scale / jnp.sqrt(precision) * _white("white_weights", rank, k)
        numpyro.deterministic("weights", weights)
        means = latent(intercept, weights, problem)
        functions = class_vector(means, problem.coupling)
        columns = means + scale * _white("white_noise", n, k)
    rows = numpyro.plate("row", n, dim=-2)
    with numpyro.plate("class", problem.n_classes, dim=-1):
        numpyro.deterministic("intercept", class_vector(intercept, problem.coupling))
        with rows:
            if functions is not None:
                numpyro.deterministic("latent", functions)
            scores = numpyro.deterministic("scores", scores_of(columns, problem))
    return Machine(scores, functions, _labels(scores, problem, observed))


def machine_sites(position: Position, problem: Problem) -> dict[str, jax.Array]:
    """Sites of :func:`hierarchical_model` with ``integrate_weights=False`` at a position.

    They are zero where a column does not observe a row, and past the rank of K: the posterior does
    not depend on them there.
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
    """Undo :func:`machine_sites`, for a problem whose hyperparameters may have changed."""
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
    """Model of data ``(X, y)`` from which ArviZ reads the labels, their dims and likelihood.

    It is the model of the labels given the ``scores`` of a draw. Without scores the log likelihood
    is NaN.

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
