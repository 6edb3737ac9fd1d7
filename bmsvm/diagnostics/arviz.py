"""One way to ArviZ, from chains and from classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpyro.infer import MCMC

from bmsvm.diagnostics.container import Labels, container
from bmsvm.diagnostics.from_classifier import classifier_groups
from bmsvm.diagnostics.from_mcmc import mcmc_groups
from bmsvm.estimators import BMSVMClassifier

__all__ = ["to_arviz"]


def to_arviz(
    fitted: MCMC | BMSVMClassifier,
    *,
    classes: Sequence | np.ndarray | None = None,
    rows: Sequence | np.ndarray | None = None,
    features: Sequence | np.ndarray | None = None,
    log_likelihood: bool = True,
    posterior_predictive: bool = True,
    functions: bool = False,
    new_rows: ArrayLike | None = None,
    seed: int = 0,
    **kwargs: Any,
) -> Any:
    """Convert a fitted model to ArviZ's container, its coordinates named.

    Groups:

    ``posterior``
        sigma2, tau, theta where it was sampled, and the intercept (class). From chains also the
        scores (row, class).
    ``posterior_predictive``, ``observed_data``
        ``y`` (row): labels drawn again, and those of the data, as places in ``class``.
    ``log_likelihood``
        ``y`` (row), which ``arviz.loo`` and ``arviz.compare`` read.
    ``constant_data``
        ``X`` (row, feature), the weights of the rows, and a lengthscale that was not sampled;
        from chains ``X`` where they were given it.
    ``sample_stats``
        Acceptance of the moves that can be refused, and the size of their steps.
    ``predictions``, ``predictions_constant_data``
        Labels ``y`` (row) and their probabilities ``p`` (row, class) at ``new_rows``, and those.

    The log likelihood of a classifier, and its labels, are given
    the functions and sigma2, with the scores integrated out; those of chains are given the
    scores. The two are not to be compared with each other, and in ``arviz.loo`` the second have
    the heavier tails.

    Parameters
    ----------
    fitted
        A finished run of :class:`bmsvm.BMSVMGibbs`, or of NUTS on
        :func:`bmsvm.models.hierarchical_model`; or a fitted :class:`bmsvm.BMSVMClassifier`.
    classes
        Labels of the ``class`` dimension, shape (c,), in sorted order. Default: the classes of
        ``y`` where they are known, else 0, 1, ....
    rows
        Labels of the ``row`` dimension, shape (n,). Default: their places in the data.
    features
        Labels of the ``feature`` dimension, shape (p,). Default: the names that the data came
        with, else 0, 1, ....
    log_likelihood
        Whether to compute the log likelihood of each row. Under the ``hinge`` it is the
        pseudo-likelihood (11).
    posterior_predictive
        Whether to draw labels of the rows again.
    functions
        Whether a classifier's posterior has the class functions at the training rows,
        ``functions`` (row, class), too.
    new_rows
        Rows (m, p) to predict, in the units of the data. Their index, if they have one, labels
        them. Chains must have been run on data (X, y), and have kept the scores.
    seed
        Of the labels that are drawn for chains; a classifier has its own.
    **kwargs
        For chains, passed to ``arviz.from_numpyro``.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The first from ArviZ 0.x, the second from ArviZ 1.x.

    Examples
    --------
    >>> from bmsvm import BMSVMClassifier, datasets, diagnostics
    >>> X, y = datasets.load_wine(return_X_y=True)
    >>> model = BMSVMClassifier(lengthscale=3.5, num_samples=200, random_state=0).fit(X, y)
    >>> data = diagnostics.to_arviz(model)
    >>> data["log_likelihood"]["y"].dims
    ('chain', 'draw', 'row')
    """
    labels = Labels(classes, rows, features)
    if isinstance(fitted, BMSVMClassifier):
        if kwargs:
            raise TypeError(f"to_arviz takes no {', '.join(map(repr, kwargs))} for a classifier")
        groups = classifier_groups(
            fitted,
            labels,
            log_likelihood=log_likelihood,
            posterior_predictive=posterior_predictive,
            functions=functions,
            new_rows=new_rows,
        )
    elif isinstance(fitted, MCMC):
        if functions:
            raise ValueError("functions=True is for a classifier; chains have the scores instead")
        groups = mcmc_groups(
            fitted,
            labels,
            log_likelihood=log_likelihood,
            posterior_predictive=posterior_predictive,
            new_rows=new_rows,
            seed=seed,
            **kwargs,
        )
    else:
        raise TypeError(
            "fitted must be a numpyro.infer.MCMC that has run, or a fitted BMSVMClassifier; "
            f"got {type(fitted).__name__}"
        )
    return container(groups)
