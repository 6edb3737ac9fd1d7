"""A classifier fitted in a moment, for tests of what is done with one."""

import copy

import numpy as np
import pandas as pd
from few_draws import few_draws

from bmsvm import BMSVMClassifier

SMALL = {"num_chains": 2, "num_warmup": 20, "num_samples": 20, "random_state": 0}
WORDS = np.array(["blue", "green", "red"])
CODES = np.arange(18) % 3
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    RNG.normal(size=(18, 2)) * [1.0, 50.0] + 3 * np.eye(3)[CODES][:, :2] * [1.0, 50.0],
    columns=["width", "height"],
)
Y = WORDS[CODES]
NEW = pd.DataFrame(RNG.normal(size=(5, 2)) * [2.0, 99.0], columns=X.columns)


def fit(checkpoint=None, **settings):
    """Fit a few draws, whatever they are worth."""
    with few_draws():
        return BMSVMClassifier(
            **{"lengthscale": 1.5, "likelihood": "hinge", "sampler": "gibbs", **SMALL, **settings}
        ).fit(X, Y, checkpoint=checkpoint)


def renamed(model, classes):
    """Return the model with other names of its classes."""
    other = copy.copy(model)
    other.classes_ = np.asarray(classes)
    return other
