"""Calibration: what it is, how it is found, and what it does to a classifier."""

import jax
import numpy as np
import oracle
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from few_draws import few_draws

from bmsvm import BMSVMClassifier, Paper, Sampled, prepare
from bmsvm.kernels import Gaussian
from bmsvm.models.couplings import contrast
from bmsvm.prediction import calibration as module
from bmsvm.prediction.calibration import (
    Calibration,
    best_calibration,
    best_power,
    calibrated_draws,
    calibration_loss,
    disagreement,
    reach,
    unrelated,
)
from bmsvm.prediction.leave_one_out import held_out_draws, leave_one_out
from bmsvm.prediction.squares import least_squares, roots_of

RNG = np.random.default_rng(0)
Y = np.arange(30) % 3
X = RNG.normal(size=(30, 2)) + 1.5 * np.c_[Y == 1, Y == 2]
SHORT = {"lengthscale": 2.0, "num_chains": 2, "num_warmup": 50, "num_samples": 60}


def fit(**settings):
    return BMSVMClassifier(**{**SHORT, "random_state": 0, **settings}).fit(X, Y)


@pytest.fixture(scope="module")
def fitted():
    with few_draws():
        return fit()


def dirichlet(rng, n, c, s, concentration=1.0):
    """Class probabilities of draws, shape (n, c, s)."""
    return rng.dirichlet(np.full(c, concentration), size=(n, s)).swapaxes(1, 2)


def sharpen(logits, power, chance):
    """``(1 - eps) softmax(a l) + eps/c`` of log probabilities or logits l, shape (m, c)."""
    sharp = scipy.special.softmax(power * logits, axis=1)
    return (1 - chance) * sharp + chance / logits.shape[1]


def calibration(power, share, spread, chance, unrelated=0.0, n_classes=3, usual=0.1):
    """A calibration of uneven classes; rows beyond the usual disagreement hear squares less."""
    counts = np.arange(1.0, n_classes + 1)
    return Calibration(power, share, spread, usual, chance, unrelated, counts)


def heard_by_hand(draws, weights, usual):
    """Part of the share at each row (n,), from the mutual information as a divergence."""
    c, found = draws.shape[1], []
    for p, w in zip(draws, weights, strict=True):
        mean = p @ w
        between = sum(w[k] * scipy.stats.entropy(p[:, k], mean) for k in range(len(w)))
        found.append(min(1.0, (np.log(c) - between) / (np.log(c) - usual)))
    return np.array(found)


def by_hand(draws, weights, squares, by):
    """Draws q, entry by entry, from the formula at the head of the module: shape (n, c, s)."""
    n, c, s = draws.shape
    frequencies = np.random.default_rng(0).dirichlet(by.counts, s)
    q = np.empty((n, c, s))
    shares = by.share * heard_by_hand(draws, weights, by.usual)
    for i in range(n):
        mean = [sum(weights[i, k] * draws[i, j, k] for k in range(s)) for j in range(c)]
        of_logs = [sum(weights[i, k] * np.log(draws[i, j, k]) for k in range(s)) for j in range(c)]
        for k in range(s):
            u = []
            for j in range(c):
                middle = np.log(mean[j])
                if squares is not None:
                    middle = (1 - shares[i]) * middle + shares[i] * squares[i, j]
                u.append(by.power * (middle + by.spread * (np.log(draws[i, j, k]) - of_logs[j])))
            sharp = np.exp(u) / np.sum(np.exp(u))
            related = (1 - by.chance) * sharp + by.chance / c
            q[i, :, k] = (1 - by.unrelated) * related + by.unrelated * frequencies[k]
    return q


def held_out_case(n=40, c=3, s=6, seed=1):
    """Draws, their weights, least squares, labels and weights of rows: all of them uneven."""
    rng = np.random.default_rng(seed)
    draws = dirichlet(rng, n, c, s)
    squares = np.log(rng.dirichlet(np.ones(c), size=n))
    labels = np.where(rng.uniform(size=n) < 0.6, draws.mean(-1).argmax(1), rng.integers(c, size=n))
    return draws, rng.dirichlet(np.ones(s), size=n), squares, labels, rng.uniform(0.2, 3.0, size=n)


