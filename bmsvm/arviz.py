"""Fitted models for ArviZ, with classes, rows and features named."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.infer import MCMC
from sklearn.utils.validation import check_is_fitted

from bmsvm._groups import Coords, Groups, container, dataset, labels_of_dims
from bmsvm._inputs import is_precomputed
from bmsvm._predicting import Predicting
from bmsvm._validation import check_count, labels_of_rows
from bmsvm.inference.run import Run
from bmsvm.models.hierarchy import held_precision
from bmsvm.models.likelihoods import class_probabilities
from bmsvm.models.problem import Problem
from bmsvm.posterior import Posterior
from bmsvm.prediction.numpyro_run import data_of_run, draws_of_run
from bmsvm.predictive import UNCALIBRATED, PredictiveDistribution

STATISTICS = {
    "accept_prob": "acceptance_rate",
    "step_size": "step_size",
    "adapt_state.step_size": "step_size",
    "num_steps": "n_steps",
    "lengthscale_accept_prob": "lengthscale_acceptance_rate",
}
"""Statistics of a sweep, and their names in ArviZ."""

MOST_LOG_LIKELIHOODS = 2**24
"""Size of the log likelihood above which its draws are thinned."""

FEWEST_DRAWS = 200
"""Draws of all chains that are kept at least."""

FEWEST_EFFECTIVE = 50
"""Effective draws below which a row's log likelihood is not reliable."""


