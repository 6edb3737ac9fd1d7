"""The solver of the machines finds the optimum and certifies it, and the MSVM is the mode."""

import clarabel
import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from small_machines import LOSSES, some_data, some_problem

import bmsvm
from bmsvm import MSVMClassifier, kernels
from bmsvm.machines import MachineProblem, lee, solve, solver
from bmsvm.models import hierarchy
from bmsvm.models.couplings import contrast


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


@pytest.mark.parametrize("loss", LOSSES)
def test_a_start_that_leaves_no_feasible_intercept_is_overcome(loss):
    problem = some_problem(loss, n=240, gamma=0.05)
    start = np.tile([100.0, -50.0, -50.0], (240, 1))  # all alphas of class 0 at the upper bound
    found = solve(problem, start=start)
    assert found.rounds > 1
    assert found.gap <= 1e-6
    np.testing.assert_allclose(found.objective, solve(problem).objective, atol=1e-6)


def test_kernels_of_low_rank_and_rows_given_twice_do_no_harm():
    X, labels = some_data(40)
    X = np.concatenate([X, X])
    labels = np.concatenate([labels, labels[::-1]])  # and some of them contradict each other
    for loss in LOSSES:
        problem = MachineProblem(X @ X.T, labels, loss(3), 0.01, 0.0, np.ones(80))
        assert solve(problem).gap <= 1e-6


def test_a_gap_that_rounding_forbids_is_told():
    X, y = some_data(60, apart=0.0)
    with pytest.warns(ConvergenceWarning, match=r"duality gap is .*tol=1e-15"):
        MSVMClassifier(gamma=1e-4, lengthscale=5.0, tol=1e-15).fit(X, y)


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
        kernels.gram(kernels.Gaussian().at(1.5), X),
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