# The formula -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False])
def test_draws_are_those_of_the_formula(pooled):
    draws, _, squares, *_ = held_out_case(n=5)
    squares = squares if pooled else None
    equal = np.full((5, 6), 1 / 6)
    for by in (calibration(2.5, 0.3, 0.7, 0.1), calibration(0.4, 0.9, 1.8, 0.0, 0.2)):
        by = by if pooled else by._replace(share=0.0)
        found = calibrated_draws(draws, squares, by)
        np.testing.assert_allclose(found, by_hand(draws, equal, squares, by), rtol=1e-12)
        np.testing.assert_allclose(found.sum(1), 1)


def test_draws_without_spread_are_the_sharpened_mean():
    draws, *_ = held_out_case(n=5, c=4)
    by = calibration(2.5, 0.0, 1e-12, 0.1, n_classes=4)
    mean = draws.mean(-1)
    sharp = mean**2.5 / np.sum(mean**2.5, axis=1, keepdims=True)
    found = calibrated_draws(draws, None, by)
    np.testing.assert_allclose(found, np.repeat((0.9 * sharp + 0.1 / 4)[..., None], 6, axis=-1))
    np.testing.assert_allclose(found[..., 0], sharpen(np.log(mean), 2.5, 0.1))
    np.testing.assert_array_equal(np.argsort(found[..., 0]), np.argsort(mean))


def test_least_squares_are_heard_less_where_draws_disagree():
    """All of their share where draws agree, none where they disagree entirely."""
    agreed, torn = np.full((2, 4), 0.5), np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    between = 0.5 * (1 + np.array([[1, 1, -1, -1], [-1, -1, 1, 1]]) * 0.9)
    draws, squares = np.array([agreed, between, torn]), np.log([[0.9, 0.1]] * 3)
    by = calibration(1.0, 0.5, 1e-9, 0.0, n_classes=2, usual=0.2)
    informed = np.log(2) - scipy.stats.entropy([0.95, 0.05])
    np.testing.assert_allclose(disagreement(draws), [0, informed, np.log(2)], atol=1e-12)
    odds = calibrated_draws(draws, squares, by)[:, :, 0]
    heard = np.log(odds[:, 0] / odds[:, 1]) / (0.5 * np.log(9))
    expected = [1, (np.log(2) - informed) / (np.log(2) - 0.2), 0]
    np.testing.assert_allclose(heard, expected, atol=1e-6)
    np.testing.assert_array_equal(reach(np.array([0.0, 0.3, np.log(2)]), np.log(2), 2), 1)
    np.testing.assert_array_equal(reach(np.array([0.0, 0.3, np.log(2)]), np.inf, 2), 1)


def test_a_larger_spread_is_a_wider_interval():
    draws, *_ = held_out_case(n=20, s=50)
    widths = [
        np.ptp(np.log(calibrated_draws(draws, None, calibration(1.0, 0.0, g, 0.0))), axis=-1)
        for g in (0.3, 1.0, 2.0)
    ]
    assert np.all(widths[0].max(1) < widths[1].max(1))
    assert np.all(widths[1].max(1) < widths[2].max(1))


def test_certain_draws_stay_finite():
    certain = np.array([[1.0, 1.0], [0.0, 0.0]])[None]
    found = calibrated_draws(certain, None, calibration(20.0, 0.0, 5.0, 0.01, n_classes=2))
    np.testing.assert_allclose(found[0, :, 0], [0.995, 0.005])
    loss = calibration_loss(certain, np.full((1, 2), 0.5), None, np.array([1]), np.ones(1))
    value, slope = loss(np.array([3.0, 0.0, 1.0]))
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


# The score, and what maximises it --------------------------------------------------------------


