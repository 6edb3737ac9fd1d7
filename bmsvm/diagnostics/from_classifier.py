"""Groups of a fitted classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from sklearn.utils.validation import check_is_fitted

from bmsvm._validation import labels_of_rows
from bmsvm.diagnostics.container import STATISTICS, Labels, dataset
from bmsvm.diagnostics.likelihood import integrated_log_likelihood
from bmsvm.estimators import BMSVMClassifier
from bmsvm.estimators.classifier import FINE_POINTS
from bmsvm.inference.posterior_predictive import predictive_draws
from bmsvm.kernels import STATIONARY

__all__ = ["classifier_groups"]

Variables = dict[str, tuple[tuple[str, ...], Any]]
"""Dims, behind chain and draw, and values by name."""

SITES: dict[str, tuple[str, ...]] = {
    "noise_variance": (),
    "precision": (),
    "lengthscale": (),
    "intercept": ("class",),
}
"""Sites of the posterior; the weights, in coordinates of their own, stay in ``run_.samples``."""


def classifier_groups(
    model: BMSVMClassifier,
    labels: Labels,
    *,
    log_likelihood: bool,
    posterior_predictive: bool,
    functions: bool,
    new_rows: Any,
) -> dict[str, xarray.Dataset]:
    """Return the groups by name; see :func:`bmsvm.diagnostics.to_arviz`."""
    check_is_fitted(model, "run_")
    samples, n = model.run_.samples, len(model.training_rows_)
    shape = samples["precision"].shape
    precomputed = model.kernel_ == "precomputed" if isinstance(model.kernel_, str) else False
    coords = labels.coords(
        classes=model.classes_,
        rows=np.arange(n) if model.kept_rows_ is None else model.kept_rows_,
        features=None if precomputed else _feature_names(model),
    )
    codes = np.asarray(model.problem_.labels)[:n]  # spare rows may follow
    groups: dict[str, Variables] = {
        "posterior": {
            name: (dims, samples[name]) for name, dims in SITES.items() if name in samples
        },
        "sample_stats": {
            new: ((), samples[old]) for old, new in STATISTICS.items() if old in samples
        },
    }
    if log_likelihood or posterior_predictive or functions:
        drawn = predictive_draws(model._posterior(points=1), model.training_rows_, model.seed_)
        if functions:
            value = _by_chain(drawn.functions, shape)
            groups["posterior"]["functions"] = (("row", "class"), value)
        if posterior_predictive:
            groups["posterior_predictive"] = {"y": (("row",), _by_chain(drawn.labels, shape))}
        if log_likelihood:
            found = integrated_log_likelihood(
                model._posterior(points=FINE_POINTS), drawn.functions, codes, _weights(model)
            )
            groups["log_likelihood"] = {"y": (("row",), _by_chain(found, shape))}
    made = {name: dataset(values, coords) for name, values in groups.items()}
    made["observed_data"] = dataset({"y": (("row",), codes)}, coords, drawn=False)
    made["constant_data"] = dataset(_constants(model, precomputed), coords, drawn=False)
    if new_rows is not None:
        rows = model._rows(new_rows)
        drawn = predictive_draws(model._posterior(points=1), rows, model.seed_)
        coords = {**coords, "row": labels_of_rows(new_rows, len(rows))}
        made["predictions"] = dataset(
            {
                "y": (("row",), _by_chain(drawn.labels, shape)),
                "p": (("row", "class"), _by_chain(drawn.probabilities, shape)),
            },
            coords,
        )
        if not precomputed:
            given = {"X": (("row", "feature"), model._in_units(rows))}
            made["predictions_constant_data"] = dataset(given, coords, drawn=False)
    return made


def _by_chain(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return values.reshape(*shape, *values.shape[1:])


def _feature_names(model: BMSVMClassifier) -> np.ndarray:
    return np.asarray(getattr(model, "feature_names_in_", np.arange(model.n_features_in_)))


def _weights(model: BMSVMClassifier) -> np.ndarray | None:
    """Weights of the training rows, shape (n,); None where all are one."""
    weights = model.problem_.row_weights
    return None if weights is None else np.asarray(weights)[: len(model.training_rows_)]


def _constants(model: BMSVMClassifier, precomputed: bool) -> Variables:
    constants: Variables = {}
    if not precomputed:
        constants["X"] = (("row", "feature"), model._in_units(model.training_rows_))
    weights = _weights(model)
    if weights is not None:
        constants["row_weight"] = (("row",), weights)
    stationary = isinstance(model.kernel_, str) and model.kernel_ in STATIONARY
    if stationary and "lengthscale" not in model.run_.samples:
        scale = np.asarray(model.lengthscale_, np.float64)
        one = scale.size == 1
        constants["lengthscale"] = ((), scale.reshape(())) if one else (("feature",), scale)
    return constants
