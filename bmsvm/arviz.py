"""Fitted models for ArviZ, with classes, rows and features named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jax.typing import ArrayLike
from numpyro.infer import MCMC
from sklearn.utils.validation import check_is_fitted

from bmsvm._arviz import arviz
from bmsvm._inputs import is_precomputed
from bmsvm._predicting import Predicting
from bmsvm._validation import labels_of_rows
from bmsvm._version import __version__
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.kernels.functions import as_kernel
from bmsvm.models.likelihoods import LIKELIHOODS, class_probabilities, weigh
from bmsvm.models.prepare import as_lengthscale
from bmsvm.models.problem import Problem
from bmsvm.posterior import Posterior
from bmsvm.predictive import PredictiveDistribution

__all__ = ["groups_of", "to_arviz"]

STATISTICS = {
    "accept_prob": "acceptance_rate",
    "step_size": "step_size",
    "adapt_state.step_size": "step_size",
    "num_steps": "n_steps",
    "lengthscale_accept_prob": "lengthscale_acceptance_rate",
}
"""Statistics of a sweep, and their names in ArviZ."""

DIMS = {
    "intercept": ("class",),
    "scores": ("row", "class"),
    "latent": ("row", "class"),
    "functions": ("row", "class"),
    "p": ("row", "class"),
    "y": ("row",),
    "X": ("row", "feature"),
    "row_weight": ("row",),
}
"""Dims of the variables, after chain and draw; those of others are numbered."""

Coords = dict[str, np.ndarray]
Groups = dict[str, xarray.Dataset]


def to_arviz(
    fitted: Any,
    *,
    classes: Sequence[Any] | np.ndarray | None = None,
    rows: Sequence[Any] | np.ndarray | None = None,
    features: Sequence[Any] | np.ndarray | None = None,
    log_likelihood: bool = True,
    posterior_predictive: bool = True,
    functions: bool = False,
    new_rows: ArrayLike | None = None,
    seed: int = 0,
) -> Any:
    """Convert a fitted model to ArviZ's container.

    Groups:

    ``posterior``
        sigma2, tau, theta if it was sampled, and the intercept (class). From chains also the
        scores (row, class). The weights stay where the draws are: ``model.posterior_.samples``,
        ``mcmc.get_samples()``.
    ``posterior_predictive``, ``observed_data``
        ``y`` (row): replicated labels, and those of the data, as indices into ``class``.
    ``log_likelihood``
        ``y`` (row), which ``arviz.loo`` and ``arviz.compare`` read.
    ``constant_data``
        ``X`` (row, feature), the weights of the rows, and a lengthscale that was not sampled;
        from chains ``X`` if they were run on it, and the weights.
    ``sample_stats``
        Acceptance rates and step sizes.
    ``predictions``, ``predictions_constant_data``
        Labels ``y`` (row) and their probabilities ``p`` (row, class) at ``new_rows``; and these
        rows.

    The log likelihood and the replicated labels of a classifier are given the functions and
    sigma2, with the scores integrated out; those of chains are given the scores. Do not compare
    one with the other; in ``arviz.loo`` the second has the heavier tails.

    Parameters
    ----------
    fitted
        A fitted :class:`bmsvm.BMSVMClassifier`; or a finished ``numpyro.infer.MCMC`` of
        :class:`bmsvm.BMSVMGibbs`, or of NUTS on :func:`bmsvm.models.hierarchical_model`.
    classes
        Labels of the ``class`` dimension, shape (c,), in sorted order. Default: the classes of
        ``y`` if they are known, else 0, 1, ....
    rows
        Labels of the ``row`` dimension, shape (n,). Default: the indices of the rows.
    features
        Labels of the ``feature`` dimension, shape (p,). Default: the names of the columns if X has
        them, else 0, 1, ....
    log_likelihood
        Whether to compute the log likelihood of each row. Under ``hinge`` it is the
        pseudo-likelihood (11).
    posterior_predictive
        Whether to replicate the labels.
    functions
        Whether the posterior of a classifier includes the class functions at the training rows,
        ``functions`` (row, class).
    new_rows
        Rows (m, p) to predict, in the units of the data. Their index, if they have one, labels
        them. Chains must have been run on data (X, y), and have kept the weights.
    seed
        Seed of the labels that are drawn for chains; a classifier has its own.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The first from ArviZ 0.x, the second from ArviZ 1.x.

    Examples
    --------
    >>> from bmsvm import BMSVMClassifier
    >>> from bmsvm.arviz import to_arviz
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BMSVMClassifier(lengthscale=3.5, num_samples=200, random_state=0).fit(X, y)
    >>> to_arviz(model)["log_likelihood"]["y"].dims
    ('chain', 'draw', 'row')
    """
    labels = {"classes": classes, "rows": rows, "features": features}
    asked = {"log_likelihood": log_likelihood, "posterior_predictive": posterior_predictive}
    if isinstance(fitted, MCMC):
        if functions:
            raise ValueError("functions=True is for a classifier; chains have the scores instead")
        return _container(_of_chains(fitted, labels, new_rows, seed, **asked))
    if not isinstance(fitted, Predicting):
        raise TypeError(
            "fitted must be a numpyro.infer.MCMC that has run, or a fitted BMSVMClassifier; "
            f"got {type(fitted).__name__}"
        )
    check_is_fitted(fitted, "predictive_")
    return _container(_of_classifier(fitted, labels, new_rows, functions=functions, **asked))


def groups_of(data: Any) -> Groups:
    """Return the datasets of ArviZ's container, of either version, by the names of the groups."""
    if isinstance(data, xarray.DataTree):
        return {name: child.to_dataset() for name, child in data.children.items()}
    return {name: data[name] for name in data.groups()}