def loss_by_hand(at, draws, weights, squares, labels, row_weights):
    """Minus the log score and log priors, from the formula and SciPy's densities."""
    n = len(labels)
    share, chance = 1 / (1 + np.exp(-at[1])), 0.5 / (n + 0.5)
    usual = np.quantile(disagreement(draws, weights), 0.95)
    by = calibration(np.exp(at[0]), share, np.exp(at[2]), chance, usual=usual)
    q = by_hand(draws, weights, squares, by)
    mean = np.einsum("ncs,ns->nc", q, weights)[np.arange(n), labels]
    # Log a has one standard deviation below zero and another above: two halves of equal height.
    below, above = scipy.stats.norm(0, 3.0), scipy.stats.norm(0, 1.0)
    prior = (above if at[0] > 0 else below).logpdf(at[0]) + np.log(1.0 if at[0] > 0 else 3.0)
    prior += scipy.stats.norm.logpdf(at[1], *module.LOGIT_SHARE)
    # The centre of log g follows log a, half as far, where probabilities are flattened.
    prior += scipy.stats.cauchy.logpdf(at[2], 0.1 + 0.5 * min(at[0], 0.0), 0.2)
    return -np.sum(row_weights * np.log(mean)) - prior


@pytest.mark.parametrize("pooled", [True, False])
def test_the_loss_is_minus_the_log_score_and_its_slope_is_right(pooled):
    draws, weights, squares, labels, each = held_out_case(n=12)
    squares = squares if pooled else None
    usual = np.quantile(disagreement(draws, weights), 0.95)
    loss = calibration_loss(draws, weights, squares, labels, each, usual)
    places = np.random.default_rng(2).normal(size=(5, 3))
    expected = [loss_by_hand(at, draws, weights, squares, labels, each) for at in places]
    np.testing.assert_allclose(np.diff([loss(at)[0] for at in places]), np.diff(expected))
    for at in places:
        numerical = [(loss(at + step)[0] - loss(at - step)[0]) / 2e-5 for step in 1e-5 * np.eye(3)]
        np.testing.assert_allclose(loss(at)[1], numerical, rtol=1e-6, atol=1e-6)


def by_another_optimiser(data):
    """Ends of Nelder-Mead, which knows no slopes, on the loss written by hand."""
    tight = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}
    return [
        scipy.optimize.minimize(loss_by_hand, start, args=data, method="Nelder-Mead", options=tight)
        for start in ([0, 0, 0], [0, 0, -1], [0, 0, -3], [-1, 0, 0])
    ]


@pytest.mark.parametrize("pooled", [True, False])
def test_the_best_calibration_is_that_of_another_optimiser(pooled):
    draws, weights, squares, labels, each = held_out_case(n=12, s=3, seed=2)
    squares = squares if pooled else None
    data = (draws, weights, squares, labels, each)
    found = best_calibration(*data)
    best = min(by_another_optimiser(data), key=lambda each: each.fun).x
    np.testing.assert_allclose([found.power, found.spread], np.exp(best[[0, 2]]), rtol=1e-3)
    share = 1 / (1 + np.exp(-best[1])) if pooled else 0.0
    assert found.share == pytest.approx(share, abs=1e-3)


def test_two_minima_at_the_kink_are_nearly_as_deep():
    """The priors have a kink at log a = 0, with a minimum on either side of it in this case."""
    draws, weights, _, labels, each = held_out_case(n=12, s=3, seed=1)
    data = (draws, weights, None, labels, each)
    found = best_calibration(*data)
    ends = by_another_optimiser(data)
    at = np.array([np.log(found.power), 0.0, np.log(found.spread)])
    assert {bool(end.x[0] > 0) for end in ends} == {True, False}
    assert loss_by_hand(at, *data) < min(end.fun for end in ends) + 2e-4


def test_the_chance_that_labels_are_unrelated_to_the_features_is_by_bayes_rule():
    """With one nat of the score for each of six fitted numbers."""
    labels, weights = np.repeat([0, 1, 2], [3, 5, 12]), np.linspace(0.5, 1.5, 20)
    counts = np.array([0.5 + sum(weights[labels == j]) for j in range(3)])
    alone = 0.0
    for i, label in enumerate(labels):
        others = [total - weights[i] * (j == label) for j, total in enumerate(counts)]
        alone += weights[i] * np.log(others[label] / sum(others))
    for ahead in (-50.0, 4.0, 8.0, 50.0):
        found = unrelated(alone + ahead, labels, weights, counts)
        assert found == pytest.approx(1 / (1 + np.exp(ahead - 6)))


