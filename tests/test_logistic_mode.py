"""Modes of kernel logistic regression against a general optimiser, on all rows and without some."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special

from bmsvm.kernels.functions import as_kernel
from bmsvm.models.logistic_mode import functions_of, mode_path
from bmsvm.models.squared import Eigen, eigen_of
from bmsvm.prediction import logistic
from bmsvm.prediction.squares import INTERCEPT_PRECISION, LeastSquares, Root

N, CLASSES, RANK = 60, 3, 4
RNG = np.random.default_rng(3)
LABELS = np.arange(N) % CLASSES
DESIGN = RNG.normal(size=(N, RANK)) + 1.5 * np.eye(CLASSES, RANK)[LABELS]
WEIGHTS = RNG.choice([0.5, 1.0, 2.0], size=N)
ROTATION = RNG.normal(size=(RANK, RANK))
ROOT = Root(
    as_kernel("gaussian"),
    1.0,
    "nystrom",
    np.zeros((RANK, 2)),
    ROTATION,
    Eigen(np.ones(RANK), DESIGN),
)
HELD = np.arange(0, N, 2)


def scipy_mode(design, labels, weights, tau, n_classes=CLASSES):
    """Coefficients (q, c) by BFGS."""

    def loss(x):
        f = design @ x.reshape(-1, n_classes)
        logs = scipy.special.log_softmax(f, axis=1)
        return tau / 2 * x @ x - weights @ logs[np.arange(len(labels)), labels]

    start = np.zeros(design.shape[1] * n_classes)
    return scipy.optimize.minimize(loss, start, tol=1e-9).x.reshape(-1, n_classes)


def test_a_path_of_modes_is_what_an_optimiser_finds():
    _, axes = np.linalg.eigh(DESIGN.T @ (WEIGHTS[:, None] * DESIGN))
    root, taus = DESIGN @ axes, np.array([10.0, 1.0, 0.1])
    some = np.where(np.arange(N) < 40, WEIGHTS, 0.0)
    found = mode_path(
        jnp.asarray(root),
        jnp.asarray(np.eye(CLASSES)[LABELS]),
        jnp.asarray(np.stack([WEIGHTS, some], axis=1)),
        jnp.asarray(taus),
        lambda x: functions_of(jnp.asarray(root), x),
        steps=200,
    )
    for tau, functions in zip(taus, np.asarray(found), strict=True):
        for column, weights in enumerate((WEIGHTS, some)):
            wanted = root @ scipy_mode(root, LABELS, weights, tau)
            np.testing.assert_allclose(functions[:, column], wanted, atol=2e-4)


def plain_modes(given=DESIGN, labels=LABELS, n_classes=CLASSES):
    """The same as ``logistic_modes``, by loops over an optimiser."""
    constant = np.full((N, 1), INTERCEPT_PRECISION**-0.5)
    design = np.concatenate([given, constant], axis=1)
    scale = np.mean(np.sum(given**2, axis=1))
    n_folds = int(np.ceil(len(HELD) / (logistic.LARGEST_FOLD * N)))
    assert n_folds > 1
    all_rows, held_out, powers, scores = [], [], [], []
    for tau in logistic.PRECISIONS * scale:
        all_rows.append(scipy_mode(design, labels, WEIGHTS, tau, n_classes))
        functions = np.zeros((len(HELD), n_classes))
        for fold in range(n_folds):
            out = HELD[fold::n_folds]
            seen = np.setdiff1d(np.arange(N), out)
            mode = scipy_mode(design[seen], labels[seen], WEIGHTS[seen], tau, n_classes)
            functions[fold::n_folds] = design[out] @ mode
        power, score = logistic.best_power(functions, labels[HELD], WEIGHTS[HELD])
        held_out.append(functions)
        powers.append(power)
        scores.append(score)
    factors = np.array(powers) * scipy.special.softmax(scores)
    whole = np.tensordot(factors, np.array(all_rows), 1)
    return design @ whole, np.tensordot(factors, np.array(held_out), 1), whole


def test_modes_are_averaged_by_rows_that_they_have_not_seen():
    found = logistic.logistic_modes(ROOT, LABELS, CLASSES, WEIGHTS, HELD)
    functions, held_out, whole = plain_modes()
    np.testing.assert_allclose(found.held_out, held_out, atol=0.02)
    np.testing.assert_allclose(found.coefficients, ROTATION @ whole[:-1], atol=0.02)
    at_rows = DESIGN @ np.linalg.solve(ROTATION, found.coefficients) + found.intercept
    np.testing.assert_allclose(at_rows, functions, atol=0.02)


def test_modes_of_an_exact_gram_matrix_are_functions_of_its_values():
    gram = DESIGN @ DESIGN.T
    root = Root(as_kernel("linear"), None, "nystrom", DESIGN, None, eigen_of(gram))
    found = logistic.logistic_modes(root, LABELS, CLASSES, WEIGHTS, HELD)
    functions, held_out, _ = plain_modes()
    np.testing.assert_allclose(found.held_out, held_out, atol=0.02)
    np.testing.assert_allclose(gram @ found.coefficients + found.intercept, functions, atol=0.02)


def test_modes_are_found_where_the_kernel_has_nearly_constant_functions():
    """Two classes that overlap: the intercept is nearly in the span of a smooth kernel."""
    rows = RNG.uniform(-1, 1, size=(N, 1))
    labels = (rows[:, 0] + 1.5 * RNG.normal(size=N) > 0).astype(int)
    gram = np.exp(-0.5 * (rows - rows.T) ** 2)
    values, vectors = np.linalg.eigh(gram)
    design = (vectors * np.sqrt(np.maximum(values, 0)))[:, -8:]  # the rest is below 1e-9
    root = Root(as_kernel("gaussian"), 1.0, "nystrom", rows, None, eigen_of(gram))
    found = logistic.logistic_modes(root, labels, 2, WEIGHTS, HELD)
    functions, held_out, _ = plain_modes(design, labels, 2)
    at_rows = gram @ found.coefficients + found.intercept
    for one, other in ((found.held_out, held_out), (at_rows, functions)):
        # Twice the log odds: the optimiser leaves a constant of both classes where it is.
        np.testing.assert_allclose(one @ [-1, 1], other @ [-1, 1], atol=0.02)


@pytest.mark.parametrize("ahead", [0.0, 3.0, -40.0])
def test_the_average_follows_the_scores_of_held_out_rows(ahead):
    functions = RNG.normal(size=(len(HELD), CLASSES))
    labels, weights = LABELS[HELD], WEIGHTS[HELD]
    logs = scipy.special.log_softmax(RNG.normal(size=(len(HELD), CLASSES)), axis=1)
    score = logistic.best_power(logs, labels, weights)[1]
    fit = LeastSquares(
        (ROOT.kernel,),
        (1.0,),
        "nystrom",
        ROOT.points,
        np.zeros((1, RANK, CLASSES)),
        np.zeros(CLASSES),
    )
    modes = logistic.Modes(
        np.ones((RANK, CLASSES)), np.full(CLASSES, 2.0), functions, score + ahead
    )
    share = np.exp(ahead) / (1 + np.exp(ahead))
    mixed, mixed_logs = logistic.averaged(fit, logs, modes, labels, weights)
    np.testing.assert_allclose(mixed.coefficients, share, atol=1e-12)
    np.testing.assert_allclose(mixed.intercept, 2 * share, atol=1e-12)
    wanted = np.exp((1 - share) * logs + share * functions)
    wanted /= wanted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(mixed_logs), wanted, atol=1e-12)
