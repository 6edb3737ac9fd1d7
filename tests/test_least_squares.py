"""The least-squares machine against the textbook's linear system, and against the posterior."""

import jax
import numpy as np
import pytest
from small_machines import some_data

from bmsvm import BMSVMClassifier, Hyperparameters, LeastSquaresSVM, kernels, load, prepare, save
from bmsvm.machines import Grid
from bmsvm.models import squared
from bmsvm.models.couplings import contrast
from bmsvm.models.likelihoods import squared_scale

SETTINGS = {"lengthscale": 1.5, "standardize": False}


def textbook(gram, labels, weights, gamma, kappa):
    """Solve the equations of stationarity all at once; see the docstring of the machine."""
    n, c = len(labels), labels.max() + 1
    codes = np.full((n, c), -1 / (c - 1))
    codes[np.arange(n), labels] = 1.0
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = gram + gamma * np.diag(1 / weights)
    system[:n, n] = 1.0
    system[n, :n] = gamma
    system[n, n] = -kappa
    solved = np.linalg.solve(system, np.vstack([codes, np.zeros(c)]))
    return solved[:n], solved[n]


@pytest.mark.parametrize("kappa", [0.0, 2.5])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_machine_solves_the_textbook_equations(kappa, n_classes):
    X, labels = some_data(c=n_classes)
    weights = np.random.default_rng(1).uniform(0.3, 2.0, len(X))
    gram = kernels.gram(kernels.Gaussian().at(1.5), X)
    model = LeastSquaresSVM(gamma=0.3, intercept_precision=kappa, **SETTINGS)
    model.fit(X, labels, sample_weight=weights)
    coefficients, intercept = textbook(gram, labels, weights, 0.3, kappa)
    np.testing.assert_allclose(model.coefficients_, coefficients, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, intercept, atol=1e-9)
    assert model.duality_gap_ < 1e-9
    assert len(model.support_) == len(X)
    np.testing.assert_allclose(model.class_functions(X).sum(axis=1), 0, atol=1e-9)


def test_no_small_change_lowers_the_objective():
    X, labels = some_data()
    gram = kernels.gram(kernels.Gaussian().at(1.5), X)
    model = LeastSquaresSVM(gamma=0.2, intercept_precision=0.7, **SETTINGS).fit(X, labels)
    codes = np.where(labels[:, None] == np.arange(3), 1.0, -0.5)

    def objective(w, b):
        loss = 0.5 * np.sum((b + gram @ w - codes) ** 2)
        return loss + 0.1 * np.sum(w * (gram @ w)) + 0.35 * np.sum(b**2)

    least = objective(model.coefficients_, model.intercept_)
    assert least == pytest.approx(model.objective_)
    rng = np.random.default_rng(0)
    for _ in range(20):
        w = model.coefficients_ + 1e-3 * rng.normal(size=model.coefficients_.shape)
        assert objective(w, model.intercept_ + 1e-3 * rng.normal(size=3)) > least


def test_it_is_the_mode_of_the_squared_model():
    """At tau and sigma2, with gamma and kappa as the docstring says."""
    X, labels = some_data()
    tau, sigma2, eta = 0.4, 0.3, 5.0
    noise = sigma2 + squared_scale(3) ** 2
    with jax.enable_x64(True):
        problem = prepare(
            X,
            labels,
            lengthscale=1.5,
            likelihood="squared",
            hyperparameters=Hyperparameters(intercept_precision=eta),
        )
        basis, eigenvalues = (np.asarray(part) for part in problem.factor)
    codes = squared.code_columns(labels, 3)
    eigen = squared.Eigen(eigenvalues, basis)
    moments = squared.moments_of(eigen, codes)
    cell = squared.cell_at(moments, tau, sigma2, eta, noise)
    mean, _ = squared.functions_at(basis * np.sqrt(eigenvalues), moments, cell)
    model = LeastSquaresSVM(
        gamma=tau * noise / sigma2, intercept_precision=eta * noise / sigma2, **SETTINGS
    ).fit(X, labels)
    expected = mean @ contrast(3).T
    np.testing.assert_allclose(model.class_functions(X), expected, atol=1e-8)


def test_gamma_and_the_lengthscale_are_tuned_by_the_same_grid():
    X, labels = some_data(n=60, apart=2.0)
    grid = Grid(gamma=[0.01, 1.0, 100.0], lengthscale=[0.05, 2.0], folds=3)
    model = LeastSquaresSVM(gamma="cv", lengthscale="cv", grid=grid).fit(X, labels)
    assert model.tuning_.error.shape == (2, 3)
    assert model.lengthscale_ == 2.0
    assert model.gamma_ in (0.01, 1.0)
    assert model.score(X, labels) > 0.8


def test_a_row_of_weight_two_is_a_row_given_twice():
    X, labels = some_data()
    counts = 1 + np.arange(len(X)) % 2
    weighted = LeastSquaresSVM(**SETTINGS).fit(X, labels, sample_weight=counts)
    repeated = LeastSquaresSVM(**SETTINGS).fit(np.repeat(X, counts, 0), np.repeat(labels, counts))
    np.testing.assert_allclose(weighted.class_functions(X), repeated.class_functions(X), atol=1e-9)


def test_it_is_saved_and_loaded(tmp_path):
    X, labels = some_data()
    model = LeastSquaresSVM(**SETTINGS).fit(X, labels)
    save(model, tmp_path / "machine.bmsvm")
    loaded = load(tmp_path / "machine.bmsvm")
    np.testing.assert_array_equal(loaded.class_functions(X), model.class_functions(X))
    assert not isinstance(loaded, BMSVMClassifier)
