"""Least squares in closed form, against dense linear algebra and refits without a row."""

import numpy as np
import pytest

from bmsvm import Nystrom, prepare
from bmsvm.kernels import Gaussian, Linear, Precomputed, gram
from bmsvm.prediction import squares
from bmsvm.prediction.calibration import best_power
from bmsvm.prediction.squares import least_squares, roots_of

RNG = np.random.default_rng(0)
N, C = 25, 3
Y = np.arange(N) % C
X = RNG.normal(size=(N, 2)) + 1.5 * np.eye(C)[Y][:, :2]
NEW = RNG.normal(size=(6, 2))
UNEVEN = RNG.uniform(0.2, 3.0, size=N)
ETA = squares.INTERCEPT_PRECISION


@pytest.fixture
def one_tau(monkeypatch):
    """A single tau, so that nothing is averaged."""
    monkeypatch.setattr(squares, "PRECISIONS", np.array([0.3]))
    return 0.3


def roots(rows=X, labels=Y, kernel=None, lengthscale=1.2, approximation=None):
    """Roots of the Gram matrix of rows, of low rank if there is an approximation."""
    kernel = Gaussian() if kernel is None else kernel
    problem = prepare(
        rows, labels, kernel=kernel, lengthscale=lengthscale, approximation=approximation
    )
    return list(roots_of(problem, np.arange(len(rows)), rows, kernel, lengthscale))


def on_a_grid(order=slice(None)):
    """Roots at several lengthscales around the median distance."""
    problem = prepare(X[order], Y[order], lengthscale=1.2)
    return list(roots_of(problem, np.arange(N), X[order], Gaussian(), None))


def codes_of(labels, c=C):
    """One for the own class and -1/(c - 1) for others."""
    return np.where(np.arange(c) == np.asarray(labels)[:, None], 1.0, -1 / (c - 1))


def dense(inner, cross, labels, weights, tau, c=C):
    """Functions of least squares at new rows, from A written out: shape (m, c)."""
    n = len(labels)
    A = inner / tau + np.ones((n, n)) / ETA + np.diag(1 / weights)
    solved = np.linalg.solve(A, codes_of(labels, c))
    return cross @ solved / tau + solved.sum(0) / ETA


def dense_held_out(inner, labels, weights, tau, c=C):
    """Functions at each row, fitted without it."""
    found = []
    for i in range(len(labels)):
        rest = np.arange(len(labels)) != i
        part = inner[np.ix_(rest, rest)], inner[i : i + 1, rest], labels[rest], weights[rest]
        found.append(dense(*part, tau, c)[0])
    return np.array(found)


def centred(functions):
    return functions - functions.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("weights", [np.ones(N), UNEVEN], ids=["even", "uneven"])
def test_functions_are_the_dense_solution_and_the_refit(one_tau, weights):
    """The log probabilities are power times the functions, less their normaliser."""
    inner, cross = gram(Gaussian().at(1.2), X), gram(Gaussian().at(1.2), NEW, X)
    fit, held_out = least_squares(roots(), Y, C, weights)
    refitted = dense_held_out(inner, Y, weights, one_tau)
    power, _ = best_power(refitted, Y, weights)
    np.testing.assert_allclose(centred(held_out), power * centred(refitted), atol=1e-8)
    expected = power * dense(inner, cross, Y, weights, one_tau)
    np.testing.assert_allclose(centred(fit.log_probabilities(NEW)), centred(expected), atol=1e-8)
    for logs in (held_out, fit.log_probabilities(NEW)):
        np.testing.assert_allclose(np.exp(logs).sum(1), 1)


def test_a_row_predicted_without_its_label_does_not_know_it(one_tau, monkeypatch):
    """Another label of the row changes nothing but the power, which is held here."""
    monkeypatch.setattr(squares, "best_power", lambda *args: (np.ones(1), np.zeros(1)))
    _, before = least_squares(roots(), Y, C, UNEVEN)
    other = Y.copy()
    other[7] = (Y[7] + 1) % C
    _, after = least_squares(roots(), other, C, UNEVEN)
    np.testing.assert_allclose(after[7], before[7], atol=1e-10)
    assert np.all(np.abs(np.delete(after - before, 7, axis=0)).max(1) > 1e-6)


