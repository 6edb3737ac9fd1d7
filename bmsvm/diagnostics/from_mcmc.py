"""Groups of a run under ``numpyro.infer.MCMC``."""

from __future__ import annotations

import warnings
from typing import Any, cast

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpyro.infer import MCMC

from bmsvm._validation import labels_of_rows
from bmsvm.diagnostics.container import STATISTICS, Labels, dataset, groups_of
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.predict import (
    Features,
    class_probabilities,
    features_at,
    features_on_grid,
)
from bmsvm.kernels import kernel_at
from bmsvm.models import likelihoods
from bmsvm.models.problem import Problem

__all__ = ["mcmc_groups"]


def mcmc_groups(
    mcmc: MCMC,
    labels: Labels,
    *,
    log_likelihood: bool,
    posterior_predictive: bool,
    new_rows: Any,
    seed: int,
    **kwargs: Any,
) -> dict[str, xarray.Dataset]:
    """Return the groups by name; see :func:`bmsvm.diagnostics.to_arviz`."""
    samples = mcmc.get_samples()
    for name, asked in (("log_likelihood", log_likelihood), ("new_rows", new_rows is not None)):
        if asked and "scores" not in samples:
            remedy = ", or pass log_likelihood=False" if name == "log_likelihood" else ""
            raise ValueError(
                f'{name} needs the scores: run without extra_fields=("~z.scores",){remedy}'
            )
    problem, X, y = _data(mcmc)
    coords = _coords(labels, problem, X, y)
    with warnings.catch_warnings():  # the depth of trees, of samplers that grow none
        warnings.filterwarnings("ignore", "divide by zero|invalid value", RuntimeWarning)
        given = {**coords, **(kwargs.pop("coords", None) or {})}
        data = arviz.from_numpyro(mcmc, coords=given, log_likelihood=log_likelihood, **kwargs)
    groups = groups_of(data)
    groups = {name: group for name, group in groups.items() if group.data_vars}
    if isinstance(mcmc.sampler, BMSVMGibbs) and "sample_stats" in groups:
        groups["sample_stats"] = _statistics(groups["sample_stats"])
    if "posterior" in groups:
        groups["posterior"] = _features_named(groups["posterior"], coords)
    if posterior_predictive and "scores" in samples and "posterior_predictive" not in groups:
        chances = likelihoods.class_probabilities(samples["scores"], problem.likelihood)
        drawn = _labels(jax.random.key(seed), chances)
        groups["posterior_predictive"] = dataset({"y": (("row",), _by_chain(drawn, mcmc))}, coords)
    if "constant_data" not in groups:
        groups["constant_data"] = dataset(_constants(mcmc, problem, X), coords, drawn=False)
    if new_rows is not None:
        groups |= _predictions(mcmc, problem, X, new_rows, coords, seed)
    return groups


def _data(mcmc: MCMC) -> tuple[Problem, Any, Any]:
    """Return the prepared data of a run, and its rows and labels where it was given them."""
    # The arguments of the run are kept under these names only; ArviZ reads them too.
    args, keywords = mcmc._args, mcmc._kwargs
    first = args[0] if args else keywords.get("X", keywords.get("problem"))
    if isinstance(first, Problem):
        return first, None, None
    if not isinstance(mcmc.sampler, BMSVMGibbs):
        raise ValueError(
            "fitted must be a run of BMSVMGibbs, or of NUTS on hierarchical_model(problem); "
            f"got one of {type(mcmc.sampler).__name__} on {type(first).__name__}"
        )
    y = args[1] if len(args) > 1 else keywords.get("y")
    return mcmc.sampler.prepare(*args, **keywords), first, y


def _coords(labels: Labels, problem: Problem, X: Any, y: Any) -> dict[str, np.ndarray]:
    names = None
    if X is not None:
        names = np.asarray(getattr(X, "columns", np.arange(np.shape(X)[1])))
    return labels.coords(
        classes=np.arange(problem.n_classes) if y is None else np.unique(np.asarray(y)),
        rows=np.arange(problem.n_rows) if X is None else labels_of_rows(X, problem.n_rows),
        features=names,
    )


