"""The multicategory machines are what they say: optimal, certified, and the mode of the model."""

import warnings

import clarabel
import jax
import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import bmsvm
from bmsvm import AltMSVM, MSVMClassifier, OneVsRestSVC, kernels
from bmsvm.inference.cross_validation import Fold
from bmsvm.machines import (
    MachineProblem,
    held_out_scores,
    lee,
    one_vs_rest,
    solve,
    solver,
    weston_watkins,
)
from bmsvm.machines.interior_point import BoxProgram, solve_box
from bmsvm.models import hierarchy
from bmsvm.models.couplings import contrast

MACHINES = (MSVMClassifier, AltMSVM, OneVsRestSVC)
LOSSES = (lee, weston_watkins)
WORDS = np.array(["blue", "green", "red"])


def some_data(n=45, c=3, seed=0, apart=1.0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % c
    return rng.normal(size=(n, 3)) + apart * rng.normal(size=(c, 3))[labels], labels


def some_problem(loss=lee, *, gamma=0.3, kappa=0.0, lengthscale=1.5, weights=None, **data):
    X, labels = some_data(**data)
    gram = kernels.gram(kernels.gaussian(lengthscale), X)
    weights = np.ones(len(X)) if weights is None else weights
    return MachineProblem(gram, labels, loss(labels.max() + 1), gamma, kappa, weights)


# Optimality ------------------------------------------------------------------------------------


def primal_by_clarabel(problem: MachineProblem, name: str):
    """Problem (2) with (3), as printed, in W, w0 and slacks: its objective and scores."""
    n, c = problem.upper.shape
    d = 1 / (c - 1)
    size = n * c + c
    rows, rivals = np.nonzero(problem.upper)
    charge = np.zeros((len(rows), c))
    charge[np.arange(len(rows)), rivals] = 1
    if name == "weston_watkins":
        charge[np.arange(len(rows)), problem.labels[rows]] -= 1
    offset = d if name == "lee" else 1 + d
    expand = np.hstack([np.kron(problem.gram, np.eye(c)), np.kron(np.ones((n, 1)), np.eye(c))])
    margins = np.einsum("kc,kcs->ks", charge, expand.reshape(n, c, size)[rows])
    slack = np.eye(len(rows))
    total = expand.reshape(n, c, size).sum(1)  # (3)
    total = np.vstack([total, np.append(np.zeros(n * c), np.ones(c))])
    quadratic = scipy.linalg.block_diag(
        problem.gamma * np.kron(problem.gram, np.eye(c)),
        problem.intercept_precision * np.eye(c),
        np.zeros((len(rows), len(rows))),
    )
    linear = np.append(np.zeros(size), problem.weights[rows])
    constraints = np.vstack(
        [
            np.hstack([total, np.zeros((len(total), len(rows)))]),
            np.hstack([margins, -slack]),
            np.hstack([np.zeros((len(rows), size)), -slack]),
        ]
    )
    right = np.concatenate([np.zeros(len(total)), np.full(len(rows), -offset), np.zeros(len(rows))])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    answer = clarabel.DefaultSolver(
        scipy.sparse.csc_matrix(np.triu(quadratic)),
        linear,
        scipy.sparse.csc_matrix(constraints),
        right,
        [clarabel.ZeroConeT(len(total)), clarabel.NonnegativeConeT(2 * len(rows))],
        settings,
    ).solve()
    return answer.obj_val, (expand @ np.asarray(answer.x)[:size]).reshape(n, c)


@pytest.mark.parametrize("kappa", [0.0, 2.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_another_solver_of_the_printed_primal_finds_the_same(loss, kappa):
    weights = np.linspace(0.5, 2, 30)
    problem = some_problem(loss, n=30, c=4, kappa=kappa, weights=weights)
    ours = solve(problem)
    objective, scores = primal_by_clarabel(problem, loss.__name__)
    assert ours.gap <= 1e-6
    np.testing.assert_allclose(ours.objective, objective, atol=1e-5)
    np.testing.assert_allclose(ours.scores, scores, atol=1e-4)


@pytest.mark.parametrize("gamma", [1e-4, 0.1, 30.0])
@pytest.mark.parametrize("kappa", [0.0, 1.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_conditions_of_karush_kuhn_and_tucker_hold(loss, kappa, gamma):
    problem = some_problem(loss, kappa=kappa, gamma=gamma)
    found = solve(problem, tol=1e-8)
    upper = problem.upper
    assert found.gap <= 1e-8
    assert np.all((found.dual >= 0) & (found.dual <= upper))
    np.testing.assert_allclose(found.coefficients.sum(1), 0, atol=1e-9 / gamma)
    np.testing.assert_allclose(found.intercept.sum(), 0, atol=1e-9)
    np.testing.assert_allclose(
        found.scores, found.intercept + problem.gram @ found.coefficients, atol=1e-9
    )
    gathered = problem.gathered(found.dual)
    np.testing.assert_allclose(found.coefficients, -gathered / gamma)
    np.testing.assert_allclose(gathered.sum(0), -kappa * found.intercept, atol=1e-9)
    margins = problem.margins(found.scores)
    scale = 1e-4
    assert np.all(margins[(upper > 0) & (found.dual < upper * (1 - 1e-4))] < scale)
    assert np.all(margins[(upper > 0) & (found.dual > upper * 1e-4)] > -scale)


def test_the_gap_is_the_one_of_the_printed_objectives():
    problem = some_problem(lee)
    found = solve(problem)
    d, c = 0.5, 3
    rivals = problem.labels[:, None] != np.arange(c)
    lost = np.where(rivals, np.maximum(found.scores + d, 0), 0).sum()
    norm = problem.gamma / 2 * np.trace(problem.gram @ found.coefficients @ found.coefficients.T)
    np.testing.assert_allclose(found.objective, lost + norm, rtol=1e-12)
    centred = found.dual - found.dual.mean(1, keepdims=True)
    dual = d * found.dual.sum() - np.sum(centred * (problem.gram @ centred)) / 2 / problem.gamma
    np.testing.assert_allclose(found.gap, lost + norm - dual, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kappa", [0.0, 3.0])
def test_working_sets_and_starts_end_where_the_whole_problem_does(loss, kappa, monkeypatch):
    problem = some_problem(loss, n=120, gamma=0.05, kappa=kappa)
    whole = solve(problem)
    for start in (np.zeros_like(whole.scores), whole.scores, -whole.scores):
        again = solve(problem, start=start)
        assert again.gap <= 1e-6
        np.testing.assert_allclose(again.scores, whole.scores, atol=2e-3)
    monkeypatch.setattr(solver, "WHOLE", 40)
    halves = solve(problem)
    assert halves.rounds > 1
    assert halves.gap <= 1e-6
    np.testing.assert_allclose(halves.objective, whole.objective, atol=1e-6)


def test_kernels_of_low_rank_and_rows_given_twice_do_no_harm():
    X, labels = some_data(40)
    X = np.concatenate([X, X])
    labels = np.concatenate([labels, labels[::-1]])  # and some of them contradict each other
    for loss in LOSSES:
        problem = MachineProblem(X @ X.T, labels, loss(3), 0.01, 0.0, np.ones(80))
        assert solve(problem).gap <= 1e-6


def test_a_box_without_equalities_and_one_that_cannot_be_met():
    quadratic = np.array([[2.0, 0.5], [0.5, 1.0]])
    free = BoxProgram(quadratic, np.array([1.0, 4.0]), np.ones(2), np.zeros((2, 0)), np.zeros(0))
    np.testing.assert_allclose(solve_box(free, tol=1e-10).point, [0.25, 1.0], atol=1e-6)
    impossible = free._replace(equalities=np.ones((2, 1)), targets=np.array([3.0]))
    assert solve_box(impossible, tol=1e-10).gap == np.inf


def test_a_gap_that_rounding_forbids_is_told():
    X, y = some_data(60, apart=0.0)
    with pytest.warns(ConvergenceWarning, match=r"duality gap is .*tol=1e-15"):
        MSVMClassifier(gamma=1e-4, lengthscale=5.0, tol=1e-15).fit(X, y)


# The mode --------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [4.0, 1000.0])
def test_the_mode_of_the_hierarchical_prior_is_the_msvm(eta):
    """Maximise our own log joint over (b, v), the scores without noise: section 2.2.

    With sigma2 and tau fixed and T = 1b' + Phi v, what varies of the log joint is the hinge and the
    two normal priors: tau/sigma2 is gamma, eta/sigma2 is kappa.
    """
    noise_variance, precision = 2.0, 0.6
    X, labels = some_data(30)
    problem = bmsvm.prepare(
        X,
        labels,
        lengthscale=1.5,
        likelihood="hinge",
        hyperparameters=bmsvm.Hyperparameters(intercept_precision=eta),
    )
    rank, columns = problem.factor.basis.shape[1], problem.n_columns

    def log_joint(flat):
        intercept, weights = flat[:columns], flat[columns:].reshape(rank, columns)
        position = hierarchy.Position(
            hierarchy.latent(intercept, weights, problem),
            intercept,
            weights,
            jax.numpy.asarray(noise_variance),
            jax.numpy.asarray(precision),
        )
        return hierarchy.log_joint(position, problem)

    machine = MachineProblem(
        kernels.gram(kernels.gaussian(1.5), X),
        labels,
        lee(3),
        precision / noise_variance,
        eta / noise_variance,
        np.ones(30),
    )
    found = solve(machine, tol=1e-9)
    weights = hierarchy.weights_of_representer(found.coefficients @ contrast(3), problem)
    mode = np.concatenate([found.intercept @ contrast(3), np.asarray(weights).ravel()])
    zero = np.zeros_like(mode)
    gain = float(log_joint(mode) - log_joint(zero))
    at_zero = float(np.sum(machine.upper) * 0.5)
    np.testing.assert_allclose(gain, at_zero - found.objective, atol=1e-8)  # the same function
    rng = np.random.default_rng(0)
    values = jax.jit(jax.vmap(log_joint))
    steps = np.repeat([1e-4, 1e-3, 1e-2, 0.1, 1.0], 50)[:, None] * rng.normal(size=(250, len(mode)))
    assert np.all(values(mode + steps) < values(mode[None]))
    slope = jax.jit(jax.grad(log_joint))
    ascent = scipy.optimize.minimize(
        lambda flat: -float(values(flat[None])[0]),
        mode + 0.05 * rng.normal(size=len(mode)),
        jac=lambda flat: -np.asarray(slope(flat)),
        method="L-BFGS-B",
    )
    highest = float(values(mode[None])[0])
    assert highest - 0.05 < -ascent.fun <= highest + 1e-8  # kinks stop the ascent a little short


# Properties ------------------------------------------------------------------------------------


def test_fisher_consistency():
    """Where one row stands for a distribution of labels, the MSVM finds its mode; the Alt does not.

    Rows at three places far apart, weighted by known class probabilities none of which is above a
    half: the population's problem, nearly without penalty. Lee et al.: f is 1 at the likeliest
    class and -d elsewhere.
    """
    chances = np.array([[0.4, 0.35, 0.25], [0.2, 0.45, 0.35], [0.34, 0.3, 0.36]])
    X = np.repeat(50.0 * np.eye(3), 3, axis=0)
    labels, weights = np.tile(np.arange(3), 3), chances.ravel()
    model = MSVMClassifier(
        gamma=1e-5, intercept_precision=1e-2, lengthscale=1.0, standardize=False
    ).fit(X, labels, sample_weight=weights)
    at = model.class_functions(50.0 * np.eye(3))
    ideal = np.where(np.arange(3) == chances.argmax(1)[:, None], 1.0, -0.5)
    np.testing.assert_allclose(at, ideal, atol=1e-3)
    other = clone(AltMSVM().set_params(**model.get_params())).fit(X, labels, sample_weight=weights)
    assert np.abs(other.class_functions(50.0 * np.eye(3)) - ideal).max() > 0.4


@pytest.mark.parametrize("machine", MACHINES)
def test_names_of_classes_do_not_matter(machine):
    X, labels = some_data()
    order = np.array([2, 0, 1])
    one = machine(gamma=0.2).fit(X, labels)
    other = machine(gamma=0.2).fit(X, order[labels])
    np.testing.assert_allclose(
        other.class_functions(X)[:, order], one.class_functions(X), atol=1e-3
    )
    named = machine(gamma=0.2).fit(X, WORDS[labels])
    np.testing.assert_array_equal(named.classes_, WORDS)
    np.testing.assert_array_equal(named.predict(X), WORDS[one.predict(X)])


@pytest.mark.parametrize(
    ("machine", "factor"), [(MSVMClassifier, 2.0), (AltMSVM, 1.0), (OneVsRestSVC, 1.0)]
)
def test_two_classes_are_scikit_learns_svc(machine, factor):
    """C = 1/(2 gamma) for the MSVM, whose penalty counts f and -f; its margin doubles the Alt's."""
    X, labels = some_data(60, c=2)
    gamma, theta = 0.4, 1.3
    ours = machine(gamma=gamma, lengthscale=theta, standardize=False, tol=1e-9).fit(X, labels)
    theirs = SVC(C=1 / (factor * gamma), gamma=1 / (2 * theta**2), tol=1e-9).fit(X, labels)
    new = np.random.default_rng(3).normal(size=(20, 3))
    np.testing.assert_allclose(
        ours.decision_function(new), theirs.decision_function(new), atol=1e-4
    )
    assert ours.decision_function(new).shape == (20,)
    np.testing.assert_array_equal(ours.predict(new), theirs.predict(new))


def test_one_versus_rest_is_so_many_svcs_and_reports_its_gap():
    X, labels = some_data()
    ours = OneVsRestSVC(gamma=0.5, lengthscale=1.5, standardize=False).fit(X, labels)
    for j in range(3):
        theirs = SVC(C=2.0, gamma=1 / 4.5, tol=1e-6).fit(X, labels == j)
        np.testing.assert_allclose(
            ours.class_functions(X)[:, j], theirs.decision_function(X), atol=1e-4
        )
    assert 0 <= ours.duality_gap_ < 1e-4
    prior = OneVsRestSVC(gamma=0.5, lengthscale=1.5, intercept_precision=1e-7).fit(X, labels)
    free = OneVsRestSVC(gamma=0.5, lengthscale=1.5).fit(X, labels)
    np.testing.assert_allclose(prior.class_functions(X), free.class_functions(X), atol=1e-3)
    assert prior.duality_gap_ <= 1e-6


def test_where_svc_does_not_come_to_an_end_another_solver_does(monkeypatch):
    X, labels = some_data()
    expected = OneVsRestSVC(gamma=0.5, lengthscale=1.5).fit(X, labels)
    monkeypatch.setattr(one_vs_rest, "MOST_STEPS", 3)
    stopped = OneVsRestSVC(gamma=0.5, lengthscale=1.5).fit(X, labels)
    np.testing.assert_allclose(stopped.class_functions(X), expected.class_functions(X), atol=1e-3)
    assert stopped.duality_gap_ <= 1e-6


@pytest.mark.parametrize("machine", [MSVMClassifier, AltMSVM])
def test_functions_sum_to_zero_and_predict_is_the_largest(machine):
    X, labels = some_data(60, c=4)
    model = machine().fit(X, labels)
    functions = model.class_functions(X + 0.2)
    np.testing.assert_allclose(functions.sum(1), 0, atol=1e-9)
    np.testing.assert_array_equal(model.decision_function(X + 0.2), functions)
    np.testing.assert_array_equal(model.predict(X + 0.2), functions.argmax(1))
    assert model.duality_gap_ <= 1e-6
    assert len(model.support_) == len(model.coefficients_) == len(model.support_vectors_)


# Estimators ------------------------------------------------------------------------------------

AS_SVC = {
    "check_sample_weight_equivalence_on_dense_data": (
        "libsvm's answer depends on the order of the rows in the last digits; SVC fails it too"
    )
}


@parametrize_with_checks(
    [MSVMClassifier(), AltMSVM(), OneVsRestSVC()],
    expected_failed_checks=lambda model: AS_SVC if isinstance(model, OneVsRestSVC) else {},
)
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@pytest.mark.parametrize("machine", MACHINES)
def test_pandas_pipelines_and_grids(machine):
    X, labels = some_data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = machine(gamma=0.3).fit(frame, pd.Series(WORDS[labels]))
    np.testing.assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    np.testing.assert_array_equal(
        model.predict(frame), machine(gamma=0.3).fit(X, WORDS[labels]).predict(X)
    )
    assert make_pipeline(StandardScaler(), machine()).fit(X, labels).score(X, labels) > 0.5
    search = GridSearchCV(machine(), {"gamma": [0.1, 1.0]}, cv=2).fit(X, labels)
    assert search.best_params_["gamma"] in (0.1, 1.0)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_kind_of_kernel(machine):
    X, labels = some_data()
    rows = StandardScaler().fit_transform(X)
    named = machine(lengthscale=1.5).fit(X, labels)
    given = machine(kernel="precomputed").fit(kernels.gram(kernels.gaussian(1.5), rows), labels)
    own = machine(kernel=kernels.gaussian(1.5)).fit(X, labels)
    new = X[:9] + 0.3
    seen = (new - X.mean(0)) / X.std(0)
    expected = named.class_functions(new)
    cross = kernels.gram(kernels.gaussian(1.5), seen, rows)
    np.testing.assert_allclose(given.class_functions(cross), expected, atol=1e-6)
    np.testing.assert_allclose(own.class_functions(new), expected, atol=1e-6)
    weights = np.where(np.arange(45) < 6, 0.0, 1.0)
    part = machine(kernel="precomputed").fit(
        kernels.gram(kernels.gaussian(1.5), rows), labels, weights
    )
    assert part.support_.min() >= 6
    assert part.predict(cross).shape == (9,)
    assert given.__sklearn_tags__().input_tags.pairwise
    for kernel in ("linear", "matern32", "matern52", kernels.polynomial(2)):
        assert machine(kernel=kernel).fit(X, labels).predict(new).shape == (9,)
    per_feature = machine(lengthscale=[1.0, 2.0, 3.0]).fit(X, labels)
    np.testing.assert_array_equal(per_feature.lengthscale_, [1.0, 2.0, 3.0])


def test_weights_are_counts_and_zero_is_absence():
    X, labels = some_data()
    counts = np.arange(45) % 3
    weighted = MSVMClassifier(gamma=0.2).fit(X, labels, sample_weight=counts)
    repeated = MSVMClassifier(gamma=0.2).fit(np.repeat(X, counts, 0), np.repeat(labels, counts))
    np.testing.assert_allclose(weighted.class_functions(X), repeated.class_functions(X), atol=1e-4)
    balanced = MSVMClassifier(class_weight="balanced").fit(X[3:], labels[3:])
    assert balanced.predict(X).shape == (45,)


# Tuning ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_leave_one_out_is_n_fits(machine):
    X, labels = some_data(36)
    gram = kernels.gram(kernels.gaussian(1.5), X)
    rows = np.arange(36)
    folds = [Fold(np.delete(rows, i), rows[i : i + 1]) for i in rows]
    fitted = machine(tol=1e-8)._machine(3)
    scores = held_out_scores(fitted, gram, labels, np.ones(36), 0.05, folds)
    for train, test in folds:
        alone = fitted.fit(gram[np.ix_(train, train)], labels[train], np.ones(35), 0.05)
        direct = alone.intercept + gram[np.ix_(test, train)] @ alone.coefficients
        np.testing.assert_allclose(scores[test], direct, atol=2e-3)


@pytest.mark.parametrize("machine", MACHINES)
def test_cross_validation_chooses_the_least_error(machine):
    X, labels = some_data(60)
    model = machine(
        gamma="cv",
        lengthscale="cv",
        gamma_grid=[0.01, 1.0],
        lengthscale_grid=[0.05, 1.0, 3.0],
        folds=3,
        random_state=0,
    ).fit(X, labels)
    tuning = model.tuning_
    assert tuning.error.shape == tuning.loss.shape == (3, 2)
    row, column = tuning.best
    assert tuning.error[row, column] == tuning.error.min()
    assert (model.lengthscale_, model.gamma_) == ([0.05, 1.0, 3.0][row], [0.01, 1.0][column])
    assert model.lengthscale_ > 0.05
    given = machine(gamma=model.gamma_, lengthscale=model.lengthscale_).fit(X, labels)
    assert given.tuning_ is None
    np.testing.assert_array_equal(given.predict(X), model.predict(X))
    loo = machine(gamma="cv", gamma_grid=[0.1, 1.0], folds=LeaveOneOut()).fit(X[:24], labels[:24])
    assert np.all(np.isin(np.round(loo.tuning_.error * 24, 9), np.arange(25)))


def test_a_class_of_one_row_can_be_left_out():
    X, labels = some_data(24)
    labels = np.append(labels[:-1], 3)
    for machine in MACHINES:
        model = machine(gamma="cv", gamma_grid=[0.1, 1.0], folds=LeaveOneOut()).fit(X, labels)
        assert np.all(np.isfinite(model.tuning_.loss))


# Bad input -------------------------------------------------------------------------------------

BAD = [
    ({"gamma": 0}, r"gamma must be a positive finite number; got 0"),
    ({"gamma": "best"}, r"gamma must be a positive number or \"cv\".*'best'"),
    ({"gamma": None}, r"gamma must be a positive finite number; got None"),
    ({"gamma": True, "gamma_grid": [1.0]}, r"gamma_grid is for gamma=\"cv\".*gamma=True"),
    ({"gamma": "cv", "gamma_grid": [1.0, -1.0]}, r"gamma_grid must be positive numbers.*-1"),
    ({"gamma": "cv", "gamma_grid": []}, r"gamma_grid must be positive numbers"),
    ({"gamma": "cv", "folds": 1}, r"folds must be an integer of at least 2; got 1"),
    ({"lengthscale": -1.0}, r"lengthscale must be a positive number.*-1"),
    ({"lengthscale": "sample"}, r"lengthscale must be .*\"scale\".*'sample'"),
    ({"lengthscale": [1.0, 2.0]}, r"lengthscale .*of which X has 3"),
    ({"lengthscale": "cv", "kernel": "linear"}, r"lengthscale=\"cv\" needs a kernel.*'linear'"),
    ({"lengthscale_grid": [1.0]}, r"lengthscale_grid is for lengthscale="),
    ({"kernel": "rbf"}, r"kernel must be one of 'gaussian'.*'rbf'"),
    ({"kernel": 3}, r"kernel must be a name or a callable.*3"),
    ({"kernel": "precomputed"}, r"X must be the square Gram matrix.*\(45, 3\)"),
    ({"kernel": lambda a, b: -(a @ b.T)}, r"positive semi-definite; its smallest eigenvalue is -"),
    ({"kernel": lambda a, b: a @ b.T + a[:, :1]}, r"kernel: the Gram matrix must be symmetric"),
    ({"intercept_precision": -1.0}, r"intercept_precision must be a finite number.*-1"),
    ({"intercept_precision": "free"}, r"intercept_precision must be a finite number.*'free'"),
    ({"standardize": "yes"}, r"standardize must be True or False; got 'yes'"),
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


def test_bad_data_are_refused():
    X, labels = some_data()
    with pytest.raises(ValueError, match="y must have at least 2 classes; got 1 class"):
        MSVMClassifier().fit(X, np.zeros(45))
    with pytest.raises(ValueError, match="2 classes of positive weight"):
        MSVMClassifier().fit(X, labels, sample_weight=labels == 1)
