"""What pictures are drawn of: draws from any fitted thing, and probabilities with their labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpyro.infer import MCMC
from sklearn.utils.validation import check_is_fitted

from bmsvm.estimators import BMSVMClassifier
from bmsvm.inference.run import Run

__all__ = ["check_model", "check_probabilities", "codes_of", "draws_of"]

TOLERANCE = 1e-3
"""How far the probabilities of a row may be from one in sum."""


def draws_of(source: Any, name: str) -> np.ndarray:
    """Draws of a site, shape (chain, draw, ...), from whatever holds them.

    Parameters
    ----------
    source
        A fitted classifier, a :class:`bmsvm.inference.run.Run`, a ``numpyro.infer.MCMC`` that has
        run, ArviZ's container, or a mapping of names to draws of that shape.
    name
        Name of the site.
    """
    if isinstance(source, BMSVMClassifier):
        check_is_fitted(source, "run_")
        found: Any = source.run_.samples
    elif isinstance(source, Run):
        found = source.samples
    elif isinstance(source, MCMC):
        found = source.get_samples(group_by_chain=True)
    elif hasattr(source, "groups") or hasattr(source, "children"):
        found = source["posterior"]
    elif isinstance(source, Mapping):
        found = source
    else:
        raise TypeError(
            "source must be a fitted BMSVMClassifier, a Run, an MCMC that has run, ArviZ data, or "
            f"a mapping of draws; got {type(source).__name__}"
        )
    if name not in found:
        raise ValueError(
            f"source must have draws of {name!r}; it has {', '.join(map(repr, found))}"
        )
    draws = np.asarray(found[name], np.float64)
    if draws.ndim < 2:
        raise ValueError(f"draws of {name!r} must have shape (chain, draw, ...); got {draws.shape}")
    return draws


def check_model(model: Any) -> BMSVMClassifier:
    """Return a fitted classifier, or say what it should have been."""
    if not isinstance(model, BMSVMClassifier):
        raise TypeError(f"model must be a fitted BMSVMClassifier; got {type(model).__name__}")
    check_is_fitted(model, "run_")
    return model


def check_probabilities(
    probabilities: ArrayLike, y: Any = None, classes: Any = None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Check predictive probabilities (m, c), labels (m,) and the classes (c,).

    Returns
    -------
    tuple
        The probabilities, the place of each label among the classes (None without labels), and
        the classes: those given, else those of ``y`` if all appear there, else 0, 1, ....
    """
    values = np.asarray(probabilities, np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not len(values):
        raise ValueError(
            f"probabilities must have shape (m, c), a row for each case; got {values.shape}"
        )
    sums = values.sum(axis=1)
    if not np.all(np.isfinite(values)) or values.min() < 0 or np.any(abs(sums - 1) > TOLERANCE):
        bad = int(np.argmax(~(abs(sums - 1) <= TOLERANCE) | (values < 0).any(axis=1)))
        raise ValueError(
            "probabilities must be between 0 and 1 and sum to 1 in each row; got "
            f"probabilities[{bad}] = {values[bad]}"
        )
    c = values.shape[1]
    if classes is None and y is not None and len(np.unique(np.asarray(y))) == c:
        names = np.unique(np.asarray(y))
    else:
        names = np.arange(c) if classes is None else np.asarray(classes)
    if names.shape != (c,):
        raise ValueError(
            f"classes must have one name for each column of probabilities, {c} of them; "
            f"got shape {names.shape}"
        )
    if y is None:
        return values, None, names
    codes = codes_of(y, names)
    if len(codes) != len(values):
        raise ValueError(
            f"y must have one label for each row of probabilities, {len(values)} of them; "
            f"got {len(codes)}"
        )
    return values, codes, names


def codes_of(y: Any, classes: np.ndarray) -> np.ndarray:
    """Place of each label (m,) among the classes (c,)."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must have one dimension, one label a row; got shape {labels.shape}")
    places = {name: place for place, name in enumerate(classes.tolist())}
    codes = np.array([places.get(label, -1) for label in labels.tolist()], int)
    if np.any(codes < 0):
        row = int(np.argmax(codes < 0))
        known = ", ".join(repr(name) for name in list(places)[:12])
        raise ValueError(
            f"y must have labels among the classes {known}; got y[{row}] = {labels[row]!r}"
        )
    return codes