def _statistics(found: xarray.Dataset) -> xarray.Dataset:
    """Statistics by ArviZ's names; extra fields that are no numbers of a draw stay as they are."""
    known = {old: new for old, new in STATISTICS.items() if old in found and old != new}
    return found.drop_vars("tree_depth", errors="ignore").rename_vars(known)


def _features_named(posterior: xarray.Dataset, coords: dict[str, np.ndarray]) -> xarray.Dataset:
    """Name the axis of lengthscales of which each feature has one."""
    theta = posterior.get("lengthscale")
    if theta is None or theta.ndim != 3 or theta.shape[2] != len(coords.get("feature", ())):
        return posterior
    renamed = posterior.rename_dims({theta.dims[2]: "feature"})
    renamed = renamed.drop_vars(str(theta.dims[2]), errors="ignore")
    return renamed.assign_coords(feature=coords["feature"])


def _by_chain(values: Any, mcmc: MCMC) -> np.ndarray:
    values = np.asarray(values)
    return values.reshape(mcmc.num_chains, -1, *values.shape[1:])


def _labels(key: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Draw class indices (...) from probabilities (..., c)."""
    return jax.random.categorical(key, jnp.log(probabilities))


def _precomputed(mcmc: MCMC) -> bool:
    kernel = mcmc.sampler._settings["kernel"]
    return isinstance(kernel, str) and kernel == "precomputed"


def _constants(mcmc: MCMC, problem: Problem, X: Any) -> dict[str, tuple[tuple[str, ...], Any]]:
    constants: dict[str, tuple[tuple[str, ...], Any]] = {}
    if X is not None and not _precomputed(mcmc):
        constants["X"] = (("row", "feature"), X)
    if problem.row_weights is not None:
        constants["row_weight"] = (("row",), problem.row_weights)
    return constants


def _predictions(
    mcmc: MCMC, problem: Problem, X: Any, new_rows: Any, coords: dict[str, np.ndarray], seed: int
) -> dict[str, xarray.Dataset]:
    if X is None:
        raise ValueError(
            "new_rows needs the training rows: run the chains on data (X, y), not on a problem"
        )
    if _precomputed(mcmc):
        raise ValueError(
            'new_rows needs a kernel that can be evaluated; got kernel="precomputed": use '
            "BMSVMClassifier, which takes the kernel values of new rows"
        )
    rows = np.asarray(new_rows, np.float64)
    p = np.shape(X)[1]
    if rows.ndim != 2 or rows.shape[1] != p:
        raise ValueError(f"new_rows must have shape (m, {p}), as X has; got {rows.shape}")
    features = _features(mcmc.sampler, problem, np.asarray(X), rows)
    key_chances, key_labels = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
    chances = class_probabilities(key_chances, mcmc.get_samples(), features, problem)
    coords = {**coords, "row": labels_of_rows(new_rows, len(rows))}
    drawn = {
        "y": (("row",), _by_chain(_labels(key_labels, chances), mcmc)),
        "p": (("row", "class"), _by_chain(chances, mcmc)),
    }
    given = {"X": (("row", "feature"), rows)}
    return {
        "predictions": dataset(drawn, coords),
        "predictions_constant_data": dataset(given, coords, drawn=False),
    }


def _features(
    sampler: BMSVMGibbs, problem: Problem, X: np.ndarray, rows: np.ndarray
) -> Features | jax.Array:
    """Show new rows (m, p) as the factor sees them, in whatever way theta was found."""
    if problem.family is not None:
        return jnp.asarray(rows)
    kernel = sampler._settings["kernel"]
    if problem.grid is not None:
        return features_on_grid(kernel, rows, X, problem.grid)
    chosen = sampler.lengthscale_selection
    theta = sampler._settings["lengthscale"] if chosen is None else chosen.lengthscale
    return features_at(cast(Any, kernel_at(kernel, theta)), rows, X, problem.factor)
