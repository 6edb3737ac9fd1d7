"""Arguments of the plots: fitted models, draws, and probabilities with labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.stats
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bmsvm._predicting import Predicting
from bmsvm._validation import said
from bmsvm.models.hierarchy import held_precision

TOLERANCE = 1e-3
"""Largest difference between one and the sum of a row's probabilities."""


def check_model(model: Any) -> Any:
    """Return a fitted classifier, or raise an error."""
    if not isinstance(model, Predicting):
        raise TypeError(f"model must be a fitted BMSVMClassifier; got {type(model).__name__}")
    check_is_fitted(model, "predictive_")
    return model


def is_arviz(source: Any) -> bool:
    """Whether this is ArviZ's container of draws, of either generation."""
    return hasattr(source, "groups") or hasattr(source, "children")


def draws_of(source: Any, name: str) -> np.ndarray:
    """Draws of a site, shape (chain, draw, ...).

    Parameters
    ----------
    source
        A fitted classifier, a :class:`bmsvm.Posterior`, a :class:`bmsvm.inference.run.Run`, a
        ``numpyro.infer.MCMC`` that has run, ArviZ data, or a mapping of names to such draws.
    name
        Name of the site.
    """
    found: Any = source
    if isinstance(source, BaseEstimator):
        found = check_model(source).posterior_.samples
    elif hasattr(source, "samples"):
        found = source.samples
    elif hasattr(source, "get_samples"):
        found = source.get_samples(group_by_chain=True)
    elif is_arviz(source):
        found = source["posterior"]
    elif not isinstance(source, Mapping):
        raise TypeError(
            "source must be a fitted BMSVMClassifier, a Posterior, a Run, an MCMC that has run, "
            f"ArviZ data, or a mapping of draws; got {type(source).__name__}"
        )
    if name not in found:
        raise ValueError(
            f"source must have draws of {name!r}; it has {', '.join(map(repr, found))}"
        )
    draws = np.asarray(found[name], np.float64)
    if draws.ndim < 2:
        raise ValueError(f"draws of {name!r} must have shape (chain, draw, ...); got {draws.shape}")
    return draws


def held_precision_of(source: Any) -> float | None:
    """Value at which the prior holds tau; None if it does not, or if the source has no prior.

    An MCMC and a mapping have none; the others are those of :func:`draws_of`.
    """
    if is_arviz(source):
        return source["posterior"]["precision"].attrs.get("held_near")
    if isinstance(source, BaseEstimator):
        source = check_model(source).posterior_
    problem = getattr(source, "problem", None)
    return None if problem is None else held_precision(problem)


def check_probabilities(
    probabilities: ArrayLike, y: Any, classes: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check predictive probabilities (m, c), labels (m,) and the classes (c,).

    Returns
    -------
    tuple
        The probabilities; the index of each label in the classes; the classes: those given, else
        those of ``y`` if all appear there, else 0, 1, ....
    """
    try:
        values = np.asarray(probabilities, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "probabilities must be numbers of shape (m, c), such as model.predict_proba(X); got "
            f"{type(probabilities).__name__}"
        ) from None
    if values.ndim != 2 or values.shape[1] < 2 or not len(values):
        raise ValueError(f"probabilities must have shape (m, c); got {values.shape}")
    valid = np.all(values >= 0, axis=1) & (abs(values.sum(axis=1) - 1) <= TOLERANCE)
    if not np.all(valid):
        bad = int(np.argmin(valid))
        raise ValueError(
            "probabilities must be between 0 and 1 and sum to 1 in each row; got "
            f"probabilities[{bad}] = {values[bad]}"
        )
    c = values.shape[1]
    if classes is None:
        found = np.unique(np.asarray(y))
        classes = found if len(found) == c else np.arange(c)
        if not set(found.tolist()) <= set(classes.tolist()):
            raise ValueError(
                "classes must be given, classes=model.classes_: probabilities have "
                f"{c} columns, and y has {len(found)} different labels"
            )
    names = np.asarray(classes)
    if names.shape != (c,):
        raise ValueError(
            f"classes must have one name for each of {c} columns of probabilities; "
            f"got shape {names.shape}"
        )
    return values, codes_of(y, names, len(values)), names


def codes_of(y: Any, classes: np.ndarray, count: int) -> np.ndarray:
    """Index in the classes (c,) of each label (count,)."""
    labels = np.asarray(y)
    if labels.shape != (count,):
        raise ValueError(f"y must have one label for each of {count} rows; got {labels.shape}")
    places = {name: place for place, name in enumerate(classes.tolist())}
    codes = np.array([places.get(label, -1) for label in labels.tolist()], int)
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        known = ", ".join(repr(name) for name in list(places)[:12])
        raise ValueError(
            f"y must have labels among the classes {known}; got y[{row}] = {said(labels[row])}"
        )
    return codes


def share_interval(
    successes: np.ndarray, trials: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Central interval of a share under Jeffreys' prior, Beta(1/2, 1/2).

    The lower end is 0 if nothing succeeded, and the upper end 1 if everything did.
    """
    successes, trials = np.asarray(successes, float), np.asarray(trials, float)
    tail = (1 - level) / 2
    posterior = scipy.stats.beta(successes + 0.5, trials - successes + 0.5)
    lower = np.where(successes > 0, posterior.ppf(tail), 0.0)
    return lower, np.where(successes < trials, posterior.ppf(1 - tail), 1.0)
