"""The lengthscale by least squares with rows left out, for any model; how some rows are chosen."""

import numpy as np
import pytest

from bmsvm import PAPER, BMSVMClassifier, Sampled, SquaresCV, kernels
from bmsvm.datasets import load_wine
from bmsvm.selection.base import representative_rows

X, Y = load_wine(return_X_y=True)
X, Y = ((X - X.mean(0)) / X.std(0))[::2], Y[::2]
STATIONARY = [kernels.Gaussian(), kernels.Matern32(), kernels.Matern52(), kernels.Laplacian()]


def theta_of(rows=X, labels=Y, *, max_rows=None, **model):
    return SquaresCV(max_rows).select(rows, labels, **model).lengthscale


@pytest.mark.parametrize("kernel", STATIONARY, ids=str)
def test_theta_scales_with_the_rows_under_every_stationary_kernel(kernel):
    theta = theta_of(kernel=kernel)
    assert 1 < theta < 30
    assert theta_of(10 * X, kernel=kernel) == pytest.approx(10 * theta, rel=1e-6)


def test_theta_does_not_depend_on_the_model_around_the_kernel():
    found = SquaresCV().select(
        X, Y, coupling="independent", likelihood="hinge", hyperparameters=PAPER
    )
    assert found.lengthscale == pytest.approx(theta_of(), rel=1e-6)
    assert found.hyperparameters == PAPER
    assert found.num_rows == len(X)


def test_a_row_of_no_weight_has_no_part():
    odd = np.arange(len(X)) % 2
    shuffled = np.where(odd, Y, np.random.default_rng(0).permutation(Y))
    expected = theta_of(X[odd > 0], Y[odd > 0])
    assert theta_of(labels=shuffled, row_weights=odd) == pytest.approx(expected, rel=1e-6)


def test_weights_count():
    """Half the rows have labels in narrow stripes: theta is long if they have little weight."""
    odd = np.arange(120) % 2
    rows = np.random.default_rng(0).uniform(-3, 3, size=(120, 1))
    labels = np.where(odd, rows[:, 0] > 0, np.floor(2 * rows[:, 0]) % 2).astype(int)
    smooth, striped = (
        theta_of(rows, labels, kernel="gaussian", row_weights=np.where(odd == heavy, 1.0, 1e-6))
        for heavy in (1, 0)
    )
    assert smooth > 1.5 * striped


def test_some_of_many_rows_are_used_and_the_rest_is_not():
    found = SquaresCV(max_rows=60).select(X, Y)
    assert found.num_rows == 60
    assert 0.3 < found.lengthscale / theta_of() < 3
    assert theta_of(max_rows=len(X)) == pytest.approx(theta_of(), rel=1e-6)
    with pytest.raises(ValueError, match=r"^max_rows .*3.*got 2"):
        theta_of(max_rows=2)


def test_rows_are_chosen_in_proportion_with_every_class_among_them():
    labels = np.repeat([0, 1, 2], [600, 299, 1])
    rng = np.random.default_rng(0)
    chosen = representative_rows(labels, 90, rng)
    assert np.all(np.diff(chosen) > 0)
    np.testing.assert_allclose(np.bincount(labels[chosen]), [60, 29, 1], atol=1)
    assert np.bincount(labels[chosen])[2] == 1
    assert set(labels[representative_rows(labels, 3, rng)]) == {0, 1, 2}
    assert not np.array_equal(chosen, representative_rows(labels, 90, rng))


@pytest.mark.few_draws
@pytest.mark.parametrize(
    "model",
    [{"likelihood": "hinge"}, {"coupling": "independent"}, {"hyperparameters": PAPER}],
    ids=str,
)
def test_the_classifier_fits_at_the_lengthscale_that_was_chosen(model):
    weights = np.linspace(0.5, 2, len(X))
    fitted = BMSVMClassifier(
        kernel="matern52", num_warmup=20, num_samples=20, num_chains=2, random_state=0, **model
    ).fit(X, Y, weights)
    rows = fitted.standardized_rows(X)
    expected = theta_of(rows, kernel="matern52", row_weights=weights)
    assert fitted.lengthscale_ == fitted.selection_.lengthscale
    assert fitted.lengthscale_ == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize(
    "kernel", ["linear", "poly", lambda a, b: a @ b.T], ids=["linear", "poly", "own"]
)
def test_a_kernel_without_a_lengthscale_is_named(kernel):
    with pytest.raises(ValueError, match=r"^lengthscale=SquaresCV\(\) needs a kernel that has one"):
        theta_of(kernel=kernel)


def test_it_has_one_lengthscale_for_all_features():
    with pytest.raises(TypeError, match="per_feature"):
        SquaresCV(per_feature=True)
    assert Sampled(per_feature=True).per_feature