@pytest.mark.parametrize("weights", [np.ones(N), UNEVEN], ids=["even", "uneven"])
def test_pairs_are_averaged_by_the_exponential_of_their_scores(weights, monkeypatch):
    """Every theta and tau by refits, with best_power of each; none of them is left out."""
    monkeypatch.setattr(squares, "PRECISIONS", np.array([0.03, 0.3, 3.0]))
    monkeypatch.setattr(squares, "OCTAVES", np.array([-1.0, 0.5]))
    monkeypatch.setattr(squares, "SMALLEST_SHARE", 0.0)
    several = on_a_grid()
    thetas = [each.lengthscale for each in several]
    distances = np.sqrt(((X[:, None] - X) ** 2).sum(-1))[np.triu_indices(N, 1)]
    np.testing.assert_allclose(thetas, np.median(distances) * 2.0 ** np.array([-1.0, 0.5]))
    fit, held_out = least_squares(several, Y, C, weights)
    scores, here, new = [], [], []
    for theta in thetas:
        inner, cross = gram(Gaussian().at(theta), X), gram(Gaussian().at(theta), NEW, X)
        for tau in (0.03, 0.3, 3.0):
            without = dense_held_out(inner, Y, weights, tau)
            power, score = best_power(without, Y, weights)
            scores.append(score)
            here.append(power * without)
            new.append(power * dense(inner, cross, Y, weights, tau))
    shares = np.exp(scores - np.max(scores))
    shares /= shares.sum()
    assert np.sort(shares)[-2] > 0.01  # not one pair only
    expected = np.tensordot(shares, here, 1), np.tensordot(shares, new, 1)
    np.testing.assert_allclose(centred(held_out), centred(expected[0]), atol=1e-8)
    np.testing.assert_allclose(centred(fit.log_probabilities(NEW)), centred(expected[1]), atol=1e-8)


def test_pairs_of_little_weight_are_left_out_and_change_little(monkeypatch):
    few, _ = least_squares(on_a_grid(), Y, C, 10 * UNEVEN)
    monkeypatch.setattr(squares, "SMALLEST_SHARE", 0.0)
    every, _ = least_squares(on_a_grid(), Y, C, 10 * UNEVEN)
    assert len(few.lengthscales) < len(every.lengthscales) == len(squares.OCTAVES)
    np.testing.assert_allclose(
        np.exp(few.log_probabilities(NEW)), np.exp(every.log_probabilities(NEW)), atol=0.01
    )


def test_rows_of_no_weight_are_predicted_and_have_no_part(one_tau):
    weights = np.where(np.arange(N) < 5, 0.0, UNEVEN)
    fit, held_out = least_squares(roots(), Y, C, weights)
    inner, cross = gram(Gaussian().at(1.2), X), gram(Gaussian().at(1.2), NEW, X)
    part, rest = slice(5, None), (Y[5:], weights[5:])
    power, _ = best_power(dense_held_out(inner[part, part], *rest, one_tau), *rest)
    everywhere = np.concatenate([cross, inner[:5]])[:, part]
    expected = power * centred(dense(inner[part, part], everywhere, *rest, one_tau))
    np.testing.assert_allclose(centred(fit.log_probabilities(NEW)), expected[:6], atol=1e-6)
    np.testing.assert_allclose(centred(held_out[:5]), expected[6:], atol=1e-6)


def test_a_root_of_complete_rank_is_exact():
    for weights in (np.ones(N), UNEVEN):
        exact, held_out = least_squares(roots(), Y, C, weights)
        low = roots(approximation=Nystrom(rank=N))
        assert low[0].rotation is not None
        fit, without = least_squares(low, Y, C, weights)
        np.testing.assert_allclose(without, held_out, atol=1e-5)
        np.testing.assert_allclose(
            fit.log_probabilities(NEW), exact.log_probabilities(NEW), atol=1e-5
        )


