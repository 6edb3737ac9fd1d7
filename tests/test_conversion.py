"""Parameters of SVC as those of this package: the same kernel, the same machine, the same prior."""

import jax
import numpy as np
import pytest
from numpyro import handlers
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

import bmsvm
from bmsvm import MSVMClassifier, kernels
from bmsvm.conversion import (
    C_from_regularization,
    gamma_from_lengthscale,
    lengthscale_from_gamma,
    regularization_from_C,
)
from bmsvm.models import hierarchical_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
X_NEW = RNG.normal(size=(40, 3))


@pytest.mark.parametrize("gamma", [0.02, 0.7, 5.0])
def test_the_kernel_is_the_same(gamma):
    theta = lengthscale_from_gamma(gamma)
    ours = kernels.gram(kernels.Gaussian().at(theta), X, X_NEW)
    np.testing.assert_allclose(ours, rbf_kernel(X, X_NEW, gamma=gamma), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("C", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("gamma", [0.1, 0.5])
def test_with_two_classes_the_machine_is_svc(C, gamma):
    y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.5 * RNG.normal(size=len(X)) > 1, "yes", "no")
    svc = SVC(C=C, gamma=gamma, tol=1e-8).fit(X, y)
    machine = MSVMClassifier(
        gamma=float(regularization_from_C(C)),
        lengthscale=float(lengthscale_from_gamma(gamma)),
        standardize=False,
        tol=1e-9,
    ).fit(X, y)
    ours = machine.class_functions(X_NEW)[:, 1]
    np.testing.assert_allclose(ours, svc.decision_function(X_NEW), atol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_C_is_the_prior_variance_of_a_class_function(n_classes):
    """Functions of the prior over their standard deviation: a z-test of their mean square.

    It fails by chance with probability 1e-5 in each case: |z| < 4.4.
    """
    y, eta = np.arange(len(X)) % n_classes, 1e12  # no intercept to speak of
    hyperparameters = bmsvm.Hyperparameters(intercept_precision=eta)
    problem = bmsvm.prepare(X, y, lengthscale=1.0, hyperparameters=hyperparameters)

    def one(key):
        seeded = handlers.seed(hierarchical_model, key)
        trace = handlers.trace(seeded).get_trace(problem, integrate_weights=False, observed=None)
        ratio = trace["precision"]["value"] / trace["noise_variance"]["value"]
        return trace["latent"]["value"][0, 0], ratio  # one function at one row: independent draws

    functions, ratios = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 4000))
    squares = np.asarray(functions) ** 2 / C_from_regularization(ratios, n_classes)
    z = (squares.mean() - 1) / np.sqrt(2 / len(squares))
    assert abs(z) < 4.4


def test_conversions_are_inverse():
    values = np.geomspace(1e-3, 1e3, 7)
    np.testing.assert_allclose(gamma_from_lengthscale(lengthscale_from_gamma(values)), values)
    for n_classes in (2, 5):
        there = regularization_from_C(values, n_classes)
        np.testing.assert_allclose(C_from_regularization(there, n_classes), values)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "scale", []])
def test_what_is_not_positive_is_refused(value):
    for function, name in (
        (lengthscale_from_gamma, "gamma"),
        (gamma_from_lengthscale, "lengthscale"),
        (regularization_from_C, "C"),
        (C_from_regularization, "regularization"),
    ):
        with pytest.raises(ValueError, match=rf"^{name} must be positive and finite"):
            function(value)
    with pytest.raises(ValueError, match=r"theta is sqrt\(p / 2\)"):
        lengthscale_from_gamma("scale")
    with pytest.raises(ValueError, match=r"^n_classes"):
        regularization_from_C(1.0, n_classes=1)
