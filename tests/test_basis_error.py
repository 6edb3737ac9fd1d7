"""Error of class probabilities by a basis of low rank, against the exact Gram matrix."""

import numpy as np
import pytest
import scipy.special

from bmsvm import BMSVMClassifier, Fourier, Nystrom, prepare
from bmsvm.convergence import basis_checks, warn_of_checks
from bmsvm.kernels.functions import as_kernel
from bmsvm.prediction.basis_error import probability_error
from bmsvm.prediction.squares import exact_roots, least_squares, roots_of

GAUSSIAN = as_kernel("gaussian")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(250, 3))
WAVES = np.stack([2 * np.sin(1.5 * X @ RNG.normal(size=3) + shift) for shift in range(3)], axis=1)
NOISY = (scipy.special.softmax(WAVES, axis=1).cumsum(axis=1) < RNG.random((250, 1))).sum(axis=1)
CLEAN = WAVES.argmax(axis=1)


@pytest.mark.parametrize("labels", [NOISY, CLEAN], ids=["noisy", "clean"])
@pytest.mark.parametrize(("theta", "rank"), [(0.7, 8), (0.7, 40), (0.7, 100), (2.0, 20), (2.0, 40)])
def test_the_estimate_is_near_the_distance_from_the_exact_gram_matrix(labels, theta, rank):
    problem = prepare(X, labels, lengthscale=theta, approximation=Nystrom(rank=rank), spare_rows=6)
    weights = np.ones(250)
    low = roots_of(problem, np.arange(250), X, GAUSSIAN, theta)
    predicted = [
        np.exp(least_squares(roots, labels, 3, weights)[1])
        for roots in (low, exact_roots(X, GAUSSIAN, theta))
    ]
    truth = 0.5 * np.abs(predicted[0] - predicted[1]).sum(axis=1).mean()
    found = probability_error(problem, 250, GAUSSIAN)
    assert found < 4 * truth + 0.01
    assert found > truth / 4 - 0.01


def test_rows_that_need_nothing_beyond_the_basis_are_not_told_of_it():
    """Two far clusters in 15 dimensions: the basis leaves most of the kernel's variance."""
    labels = np.arange(250) % 2
    rows = np.random.default_rng(1).normal(size=(250, 15)) + 6 * labels[:, None]
    problem = prepare(rows, labels, lengthscale=2.0, approximation=Nystrom(rank=60))
    assert float(problem.basis_map.error) > 0.4
    assert probability_error(problem, 250, GAUSSIAN) < 0.03


def fitted(how, labels=NOISY):
    return BMSVMClassifier(
        lengthscale=0.5,
        likelihood="squared",
        standardize=None,
        num_samples=25,
        random_state=0,
        approximation=how,
    ).fit(X, labels)


def test_a_basis_that_is_too_small_is_named_unless_it_was_asked_for():
    with pytest.warns(UserWarning, match=r"10 columns.*probabilities.*exact.*rank=20\)") as told:
        model = fitted(Nystrom(max_rank=10))
    assert [each.filename for each in told] == [__file__]  # once, at the call of fit
    check = model.checks_["basis error"]
    assert not check.passed
    assert check.value == model.predictive_.basis_error > check.limit
    asked_for = fitted(Nystrom(rank=10))  # a warning would be an error
    assert not asked_for.checks_["basis error"].passed


def test_only_landmarks_are_checked():
    assert "basis error" not in fitted(Fourier(rank=20)).checks_
    assert "basis error" not in fitted("exact").checks_
    assert basis_checks(None, 3, 9) == {}
    warn_of_checks(basis_checks(0.049, 3, 9), UserWarning, stacklevel=2)
    with pytest.warns(UserWarning, match=r"3 columns"):
        warn_of_checks(basis_checks(0.051, 3, 9), UserWarning, stacklevel=2)


@pytest.mark.parametrize(
    ("columns", "n_rows", "exact", "rank"),
    [(1400, 2500, True, False), (1400, 8000, True, True), (1400, 12_000, False, True)],
)
def test_the_remedies_of_a_small_basis_are_those_that_work(columns, n_rows, exact, rank):
    advice = basis_checks(0.06, columns, n_rows)["basis error"].advice
    assert ('approximation="exact"' in advice, "Nystrom(rank=2800)" in advice) == (exact, rank)
