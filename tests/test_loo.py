"""Leave-one-out from one run: against dense Gaussians, prior draws and refits."""

import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.special
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from bmsvm import BMSVMClassifier, Nystrom, Sampled, prepare
from bmsvm.models.couplings import contrast
from bmsvm.prediction.leave_one_out import (
    cavity,
    held_out_draws,
    leave_one_out,
    smoothed_weights,
)
from reproduction.simulate import likelihood_of_rows

CASES = (
    oracle.Case(3, "sum_to_zero", "hinge", (0, 1, 2, 2, 1)),
    pytest.param(
        oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 1, 0), duplicates=True, seed=2),
        marks=pytest.mark.long,
    ),
    oracle.Case(2, "sum_to_zero", "normalized", (0, 1, 0, 0, 1, 1), seed=3),
    oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 2), weights=(2.0, 0.0, 1.0, 1.0)),
)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_a_cavity_is_a_row_given_the_others(kernel):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), np.arange(80) % 3
    problem = prepare(X, y, kernel=kernel, lengthscale=1.0, hyperparameters=oracle.LIVELY)
    assert problem.spans == (kernel == "gaussian")
    columns, tau, sigma2 = rng.normal(size=(80, 2)), 0.4, 0.7
    basis, values = (np.asarray(part) for part in problem.factor)
    eta = oracle.LIVELY.intercept_precision
    covariance = sigma2 * (np.eye(80) + (basis * values) @ basis.T / tau + 1 / eta)
    mean, variance = cavity(jnp.asarray(columns), tau, sigma2, problem)
    for i in (0, 17, 79):
        rest = np.arange(80) != i
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, i])
        np.testing.assert_allclose(mean[i], gain @ columns[rest], rtol=1e-8, atol=1e-10)
        expected = covariance[i, i] - gain @ covariance[rest, i]
        np.testing.assert_allclose(variance[i], expected, rtol=1e-8)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_predictions_are_those_of_exact_posteriors_without_the_row(case):
    """Both sides by exact draws. Errors are of the size of 1/sqrt(10,000 draws)."""
    problem, draws = oracle.exact_draws(case, 10_000)
    scores = draws.columns @ contrast(case.n_classes).T
    found = leave_one_out(
        {"scores": scores, "noise_variance": draws.noise_variance, "precision": draws.precision},
        problem,
        num_nodes=128,
    )
    prior = oracle.prior_draws(np.random.default_rng(1), 1 << 18, problem)
    scores = prior.columns @ contrast(case.n_classes).T
    excess = np.maximum(scores + 1 / (case.n_classes - 1), 0)
    n, labels = len(case.labels), np.array(case.labels)
    own = excess[:, np.arange(n), labels]
    probability = np.exp(own) / np.exp(excess).sum(-1)  # eq. (21)
    likelihood = probability if case.likelihood == "normalized" else np.exp(own - excess.sum(-1))
    likelihood = likelihood ** (1.0 if case.weights is None else np.array(case.weights))
    for i in range(n):
        weight = likelihood[:, np.arange(n) != i].prod(1)
        expected = np.sum(weight * probability[:, i]) / weight.sum()
        assert np.exp(found.log_score[i]) == pytest.approx(expected, rel=0.03)
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-9)
    assert found.pareto_k.max() < 0.7


def weighted_moments(values, weights):
    """Mean and mean square of values (..., s) by weights that sum to one, and their errors."""
    moments = [np.sum(weights * values**power, axis=-1) for power in (1, 2)]
    errors = [
        np.sqrt(np.sum((weights * (values**power - mean[..., None])) ** 2, axis=-1))
        for power, mean in zip((1, 2), moments, strict=True)
    ]
    return np.array(moments), np.array(errors)


def exact_sites(case, size):
    """Exact draws of a posterior, by the names of the sites; and the problem."""
    problem, draws = oracle.exact_draws(case, 10_000)
    sites = {
        "scores": draws.columns @ contrast(case.n_classes).T,
        "noise_variance": draws.noise_variance,
        "precision": draws.precision,
    }
    return {name: value[:size] for name, value in sites.items()}, problem