def _of_classifier(
    model: Any,
    labels: Mapping[str, Any],
    new_rows: Any,
    *,
    log_likelihood: bool,
    posterior_predictive: bool,
    functions: bool,
) -> Groups:
    """Return the groups of a fitted classifier."""
    posterior: Posterior = model.posterior_
    rows, problem, shape = posterior.training_rows, posterior.problem, posterior.shape
    n, precomputed = len(rows), is_precomputed(model.kernel)  # spare rows may follow the n rows
    names = getattr(model, "feature_names_in_", np.arange(model.n_features_in_))
    coords = _coords(labels, model.classes_, model.row_indices_, None if precomputed else names)
    samples, left_out = posterior.samples, {"scores", *STATISTICS}
    fields = {name: samples[name] for name in STATISTICS if name in samples}
    drawn: dict[str, dict[str, Any]] = {
        "posterior": {k: v for k, v in samples.items() if k not in left_out},
        "sample_stats": _statistics(fields, problem),
    }
    if log_likelihood or posterior_predictive or functions:
        replicated = model.predictive_.sample(rows)
        if functions:
            drawn["posterior"]["functions"] = _by_chain(replicated.functions, shape)
        if posterior_predictive:
            drawn["posterior_predictive"] = {"y": _by_chain(replicated.labels, shape)}
        if log_likelihood:
            found = posterior.log_likelihood(replicated.functions)
            drawn["log_likelihood"] = {"y": _by_chain(found, shape)}
    constants: dict[str, Any] = {} if precomputed else {"X": model.in_original_units(rows)}
    if problem.row_weights is not None:
        constants["row_weight"] = problem.row_weights[:n]
    if posterior.lengthscale is not None:
        constants["lengthscale"] = np.asarray(posterior.lengthscale, np.float64).squeeze()
    groups = {name: _dataset(values, coords, shape) for name, values in drawn.items()}
    groups["observed_data"] = _dataset({"y": problem.labels[:n]}, coords)
    groups["constant_data"] = _dataset(constants, coords)
    if new_rows is not None:
        rows = model.standardized_rows(new_rows)
        coords = {**coords, "row": labels_of_rows(new_rows, len(rows))}
        original = None if precomputed else np.asarray(model.checked_rows(new_rows))
        groups |= _predictions(model.predictive_, rows, original, coords)
    return groups


