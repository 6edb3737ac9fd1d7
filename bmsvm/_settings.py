"""Settings of the classifier: checked before any work is done."""

from __future__ import annotations

from typing import Any

import numpy as np

from bmsvm._defaults import lengthscale_of, settings_of
from bmsvm._predicting import as_predictive
from bmsvm._validation import check_choice, check_sweeps
from bmsvm.inference.samplers import as_sampler
from bmsvm.models.couplings import COUPLINGS, check_integrable
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.models.prepare import as_lengthscale
from bmsvm.scaling import as_standardize
from bmsvm.selection import as_method


def check_settings(classifier: Any, checkpoint: Any = None) -> None:
    """Raise ``ValueError`` for settings of a classifier that make no sense."""
    check_choice("likelihood", classifier.likelihood, ("auto", *LIKELIHOODS))
    check_choice("coupling", classifier.coupling, COUPLINGS)
    for name in ("num_chains", "num_samples"):
        check_sweeps(name, getattr(classifier, name))
    if classifier.num_warmup is not None:
        check_sweeps("num_warmup", classifier.num_warmup, smallest=0)
    as_standardize(classifier.standardize)
    as_sampler(classifier.sampler)
    if not isinstance(classifier.hyperparameters, Hyperparameters | None):
        raise ValueError(
            "hyperparameters must be a Hyperparameters(...), bmsvm.PAPER or None; got "
            f"{classifier.hyperparameters!r}"
        )
    if as_predictive(classifier.predictive).calibrate:
        check_integrable('predictive="calibrated"', classifier.coupling)
    settings = settings_of(classifier, n_rows=0, n_classes=2)
    kernel, lengthscale = settings.kernel, lengthscale_of(settings)
    method = as_method(lengthscale)
    if method is not None:
        method.check_model(kernel, settings.coupling, settings.likelihood)
    else:
        as_lengthscale(lengthscale, kernel)
    random_state = classifier.random_state
    if checkpoint is not None and not isinstance(random_state, int | np.integer):
        raise ValueError(
            "random_state must be an integer with checkpoint, so that a second call is the "
            f"same; got {random_state!r}"
        )