def test_frequencies_are_as_uncertain_as_their_posterior():
    """Mean and variance of draws of unrelated labels are a Dirichlet's. False alarm: 1e-4."""
    by = Calibration(1.0, 0.0, 1.0, 0.0, 0.0, 1.0, np.array([4.5, 10.5, 20.5]))
    found = calibrated_draws(dirichlet(RNG, 2, 3, 4000), None, by)
    np.testing.assert_array_equal(found[0], found[1])
    exact = scipy.stats.dirichlet(by.counts)
    z = (found[0].mean(-1) - exact.mean()) / np.sqrt(exact.var() / 4000)
    assert oracle.largest(z) < oracle.threshold(1e-4, 3)
    np.testing.assert_allclose(found[0].var(-1), exact.var(), rtol=0.1)


def test_noise_is_predicted_by_frequencies_and_a_signal_is_not():
    """Draws that know nothing of the labels, and the same draws with labels that follow them."""
    rng = np.random.default_rng(4)
    draws, weights = dirichlet(rng, 60, 3, 20, concentration=0.5), np.full((60, 20), 1 / 20)
    follow = draws.mean(-1).argmax(1)
    assert best_calibration(draws, weights, None, follow).unrelated < 0.01
    noise = best_calibration(draws, weights, None, rng.integers(3, size=60))
    assert noise.unrelated > 0.9
    np.testing.assert_allclose(noise.counts.sum(), 61.5)


def test_the_lower_of_two_minima_is_found():
    """Draws scatter too much here: the loss has a minimum near log g = 0, and a lower one."""
    rng = np.random.default_rng(18)
    logits = 2 * rng.normal(size=(30, 3, 1)) + 4 * rng.normal(size=(30, 3, 10))
    draws, weights = scipy.special.softmax(logits, axis=1), np.full((30, 10), 0.1)
    labels = draws.mean(axis=-1).argmax(axis=1)
    labels[:5] = rng.integers(3, size=5)
    loss = calibration_loss(draws, weights, None, labels, np.ones(30))
    ends = [
        scipy.optimize.minimize(loss, [0, 0, start], jac=True, bounds=module.BOUNDS)
        for start in (0, -4)
    ]
    assert ends[0].fun > ends[1].fun + 1
    found = best_calibration(draws, weights, None, labels)
    assert loss(np.array([np.log(found.power), 0, np.log(found.spread)]))[0] <= ends[1].fun + 1e-3


@pytest.mark.parametrize("truth", [(0.6, 0.3, 0.5), (1.8, 0.8, 1.5)])
def test_the_calibration_that_made_the_labels_is_found(truth):
    """Within its standard errors, from the curvature of the loss. False alarm: 1e-4 each."""
    rng = np.random.default_rng(3)
    n, s = 8000, 8
    draws = dirichlet(rng, n, 3, s, concentration=0.7)
    weights = rng.dirichlet(np.full(s, 5.0), size=n)
    squares = np.log(rng.dirichlet(np.ones(3), size=n))
    power, share, spread = truth
    # As by_hand, which would take long for so many rows.
    mean, of_logs = (np.einsum("ncs,ns->nc", p, weights) for p in (draws, np.log(draws)))
    usual = np.quantile(disagreement(draws, weights), 0.95)
    shares = share * reach(disagreement(draws, weights), usual, 3)[:, None]
    middle = (1 - shares) * np.log(mean) + shares * squares
    u = power * (middle[..., None] + spread * (np.log(draws) - of_logs[..., None]))
    q = np.exp(u) / np.exp(u).sum(1, keepdims=True)
    chance = 0.5 / (n + 0.5)
    p = (1 - chance) * np.einsum("ncs,ns->nc", q, weights) + chance / 3
    labels = np.sum(np.cumsum(p, axis=1) < rng.uniform(size=(n, 1)), axis=1)
    found = best_calibration(draws, weights, squares, labels)
    at = np.array([np.log(found.power), np.log(found.share / (1 - found.share)), 0.0])
    at[2] = np.log(found.spread)
    loss = calibration_loss(draws, weights, squares, labels, np.ones(n), usual)
    curvature = [(loss(at + h)[1] - loss(at - h)[1]) / 2e-4 for h in 1e-4 * np.eye(3)]
    error = np.sqrt(np.diag(np.linalg.inv(curvature)))
    assert error.max() < 0.2
    target = np.array([np.log(power), np.log(share / (1 - share)), np.log(spread)])
    assert oracle.largest((at - target) / error) < oracle.threshold(1e-4, 3)