def _of_chains(
    mcmc: MCMC,
    labels: Mapping[str, Any],
    new_rows: Any,
    seed: int,
    *,
    log_likelihood: bool,
    posterior_predictive: bool,
) -> Groups:
    """Return the groups of a finished run."""
    samples = mcmc.get_samples(group_by_chain=True)
    if log_likelihood and "scores" not in samples:
        raise ValueError(
            "log_likelihood needs the scores, which this run has not kept: pass "
            "log_likelihood=False"
        )
    problem, X, y = _data(mcmc)
    names = None
    if X is not None and not is_precomputed(mcmc.sampler.kernel):
        names = np.asarray(getattr(X, "columns", np.arange(np.shape(X)[1])))
    coords = _coords(
        labels,
        np.arange(problem.n_classes) if y is None else np.unique(np.asarray(y)),
        np.arange(problem.n_rows) if X is None else labels_of_rows(X, problem.n_rows),
        names,
    )
    drawn: dict[str, dict[str, Any]] = {
        "posterior": samples,
        "sample_stats": _statistics(mcmc.get_extra_fields(group_by_chain=True), problem),
    }
    if log_likelihood:
        drawn["log_likelihood"] = {"y": _log_likelihood(samples["scores"], problem)}
    if posterior_predictive and "scores" in samples:
        chances = class_probabilities(samples["scores"], problem.likelihood)
        replicated = jax.random.categorical(jax.random.key(seed), jnp.log(chances))
        drawn["posterior_predictive"] = {"y": replicated}
    constants: dict[str, Any] = {} if names is None else {"X": X}
    if problem.row_weights is not None:
        constants["row_weight"] = problem.row_weights
    shape = next(iter(samples.values())).shape[:2]
    groups = {name: _dataset(values, coords, shape) for name, values in drawn.items()}
    groups["observed_data"] = _dataset({"y": problem.labels}, coords)
    groups["constant_data"] = _dataset(constants, coords)
    if new_rows is not None:
        posterior, rows = _posterior(mcmc, samples, problem, X, seed), np.asarray(new_rows, float)
        if rows.ndim != 2 or rows.shape[1] != len(coords["feature"]):
            p = len(coords["feature"])
            raise ValueError(f"new_rows must have shape (m, {p}), as X has; got {rows.shape}")
        coords = {**coords, "row": labels_of_rows(new_rows, len(rows))}
        groups |= _predictions(PredictiveDistribution(posterior), rows, rows, coords)
    return groups


def _data(mcmc: MCMC) -> tuple[Problem, Any, Any]:
    """Return the prepared data of a run, and its rows and labels if it was given them."""
    # MCMC keeps the arguments of the run under these names only; ArviZ reads them too.
    args, keywords = mcmc._args, mcmc._kwargs
    first = args[0] if args else keywords.get("X", keywords.get("problem"))
    if isinstance(first, Problem):
        return first, None, None
    if not isinstance(mcmc.sampler, BMSVMGibbs):
        raise ValueError(
            "fitted must be a run of BMSVMGibbs, or of a model whose first argument is a problem; "
            f"got one of {type(mcmc.sampler).__name__} on {type(first).__name__}"
        )
    y = args[1] if len(args) > 1 else keywords.get("y")
    return mcmc.sampler.prepare(*args, **keywords), first, y


def _log_likelihood(scores: jax.Array, problem: Problem) -> jax.Array:
    """Log likelihood of each row given its scores (chain, draw, n, c): shape (chain, draw, n)."""

    def one_draw(scores: jax.Array) -> jax.Array:
        each = LIKELIHOODS[problem.likelihood](scores, problem.labels)
        return weigh(each, problem.row_weights)

    return jax.vmap(jax.vmap(one_draw))(scores)


