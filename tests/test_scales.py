"""Lengthscales that do not suit the features are warned of, and no others."""

import warnings

import jax
import numpy as np
import pytest
from numpyro.infer import MCMC
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_blobs, make_moons

from bmsvm import BMSVMClassifier, BMSVMGibbs, Nystrom, Posterior, Sampled, prepare, scaling
from bmsvm.datasets import load_wine
from bmsvm.kernels import Gaussian
from bmsvm.kernels.scales import kernel_scales

WINE, CLASSES = load_wine(return_X_y=True)


def standardized(rows):
    return scaling.learn(rows, "standard").apply(rows)


def labels(rows):
    return np.arange(len(rows)) % 3


def some(rows, count=400):
    return rows[np.random.default_rng(0).permutation(len(rows))[:count]]


def test_unstandardised_rows_are_warned_of_with_all_that_matters():
    with pytest.warns(UserWarning, match="rows are nearly independent of each other") as caught:
        BMSVMGibbs(lengthscale=3.5).prepare(WINE, CLASSES)
    text = str(caught[0].message)
    for part in ("0.124 to 314", "lengthscale is 3.5", "99% are near 0", "bmsvm.scaling.learn"):
        assert part in text


@pytest.mark.parametrize(
    ("rows", "lengthscale", "what"),
    [
        (some(load_digits().data), 3.5, "rows are nearly independent"),
        (some(load_breast_cancer().data), 3.5, "rows are nearly independent"),
        (1000 * standardized(WINE), 3.5, "rows are nearly independent"),
        (standardized(WINE) / 1000, 3.5, "all rows look alike"),
        (WINE, Sampled(grid=[10.0, 100.0]), "one feature determines"),
        (WINE, 500.0, "one feature determines"),
    ],
    ids=["digits", "cancer", "large units", "small units", "sampled", "long"],
)
def test_what_the_kernel_cannot_see_is_warned_of(rows, lengthscale, what):
    with pytest.warns(UserWarning, match=f"X and lengthscale: {what}"):
        prepare(rows, labels(rows), lengthscale=lengthscale)


def test_standardised_rows_need_not_be_standardised():
    with pytest.warns(UserWarning, match="Give a lengthscale") as caught:
        prepare(standardized(WINE), CLASSES, lengthscale=0.01)
    assert "Standardise" not in str(caught[0].message)


@pytest.mark.few_draws
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (standardized(WINE), "X and lengthscale"),
        (np.ones_like(WINE), "X: all features are constant"),
    ],
    ids=["lengthscale", "constant"],
)
def test_the_warning_does_not_come_again_with_the_posterior(rows, said):
    mcmc = MCMC(BMSVMGibbs(lengthscale=0.01), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.warns(UserWarning, match=said):
        mcmc.run(jax.random.key(0), rows, CLASSES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Posterior.from_numpyro(mcmc)


def test_constant_features_are_warned_of_once_and_not_as_a_matter_of_scale():
    rows = np.ones((30, 2))
    with pytest.warns(UserWarning, match="^X: all features are constant") as caught:
        BMSVMClassifier(random_state=0).fit(rows, labels(rows))
    assert len(caught) == 1


@pytest.mark.few_draws
def test_the_scales_of_a_classifier_are_warned_of_once_with_its_own_lengthscale():
    """Chains that are compiled ahead have another lengthscale, which is not warned of."""
    model = BMSVMClassifier(standardize=False, num_warmup=5, num_samples=10, random_state=0)
    with pytest.warns(UserWarning, match="^X and lengthscale: one feature") as caught:
        model.fit(WINE[::6], CLASSES[::6])
    said = [str(each.message) for each in caught if "lengthscale: " in str(each.message)]
    assert len(said) == 1
    assert f"the lengthscale is {model.lengthscale_:.3g}, " in said[0]


def test_the_warning_can_be_left_out():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(WINE, CLASSES, lengthscale=3.5, warn=False)
    with pytest.raises(ValueError, match="warn must be True or False; got 'no'"):
        prepare(WINE, CLASSES, lengthscale=3.5, warn="no")


SENSIBLE = {
    "wine": (standardized(WINE), (1.0, 2.0, 3.5, 10.0, 20.0)),
    "wine, one lengthscale per feature": (WINE, (3.5 * WINE.std(0),)),
    "wine, robust": (scaling.learn(WINE, "robust").apply(WINE), (3.5, Sampled(grid=[1.0, 3.0]))),
    "iris in cm": (load_iris().data, (0.3, 1.0, 3.0)),
    "digits": (some(standardized(load_digits().data)), (3.5, 8.0)),
    "digits in grey levels": (some(load_digits().data), (20.0, 40.0)),
    "digits from 0 to 1": (some(load_digits().data / 16), (1.0,)),
    "a line, neighbours close": (np.linspace(0, 100, 500)[:, None], (0.5, 1.0, 30.0)),
    "clusters": (make_blobs(300, centers=5, random_state=0)[0], (1.0, 3.0)),
    "tight clusters": (make_blobs(300, centers=5, cluster_std=0.05, random_state=0)[0], (1.0,)),
    "moons": (make_moons(300, noise=0.1, random_state=0)[0], (0.05, 0.2, 1.0)),
    "many features": (np.random.default_rng(0).normal(size=(200, 500)), (20.0, 30.0)),
    "few rows": (np.random.default_rng(0).normal(size=(6, 3)), (0.01,)),
}


@pytest.mark.filterwarnings("error:X and lengthscale")
@pytest.mark.parametrize("name", SENSIBLE)
def test_sensible_lengthscales_are_not_warned_of(name):
    rows, lengthscales = SENSIBLE[name]
    for lengthscale in lengthscales:
        prepare(rows, labels(rows), lengthscale=lengthscale)


@pytest.mark.filterwarnings("error:X and lengthscale")
def test_kernels_without_a_lengthscale_are_not_judged():
    prepare(WINE, CLASSES, kernel="linear")
    prepare(WINE @ WINE.T, CLASSES, kernel="precomputed")
    prepare(standardized(WINE), CLASSES, lengthscale=3.5, approximation=Nystrom(rank=20))


def test_shares_are_those_of_the_gram_matrix():
    rows = np.array([[0.0], [0.01], [3.0], [9.0]])
    found = kernel_scales(rows, Gaussian(), 1.0)
    assert found.near_one == pytest.approx(2 / 12)  # the first two
    assert found.near_zero == pytest.approx(6 / 12)  # the last with all others
    assert found.nearest == pytest.approx((np.exp(-0.5 * 2.99**2) + np.exp(-0.5 * 0.01**2)) / 2)
    two = np.array([[0.0, 0.0], [3.0, 1.0]])
    assert kernel_scales(two, Gaussian(), None).largest_share == pytest.approx(0.9)
    assert kernel_scales(two, Gaussian(), [3.0, 1.0]).largest_share == pytest.approx(0.5)


def test_a_classifier_standardises_and_is_not_warned():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="X and lengthscale")
        BMSVMClassifier(likelihood="squared", random_state=0, num_samples=20).fit(WINE, CLASSES)
    with pytest.warns(UserWarning, match="X and lengthscale: rows are nearly independent"):
        BMSVMClassifier(
            likelihood="squared", lengthscale=3.5, standardize=False, num_samples=20,
            random_state=0,
        ).fit(WINE, CLASSES)  # fmt: skip