def to_arviz(
    fitted: Any,
    *,
    classes: Sequence[Any] | np.ndarray | None = None,
    rows: Sequence[Any] | np.ndarray | None = None,
    features: Sequence[Any] | np.ndarray | None = None,
    log_likelihood: bool | None = None,
    posterior_predictive: bool = True,
    functions: bool = False,
    new_rows: ArrayLike | None = None,
    thin: int | None = None,
    seed: int = 0,
) -> Any:
    """Convert a fitted model to ArviZ's container.

    Groups:

    ``posterior``
        sigma2, tau, theta if it was sampled, and the intercept (class). From chains also the
        scores (row, class). The weights stay where the draws are: ``model.posterior_.samples``,
        ``mcmc.get_samples()``. If the prior holds tau near a value, as after
        ``lengthscale="mode-cv"``, the attribute ``held_near`` of ``precision`` is this value. The
        attribute ``likelihood`` of the group is that of the model.
    ``posterior_predictive``, ``observed_data``
        ``y`` (row): replicated labels, and those of the data, as indices into ``class``. If the
        labels are a parameter of a larger model, ``y`` is in ``posterior``, and there is neither
        ``observed_data`` nor ``log_likelihood``.
    ``log_likelihood``
        ``y`` (row), which ``arviz.loo`` and ``arviz.compare`` read:
        ``log p(y_i | all other labels, theta, tau, sigma2)``, scores and functions integrated out
        (:mod:`bmsvm.prediction.labels_given_others`). ``elpd_loo`` is therefore that of
        ``Posterior.leave_one_out``; ``p_loo`` counts theta, tau and sigma2 only.
    ``constant_data``
        ``X`` (row, feature), the weights of the rows, and a lengthscale that was not sampled;
        from chains ``X`` if they were run on it, and the weights.
    ``sample_stats``
        Acceptance rates and step sizes.
    ``predictions``, ``predictions_constant_data``
        Labels ``y`` (row) and their probabilities ``p`` (row, class) at ``new_rows``; and these
        rows.

    The log likelihood is that of the model. The probabilities that a classifier reports are
    calibrated, and pooled with least squares, beyond that. Replicated labels of a classifier are
    drawn by these; those of chains given the scores. The attribute ``comment`` of the log
    likelihood, of functions, probabilities and labels says whether they are calibrated.

    Parameters
    ----------
    fitted
        A fitted :class:`bmsvm.BMSVMClassifier`; or a finished ``numpyro.infer.MCMC`` of
        :class:`bmsvm.BMSVMGibbs`, or of NUTS on :func:`bmsvm.models.hierarchical_model`; or what
        :func:`bmsvm.run_chains` returns, if no row has weight 0.
    classes
        Labels of the ``class`` dimension, shape (c,), in sorted order. Default: the classes of
        ``y`` if they are known, else 0, 1, ....
    rows
        Labels of the ``row`` dimension, shape (n,). Default: the indices of the rows.
    features
        Labels of the ``feature`` dimension, shape (p,). Default: the names of the columns if X has
        them, else 0, 1, ....
    log_likelihood
        Whether to compute the log likelihood of each row. Under ``hinge`` and ``squared`` it is
        that of a pseudo-likelihood, and can be compared only with another of the same kind. None:
        if the model allows it, that is with ``coupling="sum_to_zero"``, and if the scores were kept
        or the likelihood is ``squared``. With a Gram matrix of low rank it is that of at most 2000
        rows, chosen at random, always the same of so many rows.
    posterior_predictive
        Whether to replicate the labels.
    functions
        Whether the posterior of a classifier includes the class functions at the training rows,
        ``functions`` (row, class).
    new_rows
        Rows (m, p) to predict, in the units of the data. Their index, if they have one, labels
        them. Chains must be an ``MCMC`` that was run on data (X, y), and have kept the weights.
    thin
        Keep each ``thin``-th draw of the log likelihood. Default: as many as make 2^24 numbers,
        and at least 200; all draws of most models.
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
    if thin is not None:
        check_count("thin", thin)
    asked: dict[str, Any] = {
        "log_likelihood": log_likelihood,
        "posterior_predictive": posterior_predictive,
        "thin": thin,
    }
    if isinstance(fitted, MCMC | Run):
        if functions:
            raise ValueError("functions=True is for a classifier; chains have the scores instead")
        return container(_of_chains(fitted, labels, new_rows, seed, **asked))
    if not isinstance(fitted, Predicting):
        raise TypeError(
            "fitted must be a numpyro.infer.MCMC that has run, a run of bmsvm.run_chains, or a "
            f"fitted BMSVMClassifier; got {type(fitted).__name__}"
        )
    check_is_fitted(fitted, "predictive_")
    return container(_of_classifier(fitted, labels, new_rows, functions=functions, **asked))


def _of_classifier(
    model: Any,
    labels: Mapping[str, Any],
    new_rows: Any,
    *,
    log_likelihood: bool | None,
    posterior_predictive: bool,
    thin: int | None,
    functions: bool,
) -> Groups:
    """Return the groups of a fitted classifier."""
    posterior: Posterior = model.posterior_
    rows, problem, shape = posterior.training_rows, posterior.problem, posterior.shape
    n, precomputed = len(rows), is_precomputed(model.kernel)  # spare rows may follow the n rows
    names = getattr(model, "feature_names_in_", np.arange(model.n_features_in_))
    coords = labels_of_dims(
        labels, model.classes_, model.row_indices_, None if precomputed else names
    )
    samples, left_out = posterior.samples, {"scores", *STATISTICS}
    fields = {name: samples[name] for name in STATISTICS if name in samples}
    drawn: dict[str, dict[str, Any]] = {
        "posterior": {k: v for k, v in samples.items() if k not in left_out},
        "sample_stats": _statistics(fields, problem),
    }
    if posterior_predictive or functions:
        replicated = model.predictive_.sample(rows)
        if functions:
            drawn["posterior"]["functions"] = _by_chain(replicated.functions, shape)
        if posterior_predictive:
            drawn["posterior_predictive"] = {"y": _by_chain(replicated.labels, shape)}
    constants: dict[str, Any] = {} if precomputed else {"X": model.in_original_units(rows)}
    if problem.row_weights is not None:
        constants["row_weight"] = problem.row_weights[:n]
    if posterior.lengthscale is not None:
        constants["lengthscale"] = np.asarray(posterior.lengthscale, np.float64).squeeze()
    groups = {name: dataset(values, coords, shape) for name, values in drawn.items()}
    groups["observed_data"] = dataset({"y": problem.labels[:n]}, coords)
    groups["constant_data"] = dataset(constants, coords)
    groups |= _log_likelihood(posterior, coords, thin, log_likelihood)
    if new_rows is not None:
        rows = model.standardized_rows(new_rows)
        coords = {**coords, "row": labels_of_rows(new_rows, len(rows))}
        original = None if precomputed else model.checked_rows(new_rows)
        groups |= _predictions(model.predictive_, rows, original, coords)
    _annotate(groups, problem, model.predictive_.about)
    return groups


def _of_chains(
    mcmc: Any,
    labels: Mapping[str, Any],
    new_rows: Any,
    seed: int,
    *,
    log_likelihood: bool | None,
    posterior_predictive: bool,
    thin: int | None,
) -> Groups:
    """Return the groups of a finished run."""
    samples, fields = draws_of_run(mcmc)
    problem, X, y = data_of_run(mcmc)
    if isinstance(mcmc, Run) and problem.row_weights is not None and not problem.row_weights.all():
        raise ValueError(
            "the run has rows of weight 0, such as a classifier adds: give the classifier to "
            "to_arviz"
        )
    names = None
    if X is not None and not is_precomputed(mcmc.sampler.kernel):
        names = np.asarray(getattr(X, "columns", np.arange(np.shape(X)[1])))
    coords = labels_of_dims(
        labels,
        np.arange(problem.n_classes) if y is None else np.unique(np.asarray(y)),
        np.arange(problem.n_rows) if X is None else labels_of_rows(X, problem.n_rows),
        names,
    )
    drawn: dict[str, dict[str, Any]] = {
        "posterior": samples,
        "sample_stats": _statistics(fields, problem),
    }
    if posterior_predictive and "scores" in samples:
        chances = class_probabilities(samples["scores"], problem.likelihood)
        replicated = jax.random.categorical(jax.random.key(seed), jnp.log(chances))
        drawn["posterior_predictive"] = {"y": replicated}
    constants: dict[str, Any] = {} if names is None else {"X": X}
    if problem.row_weights is not None:
        constants["row_weight"] = problem.row_weights
    shape = next(iter(samples.values())).shape[:2]
    groups = {name: dataset(values, coords, shape) for name, values in drawn.items()}
    groups["constant_data"] = dataset(constants, coords)
    if "y" not in samples:  # else the labels are a parameter, and those of the problem stand in
        groups["observed_data"] = dataset({"y": problem.labels}, coords)
        plain = {name: np.asarray(value) for name, value in samples.items()}
        groups |= _log_likelihood(Posterior(plain, problem, X), coords, thin, log_likelihood)
    elif log_likelihood:
        raise ValueError(
            "log_likelihood must not be True where the labels y are a parameter of a larger model: "
            "their log likelihood is not that of its data"
        )
    if new_rows is not None:
        posterior, rows = _posterior(mcmc, samples, X, seed), np.asarray(new_rows, float)
        if rows.ndim != 2 or rows.shape[1] != len(coords["feature"]):
            p = len(coords["feature"])
            raise ValueError(f"new_rows must have shape (m, {p}), as X has; got {rows.shape}")
        coords = {**coords, "row": labels_of_rows(new_rows, len(rows))}
        groups |= _predictions(PredictiveDistribution(posterior), rows, rows, coords)
    _annotate(groups, problem, UNCALIBRATED)
    return groups


def _annotate(groups: Groups, problem: Problem, about: str) -> None:
    """Say in attributes what the values do not show; ``about`` is of probabilities and labels."""
    posterior, held = groups["posterior"], held_precision(problem)
    posterior.attrs["likelihood"] = problem.likelihood
    if held is not None and "precision" in posterior:
        words = "near the prior mean, held_near, because the prior outweighs the data"
        posterior["precision"].attrs.update(held_near=held, comment=words)
    for group, name, comment in (
        ("posterior", "functions", UNCALIBRATED),
        ("log_likelihood", "y", UNCALIBRATED),
        ("posterior_predictive", "y", about),
        ("predictions", "p", about),
        ("predictions", "y", about),
    ):
        if group in groups and name in groups[group]:
            groups[group][name].attrs["comment"] = comment


def _log_likelihood(
    posterior: Posterior, coords: Coords, thin: int | None, wanted: bool | None
) -> Groups:
    """Return the group of log likelihoods, if it is wanted and the model allows it."""
    problem, n = posterior.problem, len(coords["row"])
    known = problem.likelihood == "squared" or "scores" in posterior.samples
    allowed = problem.coupling == "sum_to_zero" and known
    if wanted is False or (wanted is None and not allowed):
        return {}
    step = _step(posterior, n) if thin is None else thin
    found, rows = posterior.log_likelihood(thin=step)
    real = rows < n  # spare rows follow
    weak = np.flatnonzero(real & (found.effective_draws < FEWEST_EFFECTIVE))
    if len(weak):
        names = ", ".join(str(coords["row"][row]) for row in rows[weak][:5])
        warnings.warn(
            f"log_likelihood: fewer than {FEWEST_EFFECTIVE} effective draws integrate the scores "
            f"at {len(weak)} of {n} rows ({names}), {found.effective_draws[weak].min():.0f} at the "
            "least: leave-one-out is not reliable there; make more draws",
            stacklevel=4,
        )
    chains, draws = posterior.shape
    kept = np.arange(0, draws, step)
    values = found.log_likelihood[:, real].reshape(chains, len(kept), -1)
    here = {**coords, "row": coords["row"][rows[real]]}
    group = dataset({"y": values}, here, (chains, len(kept)))
    return {"log_likelihood": group.assign_coords(draw=kept)}


def _step(posterior: Posterior, n_rows: int) -> int:
    """Return the thinning that keeps at most so many log likelihoods, and enough draws."""
    chains, draws = posterior.shape
    most = max(MOST_LOG_LIKELIHOODS // max(n_rows, 1), FEWEST_DRAWS) // chains
    return max(-(-draws // max(most, 1)), 1)


def _posterior(mcmc: Any, samples: Mapping[str, Any], X: Any, seed: int) -> Posterior:
    """Return the posterior of a run on rows X."""
    if isinstance(mcmc, Run):
        raise ValueError(
            "new_rows needs the training rows, which a run of run_chains does not keep: "
            "Posterior.from_numpyro(run, X).probabilities(new_rows)"
        )
    if X is None or is_precomputed(mcmc.sampler.kernel):
        raise ValueError(
            "new_rows needs the training rows and a kernel that can be evaluated: run the chains "
            "on data (X, y), not on a problem or a Gram matrix; or call "
            "Posterior.from_numpyro(mcmc, X, ...)"
        )
    if not {"weights", "coefficients"} & set(samples):
        raise ValueError('new_rows needs the weights: run without extra_fields=("~z.weights",)')
    return Posterior.from_numpyro(mcmc, seed=seed)


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
        "predictions": dataset(values, coords, shape),
        "predictions_constant_data": dataset(given, coords),
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