def _posterior(
    mcmc: MCMC, samples: Mapping[str, Any], problem: Problem, X: Any, seed: int
) -> Posterior:
    """Return the posterior of a run on rows X."""
    if X is None or is_precomputed(mcmc.sampler.kernel):
        raise ValueError(
            "new_rows needs the training rows and a kernel that can be evaluated: run the chains "
            "on data (X, y), not on a problem or a Gram matrix"
        )
    if not {"weights", "coefficients"} & set(samples):
        raise ValueError('new_rows needs the weights: run without extra_fields=("~z.weights",)')
    kernel, theta = mcmc.sampler.kernel, None
    if not problem.samples_kernel:
        theta = as_lengthscale(mcmc.sampler.lengthscale, as_kernel(kernel))
    draws = {name: np.asarray(value) for name, value in samples.items()}
    return Posterior(draws, problem, np.asarray(X, float), kernel, theta, seed=seed)


def _predictions(
    predictive: PredictiveDistribution,
    rows: np.ndarray,
    original: np.ndarray | None,
    coords: Coords,
) -> Groups:
    """Predict rows as the kernel sees them; ``original`` has them in the units of the data."""
    drawn, shape = predictive.sample(rows), predictive.posterior.shape
    values = {"y": _by_chain(drawn.labels, shape), "p": _by_chain(drawn.probabilities, shape)}
    given = {} if original is None else {"X": original}
    return {
        "predictions": _dataset(values, coords, shape),
        "predictions_constant_data": _dataset(given, coords),
    }


def _by_chain(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Values (chain, draw, ...) of flat draws (s, ...)."""
    return values.reshape(*shape, *values.shape[1:])


def _statistics(fields: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """Return those fields of the sweeps that are arrays, by ArviZ's names."""
    fixed = () if problem.samples_kernel else ("lengthscale_accept_prob",)
    return {
        STATISTICS.get(name, name): value
        for name, value in fields.items()
        if name not in fixed and hasattr(value, "shape")
    }


def _coords(labels: Mapping[str, Any], classes: Any, rows: Any, features: Any) -> Coords:
    """Return the labels of each dimension: those given, or these defaults.

    A dimension whose default is None does not exist.
    """
    coords = {}
    defaults = {"class": classes, "row": rows, "feature": features}
    for (argument, given), (name, default) in zip(labels.items(), defaults.items(), strict=True):
        if default is None:
            if given is not None:
                raise ValueError(f"{argument} cannot be labelled: the run has no names for them")
            continue
        values = np.asarray(default if given is None else given)
        if values.shape != (len(default),):
            raise ValueError(
                f"{argument} must have one label for each {name}, {len(default)} of them; "
                f"got shape {values.shape}"
            )
        coords[name] = values
    return coords


def _dataset(
    values: Mapping[str, Any], coords: Coords, shape: tuple[int, ...] = ()
) -> xarray.Dataset:
    """Make a group; ``shape`` is the number of chains and draws if the values are draws.

    Weights, whose basis is the model's own, are left out.
    """
    outer = ("chain", "draw")[: len(shape)]
    n_features = len(coords.get("feature", ()))
    variables = {}
    for name, value in values.items():
        if name in ("weights", "coefficients"):
            continue
        array = np.asarray(value)
        inner = array.shape[len(shape) :]
        dims = DIMS.get(name, tuple(f"{name}_dim_{i}" for i in range(len(inner))))
        if name == "lengthscale" and inner == (n_features,):
            dims = ("feature",)
        variables[name] = ((*outer, *dims), array)
    used = {dim for dims, _ in variables.values() for dim in dims}
    every = {**dict(zip(outer, map(np.arange, shape), strict=True)), **coords}
    return xarray.Dataset(
        variables,
        coords={name: label for name, label in every.items() if name in used},
        attrs={"inference_library": "bmsvm", "inference_library_version": __version__},
    )


def _container(groups: Groups) -> Any:
    """Return ``InferenceData`` of ArviZ 0.x, ``DataTree`` of ArviZ 1.x, without empty groups."""
    kept: Any = {name: group for name, group in groups.items() if group.data_vars}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return xarray.DataTree.from_dict(kept)
    return arviz.InferenceData(**kept)
