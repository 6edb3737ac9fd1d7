"""What the classifier does where nothing is said, by the number of rows."""

from __future__ import annotations

import numpy as np
import pytest

from bmsvm import HMC, BMSVMClassifier, Hyperparameters, ModeCV, Nystrom, Sampled, SquaresCV, Table
from bmsvm._defaults import approximation_of, settings_of

MANY = 2001
"""Rows that have a basis of low rank."""


def likelihood_of(rows, classes=5, **given):
    return settings_of(BMSVMClassifier(**given), rows, classes).likelihood


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"lengthscale": 2.0},
        {"kernel": "linear"},
        {"kernel": "precomputed"},
        {"approximation": "exact"},
        {"approximation": Nystrom(rank=50)},
    ],
    ids=str,
)
def test_many_rows_need_no_chain(given):
    """A gradient of n^2 (c - 1) = 2 10^6 products is the largest: 707 rows of five classes."""
    assert likelihood_of(707, **given) == "normalized"
    assert likelihood_of(708, **given) == "squared"
    assert likelihood_of(MANY, **given) == "squared"
    assert likelihood_of(1414, classes=2, **given) == "normalized"
    assert likelihood_of(203, classes=50, **given) == "squared"


@pytest.mark.parametrize(
    "given",
    [
        {"sampler": HMC()},
        {"sampler": "hmc"},
        {"hyperparameters": Hyperparameters()},
        {"lengthscale": ModeCV()},
        {"lengthscale": "squares-cv"},
        {"lengthscale": SquaresCV()},
        {"lengthscale": Sampled()},
        {"coupling": "independent"},
        {"predictive": "paper"},
    ],
    ids=str,
)
def test_what_needs_the_model_of_the_paper_keeps_it(given):
    assert likelihood_of(MANY, **given) == "normalized"


@pytest.mark.parametrize("likelihood", ["normalized", "hinge", "squared"])
def test_a_likelihood_that_is_given_stays(likelihood):
    assert likelihood_of(10**6, likelihood=likelihood) == likelihood


def test_a_basis_by_default_is_as_fine_as_least_squares_need():
    settings = settings_of(BMSVMClassifier(), MANY, 3)
    assert approximation_of(settings, MANY).tolerance < 1e-5
    chains = settings_of(BMSVMClassifier(likelihood="normalized"), MANY, 3)
    assert approximation_of(chains, MANY).tolerance == Nystrom().tolerance


def test_many_rows_need_no_chain_and_are_pooled_with_least_squares():
    """Three rings in the plane, which no line separates; the Bayes error is under 0.01."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=2600)
    angle = rng.uniform(0, 2 * np.pi, 2600)
    X = (1.0 + y)[:, None] * np.c_[np.cos(angle), np.sin(angle)]
    X += 0.15 * rng.normal(size=(2600, 2))
    model = BMSVMClassifier(num_samples=25, random_state=0).fit(X[:2100], y[:2100])
    assert model.posterior_.problem.likelihood == "squared"
    assert model.predictive_.squares is not None
    assert model.checks_["basis error"].passed
    assert isinstance(model.run_.kernel.sampler_of(model.run_.problem), Table)
    own = model.predict_proba(X[2100:])[np.arange(500), y[2100:]]
    assert model.score(X[2100:], y[2100:]) > 0.98
    assert -np.log(own).mean() < 0.06