def test_the_best_power_of_many_logits_is_that_of_another_optimiser():
    """Brent's method for each set of logits, some of them beyond the bounds."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(2, 3, 30, 3)) * np.array([0.01, 1.0, 20.0])[:, None, None]
    labels, weights = rng.integers(3, size=30), rng.uniform(0.2, 3.0, size=30)
    labels[:20] = logits[0, 1, :20].argmax(axis=1)
    powers, scores = best_power(logits, labels, weights)
    assert powers.shape == scores.shape == (2, 3)

    def score(log_power, at):
        own = sharpen(at, np.exp(log_power), 0.5 / 30.5)[np.arange(30), labels]
        return float(weights @ np.log(own))

    for place in np.ndindex(2, 3):
        best = scipy.optimize.minimize_scalar(
            lambda x, at=logits[place]: 0.5 * x**2 - score(x, at),
            bounds=module.BOUNDS[0],
            method="bounded",
            options={"xatol": 1e-8},
        ).x
        assert np.log(powers[place]) == pytest.approx(best, abs=2e-4)
        assert scores[place] == pytest.approx(score(np.log(powers[place]), logits[place]))


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_power_that_made_the_labels_is_found(power):
    p = RNG.dirichlet(np.ones(3), size=40_000)
    sharp = p**power / np.sum(p**power, axis=1, keepdims=True)
    labels = np.sum(np.cumsum(sharp, axis=1) < RNG.uniform(size=(40_000, 1)), axis=1)
    found, score = best_power(np.log(p), labels)
    assert found == pytest.approx(power, rel=0.03)
    own = sharpen(np.log(p), found, 0.5 / 40_000.5)[np.arange(40_000), labels]
    assert score == pytest.approx(np.log(own).sum())


def test_rows_count_by_their_weights():
    p = RNG.dirichlet(np.ones(3), size=300)
    labels = np.argmax(p, axis=1)
    twisted = np.where(np.arange(300) < 150, labels, (labels + 1) % 3)
    weights = np.where(np.arange(300) < 150, 1.0, 0.0)
    alone = best_power(np.log(p[:150]), labels[:150])
    np.testing.assert_allclose(best_power(np.log(p), twisted, weights), alone, rtol=1e-4)
    assert best_power(np.log(p), twisted)[0] < 1 < alone[0]
    draws, ones = np.repeat(p[..., None], 2, axis=-1), np.full((300, 2), 0.5)
    one = best_calibration(draws[:150], ones[:150], None, labels[:150])
    weighted = best_calibration(draws, ones, None, twisted, weights)
    np.testing.assert_allclose(np.hstack(weighted), np.hstack(one))
    assert best_calibration(draws, ones, None, twisted).power < 1 < one.power


def test_no_more_is_promised_than_so_few_rows_can_show():
    labels = np.arange(200) % 2
    p = np.where(np.eye(2)[labels] > 0, 1 - 1e-12, 1e-12)
    draws = np.repeat(p[..., None], 3, axis=-1)
    found = best_calibration(draws, np.full((200, 3), 1 / 3), None, labels)
    assert found.chance == pytest.approx(0.5 / 200.5)
    best = calibrated_draws(draws, None, found).max()
    assert best == pytest.approx(1 - 0.25 / 200.5)
    # Nothing but the priors speaks of them.
    assert found.power == pytest.approx(1.0, abs=0.01)
    assert found.spread == pytest.approx(np.exp(0.1), abs=0.01)
    assert best_power(np.log(p), labels)[0] == pytest.approx(1.0, abs=0.01)


# The classifier --------------------------------------------------------------------------------


@pytest.mark.few_draws
@pytest.mark.parametrize("pooled", [True, False])
def test_calibration_changes_the_draws_as_the_formula_says(fitted, pooled):
    """The posterior is that of the raw model; its draws, and least squares, are calibrated.

    Predictions may change with the probabilities: those of a sharpened mean would not.
    """
    raw = fit(predictive="posterior")
    assert raw.predictive_.calibration is None
    model = fitted if pooled else fit(predictive="calibrated")
    by, squares = model.predictive_.calibration, model.predictive_.squares
    assert (by.share > 0) == (squares is not None) == pooled
    other = squares.log_probabilities(model.standardized_rows(X)) if pooled else None
    p = raw.posterior_predictive(X)["p"].values.reshape(-1, 30, 3).transpose(1, 2, 0)
    expected = by_hand(p, np.full((30, 120), 1 / 120), other, by)
    found = model.posterior_predictive(X)["p"].values.reshape(-1, 30, 3).transpose(1, 2, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), expected.mean(-1), rtol=1e-6)


@pytest.mark.few_draws
@pytest.mark.parametrize("pooled", [True, False])
def test_it_is_that_of_leave_one_out(fitted, pooled):
    model = fitted if pooled else fit(predictive="calibrated")
    posterior = model.posterior_
    samples = {
        name: value.reshape(-1, *value.shape[2:]) for name, value in model.run_.samples.items()
    }
    with jax.enable_x64(True):
        held = held_out_draws(samples, posterior.problem, seed=posterior.seed)
    logs = None
    if pooled:
        rows = posterior.training_rows
        roots = roots_of(posterior.problem, np.arange(30), rows, Gaussian(), 2.0)
        logs = least_squares(roots, Y, 3, np.ones(30))[1]
    expected = best_calibration(held.probabilities[:30], held.weights[:30], logs, Y)
    found = model.predictive_.calibration
    np.testing.assert_allclose(np.hstack(found), np.hstack(expected), rtol=1e-6)


@pytest.mark.few_draws
def test_longer_chains_are_calibrated_by_all_their_draws(fitted):
    more = fit(num_samples=40).fit_more(20)
    found, expected = (np.hstack(each.predictive_.calibration) for each in (more, fitted))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.few_draws
@pytest.mark.parametrize(
    "settings",
    [
        {"coupling": "independent"},
        {"lengthscale": Sampled(bounds=(0.5, 5.0), grid="off", every=5)},
    ],
    ids=["independent", "off-grid"],
)
def test_models_without_leave_one_out_are_left_as_they_are(settings):
    """Asked to calibrate them, the classifier refuses: see test_classifier.py."""
    plain = fit(**settings, sampler=Paper(thinning=1), num_samples=10)
    assert plain.predictive_.calibration is None
    assert plain.predictive_.squares is None


def test_leave_one_out_of_a_sampled_lengthscale_is_that_of_each_value():
    """Draws that all sit on one value of the grid, against the problem at that value."""
    case = oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 2, 1))
    _, draws = oracle.exact_draws(case, 200)
    rows, grid = np.random.default_rng(1).normal(size=(5, 2)), np.geomspace(0.5, 4.0, 4)
    shared = {"likelihood": "normalized", "hyperparameters": oracle.LIVELY}
    sites = {
        "scores": draws.columns @ contrast(3).T,
        "noise_variance": draws.noise_variance,
        "precision": draws.precision,
        "lengthscale": np.full(200, grid[2]),
    }
    labels = np.array([0, 1, 2, 2, 1])
    many = prepare(rows, labels, lengthscale=Sampled(grid=grid), **shared)
    one = prepare(rows, labels, lengthscale=grid[2], **shared)
    for sampled, fixed in zip(leave_one_out(sites, many), leave_one_out(sites, one), strict=True):
        np.testing.assert_allclose(sampled, fixed, rtol=1e-6)