@pytest.mark.parametrize("case", [CASES[0], CASES[2]], ids=str)
def test_held_out_draws_have_the_integrated_probabilities_as_their_mean(case):
    """Within Monte Carlo error, and 0.003 for the points of the noise. False alarm: 1e-4."""
    sites, problem = exact_sites(case, 3000)
    draws, integrated = held_out_draws(sites, problem, seed=0), leave_one_out(sites, problem)
    assert draws.probabilities.shape == (len(case.labels), case.n_classes, 3000)
    np.testing.assert_allclose(draws.probabilities.sum(1), 1, rtol=1e-9)
    np.testing.assert_allclose(draws.weights.sum(1), 1)
    np.testing.assert_allclose(draws.pareto_k, integrated.pareto_k, atol=0.1)
    mean, error = weighted_moments(draws.probabilities, draws.weights[:, None])
    distance = np.abs(mean[0] - integrated.probabilities)
    bound = oracle.threshold(1e-4, mean[0].size)
    assert np.all(distance < bound * error[0] + 0.003)


def test_held_out_draws_are_those_of_exact_posteriors_without_the_row():
    """Mean and mean square of p(y | f_i), f_i given the other labels; two classes.

    The other side weighs draws of the prior by the likelihood of the other rows, and integrates the
    noise by quadrature. Within Monte Carlo error, and 0.001 for the points. False alarm: 1e-4.
    """
    case = CASES[2]
    sites, problem = exact_sites(case, 10_000)
    draws = held_out_draws(sites, problem, seed=0, num_nodes=256)
    prior = oracle.prior_draws(np.random.default_rng(1), 1 << 17, problem)
    labels, n, to_scores = np.array(case.labels), len(case.labels), contrast(2)[:, 0]
    rows = np.arange(n)

    def softmax(columns):
        excess = np.exp(np.maximum(columns[..., None] * to_scores + 1, 0))  # eq. (21), d = 1
        return excess / excess.sum(-1, keepdims=True)

    own = softmax(prior.columns[:, :, 0])[:, rows, labels]
    basis, values = map(np.asarray, problem.factor)
    functions = (prior.weights[:, :, 0] * np.sqrt(values)) @ basis.T + prior.intercept
    nodes, mass = np.polynomial.hermite_e.hermegauss(24)
    sigma = np.sqrt(prior.noise_variance)[:, None]
    at_nodes = (softmax(functions + sigma * node)[..., 0] for node in nodes)
    p = sum(m * each for m, each in zip(mass / mass.sum(), at_nodes, strict=True))
    z, seen = [], []
    for i in range(n):
        weight = own[:, rows != i].prod(1)
        expected, error = weighted_moments(p[:, i], weight / weight.sum())
        found, own_error = weighted_moments(draws.probabilities[i, 0], draws.weights[i])
        z.append((found - expected) / (np.hypot(error, own_error) + 2e-4))
        seen.append((draws.probabilities[i, 0].mean() - expected[0]) / (error[0] + 2e-4))
    bound = oracle.threshold(1e-4, 2 * n)
    assert oracle.largest(np.array(z)) < bound
    assert oracle.largest(np.array(seen)) > 2 * bound  # without weights, draws know the label


@pytest.mark.long
def test_predictions_are_those_of_refits():
    """Nine refits, by a scikit-learn splitter, against one run on all rows."""
    rng = np.random.default_rng(2)
    y = np.arange(9) % 3
    X = rng.normal(size=(9, 2)) + 1.5 * np.eye(3)[y][:, :2]
    settings = {"likelihood": "hinge", "hyperparameters": oracle.LIVELY, "predictive": "posterior"}
    model = BMSVMClassifier(
        lengthscale=1.5,
        standardize=False,
        num_samples=1500,
        num_chains=2,
        random_state=0,
        **settings,
    )
    refitted = cross_val_predict(model, X, y, cv=LeaveOneOut(), method="predict_proba")
    log_loss = -np.log(refitted[np.arange(9), y])
    found = model.fit(X, y).posterior_.leave_one_out()
    log_score = found.log_score  # without the spare rows
    np.testing.assert_allclose(-log_score, log_loss, atol=0.12)
    assert -log_score.mean() == pytest.approx(log_loss.mean(), abs=0.02)
    assert found.pareto_k.max() < 0.7