def test_a_root_of_low_rank_is_least_squares_of_its_gram_matrix(one_tau):
    """Against the dense solution for the Gram matrix R R'."""
    low = roots(approximation=Nystrom(rank=6))
    R = low[0].design
    assert R.shape[1] <= 6
    tau = one_tau * np.mean(np.sum(R**2, axis=1))
    fit, held_out = least_squares(low, Y, C, UNEVEN)
    refitted = dense_held_out(R @ R.T, Y, UNEVEN, tau)
    power, _ = best_power(refitted, Y, UNEVEN)
    np.testing.assert_allclose(centred(held_out), power * centred(refitted), atol=1e-6)
    at = gram(Gaussian().at(1.2), NEW, low[0].points) @ low[0].rotation
    expected = power * dense(R @ R.T, at @ R.T, Y, UNEVEN, tau)
    np.testing.assert_allclose(centred(fit.log_probabilities(NEW)), centred(expected), atol=1e-6)


def test_precomputed_and_linear_kernels(one_tau):
    matrix, cross = X @ X.T, NEW @ X.T
    tau = one_tau * np.mean(np.diag(matrix))
    expected = centred(dense(matrix, cross, Y, UNEVEN, tau))
    linear, _ = least_squares(roots(kernel=Linear(), lengthscale=None), Y, C, UNEVEN)
    given = roots(rows=matrix, kernel=Precomputed(), lengthscale=None)
    precomputed, _ = least_squares(given, Y, C, UNEVEN)
    power, _ = best_power(dense_held_out(matrix, Y, UNEVEN, tau), Y, UNEVEN)
    for logs in (linear.log_probabilities(NEW), precomputed.log_probabilities(cross)):
        np.testing.assert_allclose(centred(logs), power * expected, atol=1e-7)


def test_far_away_only_the_intercept_is_left():
    labels = np.where(np.arange(N) < 15, 0, Y)  # class 0 is frequent
    fit, _ = least_squares(on_a_grid(), labels, C, np.ones(N))
    far = fit.log_probabilities(np.array([[300.0, 0.0], [-200.0, 500.0]]))
    np.testing.assert_allclose(centred(far), centred(np.tile(fit.intercept, (2, 1))), atol=1e-9)
    assert far[0].argmax() == 0


def test_neither_the_order_of_rows_nor_of_classes_matters():
    fit, held_out = least_squares(on_a_grid(), Y, C, UNEVEN)
    order = np.random.default_rng(1).permutation(N)
    other, without = least_squares(on_a_grid(order), Y[order], C, UNEVEN[order])
    np.testing.assert_allclose(without, held_out[order], atol=1e-6)
    np.testing.assert_allclose(other.log_probabilities(NEW), fit.log_probabilities(NEW), atol=1e-6)
    renamed, without = least_squares(on_a_grid(), (Y + 1) % C, C, UNEVEN)
    np.testing.assert_allclose(np.roll(without, -1, axis=1), held_out, atol=1e-6)
    moved = np.roll(renamed.log_probabilities(NEW), -1, axis=1)
    np.testing.assert_allclose(moved, fit.log_probabilities(NEW), atol=1e-6)


def test_two_classes_have_opposite_functions(one_tau):
    labels = np.arange(N) % 2
    fit, held_out = least_squares(roots(labels=labels), labels, 2, UNEVEN)
    inner = gram(Gaussian().at(1.2), X)
    refitted = dense_held_out(inner, labels, UNEVEN, one_tau, c=2)
    power, _ = best_power(refitted, labels, UNEVEN)
    np.testing.assert_allclose(refitted.sum(1), 0, atol=1e-12)
    np.testing.assert_allclose(centred(held_out), power * refitted, atol=1e-8)
    assert fit.intercept.sum() == pytest.approx(0, abs=1e-9)
