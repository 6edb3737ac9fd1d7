"""Cross-validation of the machines, and their messages about bad input."""

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut
from small_machines import MACHINES, some_data

from bmsvm import MSVMClassifier, kernels
from bmsvm.machines import Grid, held_out_scores


@pytest.mark.parametrize("machine", MACHINES)
def test_leave_one_out_is_n_fits(machine):
    X, labels = some_data(36)
    gram = kernels.gram(kernels.Gaussian().at(1.5), X)
    rows = np.arange(36)
    folds = [(np.delete(rows, i), rows[i : i + 1]) for i in rows]
    fit = machine(tol=1e-8).fit(X, labels).fit_gram
    scores = held_out_scores(fit, gram, labels, np.ones(36), 0.05, folds)
    for train, test in folds:
        alone = fit(gram[np.ix_(train, train)], labels[train], np.ones(35), 0.05)
        direct = alone.intercept + gram[np.ix_(test, train)] @ alone.coefficients
        np.testing.assert_allclose(scores[test], direct, atol=2e-3)


@pytest.mark.parametrize("machine", MACHINES)
def test_cross_validation_chooses_the_least_error(machine):
    X, labels = some_data(60)
    grid = Grid(gamma=[0.01, 1.0], lengthscale=[0.05, 1.0, 3.0], folds=3)
    model = machine(gamma="cv", lengthscale="cv", grid=grid).fit(X, labels)
    tuning = model.tuning_
    assert tuning.error.shape == tuning.loss.shape == (3, 2)
    row, column = tuning.best
    assert tuning.error[row, column] == tuning.error.min()
    assert (model.lengthscale_, model.gamma_) == ([0.05, 1.0, 3.0][row], [0.01, 1.0][column])
    assert model.lengthscale_ > 0.05
    given = machine(gamma=model.gamma_, lengthscale=model.lengthscale_).fit(X, labels)
    assert given.tuning_ is None
    np.testing.assert_array_equal(given.predict(X), model.predict(X))
    grid = Grid(gamma=[0.1, 1.0], folds=LeaveOneOut())
    loo = machine(gamma="cv", grid=grid).fit(X[:24], labels[:24])
    assert np.all(np.isin(np.round(loo.tuning_.error * 24, 9), np.arange(25)))


def test_a_class_of_one_row_can_be_left_out():
    X, labels = some_data(24)
    labels = np.append(labels[:-1], 3)
    grid = Grid(gamma=[0.1, 1.0], folds=LeaveOneOut())
    for machine in MACHINES:
        model = machine(gamma="cv", grid=grid).fit(X, labels)
        assert np.all(np.isfinite(model.tuning_.loss))


# Bad input -------------------------------------------------------------------------------------

BAD = [
    ({"gamma": 0}, r"gamma must be a positive finite number; got 0"),
    ({"gamma": "best"}, r"gamma must be a positive number or \"cv\".*'best'"),
    ({"gamma": None}, r"gamma must be a positive finite number; got None"),
    ({"gamma": True, "grid": Grid(gamma=[1.0])}, r"only with gamma=\"cv\"; got gamma=True"),
    ({"gamma": 1e7}, r"gamma must be from 1e-06 to 1e\+06; got .*10000000"),
    ({"gamma": "cv", "grid": 5}, r"grid must be a bmsvm.machines.Grid or None; got 5"),
    ({"gamma": "cv", "grid": Grid(folds=50)}, r"folds must be an integer.*n_splits=50"),
    ({"gamma": "cv", "grid": Grid(folds=[([0], [99])])}, r"folds must be .*below 45"),
    ({"gamma": "cv", "grid": Grid(folds=[([0], [1])])}, r"at least 2 rows for training"),
    ({"lengthscale": -1.0}, r"lengthscale must be a positive number.*-1"),
    ({"lengthscale": "sample"}, r"lengthscale must be .*\"scale\".*'sample'"),
    ({"lengthscale": [1.0, 2.0]}, r"lengthscale .*of which X has 3"),
    ({"lengthscale": "cv", "kernel": "linear"}, r"lengthscale=\"cv\" needs a kernel.*'linear'"),
    ({"grid": Grid(lengthscale=[1.0])}, r"lengthscale are used only with lengthscale=\"cv\""),
    ({"kernel": "sigmoid"}, r"kernel must be one of 'gaussian'.*'sigmoid'"),
    ({"kernel": 3}, r"kernel must be a name or a callable.*3"),
    ({"kernel": "precomputed"}, r"X must be the square Gram matrix.*\(45, 3\)"),
    ({"kernel": lambda a, b: -(a @ b.T)}, r"positive semi-definite; its smallest eigenvalue is -"),
    ({"kernel": lambda a, b: a @ b.T + a[:, :1]}, r"kernel: the Gram matrix must be symmetric"),
    ({"intercept_precision": -1.0}, r"intercept_precision must be a finite number.*-1"),
    ({"intercept_precision": "free"}, r"intercept_precision must be a finite number.*'free'"),
    ({"standardize": "yes"}, r"standardize must be .*; got 'yes'"),
    ({"tol": 0.0}, r"tol must be a positive finite number; got 0.0"),
    ({"class_weight": "even"}, r"class_weight must be a dict.*'even'"),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("settings", "message"),
    BAD,
    ids=[next(iter(settings)) + str(i) for i, (settings, _) in enumerate(BAD)],
)
def test_bad_settings_are_refused_in_words(machine, settings, message):
    X, labels = some_data()
    with pytest.raises(ValueError, match=message):
        machine(**settings).fit(X, labels)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": [1.0, -1.0]}, r"Grid: gamma must be positive numbers.*-1"),
        ({"gamma": []}, r"Grid: gamma must be positive numbers"),
        ({"gamma": [1.0, 1e7]}, r"Grid: gamma must be from 1e-06 to 1e\+06"),
        ({"lengthscale": "cv"}, r"Grid: lengthscale must be positive numbers.*'cv'"),
        ({"folds": 1}, r"Grid: folds must be an integer of at least 2; got 1"),
    ],
)
def test_a_bad_grid_is_refused_in_words(settings, message):
    with pytest.raises(ValueError, match=message):
        Grid(**settings)


def test_bad_data_are_refused():
    X, labels = some_data()
    with pytest.raises(ValueError, match="y must have at least 2 classes; got 1 class"):
        MSVMClassifier().fit(X, np.zeros(45))
    with pytest.raises(ValueError, match="2 classes of positive weight"):
        MSVMClassifier().fit(X, labels, sample_weight=labels == 1)