def test_held_out_draws_have_what_a_low_rank_leaves_of_a_row():
    """Draws that are all the same: functions of variance ``v - sigma2 + h sigma2/tau``.

    The cavity has variance v, and h is what the basis leaves of a row. Both sides are means over
    some thousand points of probabilities; 0.02 is five of their errors.
    """
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(12, 2)), np.arange(12) % 3
    problem = prepare(X, y, lengthscale=0.5, approximation=Nystrom(rank=3))
    noise, precision, columns = 0.7, 0.05, rng.normal(size=(12, 2))
    draws = {
        "scores": np.tile(columns @ contrast(3).T, (4000, 1, 1)),
        "noise_variance": np.full(4000, noise),
        "precision": np.full(4000, precision),
    }
    rows = np.array([1, 4, 9])
    found = held_out_draws(draws, problem, seed=0, rows=rows)
    mean, variance = cavity(jnp.asarray(columns), precision, noise, problem)
    left = np.asarray(problem.remainder)
    assert np.ptp(left[rows]) > 0.1
    scale = np.sqrt(variance + noise * left / precision)
    normals = np.asarray(scale)[:, None, None] * rng.normal(size=(12, 20_000, 2))
    scores = ((np.asarray(mean)[:, None] + normals) @ contrast(3).T)[rows]
    for label in range(3):
        each = likelihood_of_rows(scores, np.full(scores.shape[:2], label), "normalized")
        held_out = found.probabilities[:, label].mean(-1)
        np.testing.assert_allclose(held_out, each.mean(1), atol=0.02)


def test_some_rows_are_predicted_as_among_all():
    sites, problem = exact_sites(CASES[0], 200)
    every, some = leave_one_out(sites, problem), np.array([1, 3])
    few = leave_one_out(sites, problem, rows=some)
    for part, whole in zip(few, every, strict=True):
        np.testing.assert_allclose(part, whole[some], rtol=1e-10)


def test_smoothing_tames_the_largest_weights_and_finds_their_tail():
    """Of Pareto ratios with tail index 0.5; this also tells the sign that ArviZ expects."""
    ratios = np.random.default_rng(0).pareto(2.0, size=(3, 4000)) + 1
    log_weights, pareto_k = smoothed_weights(np.log(ratios))
    assert log_weights.shape == ratios.shape
    np.testing.assert_allclose(np.exp(log_weights).sum(1), 1)
    np.testing.assert_array_equal(log_weights.argmax(1), ratios.argmax(1))
    np.testing.assert_allclose(pareto_k, 0.5, atol=0.2)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"coupling": "independent"}, ("coupling", "independent")),
        ({"lengthscale": Sampled(grid="off")}, ("parameters", "grid")),
    ],
)
def test_what_cannot_be_left_out_is_said(settings, names):
    problem = prepare([[0.0], [1.0], [2.0]], [0, 1, 1], **{"lengthscale": 1.0, **settings})
    with pytest.raises(ValueError, match=r"leave-one-out") as caught:
        leave_one_out({}, problem)
    assert all(name in str(caught.value) for name in names)


def test_held_out_draws_without_a_remainder_are_those_of_the_mean_function():
    """As functions at new rows without a remainder: no more random than the draws themselves."""
    case = oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 2, 1))
    problem, draws = oracle.exact_draws(case, 50)
    sites = {
        "scores": draws.columns @ contrast(3).T,
        "noise_variance": draws.noise_variance,
        "precision": draws.precision,
    }
    first, second = (
        held_out_draws(sites, problem, seed=seed, remainder=False).probabilities for seed in (0, 1)
    )
    np.testing.assert_array_equal(first, second)
    drawn = held_out_draws(sites, problem, seed=0).probabilities
    assert drawn.std(axis=-1).mean() > 1.1 * first.std(axis=-1).mean()


def test_weights_without_a_tail_stay_as_they_are():
    """Of few draws, or of equal largest ones: k is infinite, as in either version of ArviZ."""
    few = np.random.default_rng(0).normal(size=(3, 29))
    equal = np.minimum(np.random.default_rng(1).normal(size=(3, 100)), 0.0)
    for log_ratios in (few, equal):
        log_weights, pareto_k = smoothed_weights(log_ratios)
        np.testing.assert_array_equal(pareto_k, np.inf)
        np.testing.assert_allclose(np.exp(log_weights), scipy.special.softmax(log_ratios, axis=1))
    enough = np.random.default_rng(2).normal(size=(3, 30))
    assert np.all(np.isfinite(smoothed_weights(enough)[1]))
