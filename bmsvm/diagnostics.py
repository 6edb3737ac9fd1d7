"""Draws for ArviZ, with the classes and rows named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arviz
import numpy as np
from numpyro.infer import MCMC

__all__ = ["to_arviz"]


def to_arviz(
    mcmc: MCMC,
    *,
    classes: Sequence | np.ndarray | None = None,
    rows: Sequence | np.ndarray | None = None,
    log_likelihood: bool = True,
    **kwargs: Any,
) -> Any:
    """Convert a run to ArviZ's container, class and row labels as coordinates.

    Parameters
    ----------
    mcmc
        A finished run of :class:`bmsvm.BMSVMGibbs`, or of NUTS on
        :func:`bmsvm.models.hierarchical_model`.
    classes
        Labels of the ``class`` dimension, shape (c,), in sorted order. Default: the classes of
        ``y`` where the run was given it, else 0, 1, ....
    rows
        Labels of the ``row`` dimension, shape (n,). Default: 0, 1, ....
    log_likelihood
        Whether to compute the log likelihood of each row, which ``arviz.loo`` needs. Under the
        ``hinge`` it is the pseudo-likelihood (11).
    **kwargs
        Passed to ``arviz.from_numpyro``.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The first from ArviZ 0.x, the second from ArviZ 1.x.
    """
    samples = mcmc.get_samples()
    if log_likelihood and "scores" not in samples:
        raise ValueError(
            'log_likelihood needs the scores: run without extra_fields=("~z.scores",), '
            "or pass log_likelihood=False"
        )
    if classes is None:
        # The arguments of the run are kept under these names only; ArviZ reads them too.
        labels = mcmc._args[1] if len(mcmc._args) > 1 else mcmc._kwargs.get("y")
        classes = None if labels is None else np.unique(np.asarray(labels))
    coords = dict(kwargs.pop("coords", None) or {})
    sizes = {}
    if "intercept" in samples:
        sizes["class"] = samples["intercept"].shape[-1]
    if "scores" in samples:
        sizes["row"], sizes["class"] = samples["scores"].shape[-2:]
    for name, argument, given in (("class", "classes", classes), ("row", "rows", rows)):
        if given is None:
            continue
        coords[name] = np.asarray(given)
        if coords[name].shape != (sizes.get(name, len(coords[name])),):
            raise ValueError(
                f"{argument} must have one label for each {name}, {sizes[name]} of them; "
                f"got shape {coords[name].shape}"
            )
    return arviz.from_numpyro(mcmc, coords=coords, log_likelihood=log_likelihood, **kwargs)
