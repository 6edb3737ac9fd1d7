"""Three classes in the plane in different units, and a classifier of a few draws."""

import numpy as np

from bmsvm import BMSVMClassifier

SMALL = {"num_chains": 2, "num_warmup": 60, "num_samples": 40, "random_state": 0}
RNG = np.random.default_rng(0)
WORDS = np.array(["blue", "green", "red"])
CODES = np.arange(24) % 3
X = RNG.normal(size=(24, 2)) * [1.0, 50.0] + 3 * np.eye(3)[CODES][:, :2] * [1.0, 50.0]
Y = WORDS[CODES]


def model(**settings):
    """Return a classifier with a fixed lengthscale, not fitted yet."""
    return BMSVMClassifier(**{"lengthscale": 1.5, **SMALL, **settings})
