"""Posterior draws at new rows, against dense Gaussian process formulas and other codes."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from bmsvm import (
    BMSVMGibbs,
    Paper,
    Posterior,
    PredictiveDistribution,
    Sampled,
    kernels,
    prepare,
    run_chains,
)
from bmsvm.arviz import to_arviz
from bmsvm.kernels import Gaussian, gram
from bmsvm.models.couplings import class_map, class_vector, contrast
from bmsvm.models.likelihoods import exclusion_probabilities
from bmsvm.models.quadrature import normal_points
from bmsvm.prediction.evaluate import ROWS
from reproduction.simulate import likelihood_of_rows

RNG = np.random.default_rng(3)
Y = np.arange(15) % 3
X = RNG.normal(size=(15, 2)) + 1.5 * np.eye(3)[Y][:, :2]
NEW = np.concatenate([RNG.normal(size=(6, 2)), X[:1], [[30.0, -30.0]]])
GRID = np.geomspace(0.5, 2.0, 4)
THETAS = {"fixed": 0.8, "grid": Sampled(grid=GRID), "off": Sampled(bounds=(0.3, 3.0), grid="off")}
QUICK = Paper(thinning=1)  # quick to compile: any draws will do
SCALED = kernels.Parametric(
    lambda p: lambda a, b: p["amplitude"] * Gaussian().traced(p["scale"])(a, b),
    {"amplitude": dist.LogNormal(0.0, 0.5), "scale": dist.LogNormal(0.0, 0.5)},
    every=1,
)
"""A kernel with two parameters that are sampled."""


def chains(
    coupling="sum_to_zero", likelihood="normalized", theta="fixed", num_samples=40, kernel=None
):
    sampler = BMSVMGibbs(
        "gaussian" if kernel is None else kernel,
        lengthscale=THETAS[theta] if kernel is None else None,
        coupling=coupling,
        likelihood=likelihood,
        sampler=QUICK,
    )
    return run_chains(
        sampler, jax.random.key(0), X, Y, num_warmup=50, num_samples=num_samples, num_chains=2
    )


def posterior(run, theta="fixed", **settings):
    kernel, fixed = run.kernel.kernel, THETAS[theta] if theta == "fixed" else None
    return Posterior(run.samples, run.problem, X, kernel, fixed, **settings)


def whole(parts):
    parts = list(parts)
    functions = np.concatenate([part.functions for part in parts])
    return functions, np.concatenate([part.probabilities for part in parts])


def column_functions(run, draw, at):
    """Column functions at the training rows, without the intercept, of one draw: (n, k)."""
    basis, eigenvalues = map(np.asarray, run.problem.at(at).factor)
    return (basis * np.sqrt(eigenvalues)) @ draw["weights"]


def draws_of(run):
    flat = {name: np.concatenate(value) for name, value in run.samples.items()}
    return [{name: value[s] for name, value in flat.items()} for s in range(len(flat["precision"]))]


@pytest.mark.parametrize(
    ("coupling", "theta"),
    [("sum_to_zero", "fixed"), ("independent", "fixed"), ("sum_to_zero", "grid")],
)
def test_functions_are_interpolated_as_the_dense_formula_says(coupling, theta):
    # Given the functions at the training rows, the mean at new rows is K* K^-1 f.
    run = chains(coupling, theta=theta)
    found, _ = whole(posterior(run, theta, remainder=False).evaluate(NEW, probabilities=False))
    draws, to_classes = draws_of(run), class_map(coupling, 3)
    thetas = {float(draw.get("lengthscale", 0.8)) for draw in draws}
    assert (len(thetas) > 1) == (theta == "grid")
    for s in range(0, len(draws), 7):
        value = float(draws[s].get("lengthscale", 0.8))
        index = None if theta == "fixed" else int(np.argmin(np.abs(GRID - value)))
        kernel = Gaussian().at(value)
        here = column_functions(run, draws[s], index)
        there = gram(kernel, NEW, X) @ np.linalg.solve(gram(kernel, X), here)
        expected = draws[s]["intercept"] + there @ to_classes
        np.testing.assert_allclose(found[:, :, s], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("coupling", "kernel"),
    [
        pytest.param("sum_to_zero", "gaussian", id="sum_to_zero-lengthscale"),
        pytest.param("independent", SCALED, id="independent-parametric"),
        pytest.param("independent", "gaussian", marks=pytest.mark.long),
        pytest.param("sum_to_zero", SCALED, marks=pytest.mark.long),
    ],
)
def test_off_a_grid_functions_are_the_kernel_expansion_of_each_draw(coupling, kernel):
    """Eq. (1): ``b + sum_i k(x, x_i) B_i``, with the kernel of the draw."""
    run = chains(coupling, theta="off", kernel=None if kernel == "gaussian" else kernel)
    found, _ = whole(posterior(run, "off", remainder=False).evaluate(NEW, probabilities=False))
    draws, to_classes = draws_of(run), class_map(coupling, 3)
    assert "weights" not in run.samples
    moved = [float(draw.get("lengthscale", draw.get("scale"))) for draw in draws]
    assert len(set(moved)) > 1
    for s in range(0, len(draws), 7):
        amplitude = float(draws[s].get("amplitude", 1.0))
        cross = amplitude * gram(Gaussian().at(moved[s]), NEW, X)
        expected = draws[s]["intercept"] + cross @ draws[s]["coefficients"] @ to_classes
        np.testing.assert_allclose(found[:, :, s], expected, atol=1e-6)


@pytest.mark.parametrize("kernel", ["gaussian", SCALED], ids=["lengthscale", "parametric"])
def test_draws_off_a_grid_that_have_one_theta_are_those_of_a_fixed_one(kernel):
    """So that all that is shown of a fixed theta holds off a grid too."""
    run = chains()
    sites = {name: run.samples[name] for name in ("noise_variance", "precision", "intercept")}
    basis, eigenvalues = map(np.asarray, run.problem.factor)
    inverse = np.where(eigenvalues > 0, 1 / np.sqrt(np.where(eigenvalues > 0, eigenvalues, 1)), 0)
    sites["coefficients"] = (basis * inverse) @ run.samples["weights"]
    ones = np.ones_like(sites["precision"])
    if kernel == "gaussian":
        sites["lengthscale"] = 0.8 * ones
        problem = prepare(X, Y, lengthscale=THETAS["off"])
    else:
        sites["amplitude"], sites["scale"] = ones, 0.8 * ones
        problem = prepare(X, Y, kernel=kernel)
    for remainder in (True, False):
        fixed = whole(posterior(run, remainder=remainder).evaluate(NEW))
        off = whole(Posterior(sites, problem, X, kernel, remainder=remainder).evaluate(NEW))
        np.testing.assert_allclose(off[0], fixed[0], atol=1e-5)
        np.testing.assert_allclose(off[1], fixed[1], atol=1e-5)
    drawn = (posterior(run), Posterior(sites, problem, X, kernel))
    one, other = (PredictiveDistribution(each).sample(NEW) for each in drawn)
    np.testing.assert_allclose(other.functions, one.functions, atol=1e-5)
    np.testing.assert_allclose(other.probabilities, one.probabilities, atol=1e-5)


def test_the_remainder_is_what_the_process_leaves_open():
    run = chains()
    kernel = Gaussian().at(0.8)
    cross = gram(kernel, NEW, X)
    left = 1 - np.sum(cross * np.linalg.solve(gram(kernel, X), cross.T).T, axis=1)
    np.testing.assert_allclose(left[-2:], [0, 1], atol=1e-4)
    # Over the draws it has the variance sigma2/tau times that; far away it is a standard normal.
    known, _ = whole(posterior(run, remainder=False).evaluate(NEW, probabilities=False))
    full, _ = whole(posterior(run).evaluate(NEW, probabilities=False))
    ratio = np.concatenate(run.samples["noise_variance"] / run.samples["precision"])
    scaled = (full - known) / np.sqrt(ratio)
    normal = scaled[-1] / np.sqrt(left[-1])
    expected = np.sqrt(np.maximum(left, 0))[:, None, None] * normal
    np.testing.assert_allclose(scaled, expected, atol=1e-4)
    np.testing.assert_allclose(scaled[:-2], expected[:-2], atol=1e-8)
    np.testing.assert_allclose(normal.sum(0), 0, atol=1e-10)
    # The points belong to the draws in the order of time: one balanced set of 80 normals.
    columns = np.sort(normal.T @ contrast(3), axis=0)
    seed = int(np.random.SeedSequence((0, 2)).generate_state(1)[0])
    np.testing.assert_allclose(columns, np.sort(normal_points(80, 2, seed), axis=0), atol=1e-8)


def test_the_noise_is_integrated_as_quadrature_does():
    run = chains()
    functions, probabilities = whole(posterior(run).evaluate(NEW, points=64))
    # A product rule over the two contrasts of three classes.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2) @ class_map("sum_to_zero", 3)
    mass = np.outer(weights, weights).ravel()
    sigma = np.sqrt(np.concatenate(run.samples["noise_variance"]))
    assert run.problem.likelihood == "normalized"
    errors = []
    for row in range(len(NEW)):
        scores = functions[row].T[:, None] + sigma[:, None, None] * grid
        excess = np.maximum(scores + 0.5, 0)
        shares = np.exp(excess - excess.max(-1, keepdims=True))
        exact = np.einsum("q,sqj->js", mass, shares / shares.sum(-1, keepdims=True))
        errors.append(probabilities[row] - exact)
    errors = np.array(errors)
    assert np.abs(errors).max() < 0.12  # of a single draw: 64 points
    assert np.abs(errors.mean(-1)).max() < 0.01  # of the average: 64 points of 80 draws
    # Each draw has points of its own, whose errors cancel: 0.45 is four errors of 80 means.
    assert np.abs(errors.mean(-1)).max() < 0.5 * errors.std()


def drawn_probabilities(rng, run, theta):
    """Class probabilities at NEW from dense formulas: one draw of scores for each posterior draw.

    Functions at new rows given the scores of the training rows are Gaussian, with b and B
    integrated out; scores have their noise.
    """
    eta = float(run.problem.hyper.intercept_precision)
    total = np.zeros((len(NEW), 3))
    draws = draws_of(run)
    for draw in draws:
        kernel = Gaussian().at(float(draw.get("lengthscale", THETAS["fixed"])))
        key = (theta, float(draw.get("lengthscale", 0)))
        if key not in GRAMS:
            GRAMS[key] = gram(kernel, X), gram(kernel, NEW, X)
        (inner, cross), tau, sigma2 = GRAMS[key], draw["precision"], draw["noise_variance"]
        covariance = inner / tau + 1 / eta + np.eye(len(X))
        gain = np.linalg.solve(covariance, (cross / tau + 1 / eta).T).T
        mean = gain @ (draw["scores"] @ contrast(3))
        variance = sigma2 * (1 / tau + 1 / eta - np.sum(gain * (cross / tau + 1 / eta), axis=1))
        spread = np.sqrt(variance + sigma2)[:, None]
        scores = (mean + spread * rng.normal(size=mean.shape)) @ contrast(3).T
        for label in range(3):
            labels = np.full(len(NEW), label)
            total[:, label] += likelihood_of_rows(scores, labels, run.problem.likelihood)
    return total / len(draws)


GRAMS: dict = {}
"""Gram matrices by theta: draws on a grid have few of them."""


@pytest.mark.parametrize(
    ("likelihood", "theta"),
    [("normalized", "fixed"), ("normalized", "grid")],
)
def test_probabilities_agree_with_draws_from_dense_formulas(likelihood, theta):
    """Scores are drawn there and integrated here, from the same posterior draws.

    Means of 24 numbers within five standard errors: false alarm below 2e-5 for each case.
    """
    run = chains(likelihood=likelihood, theta=theta, num_samples=500)
    repeats = [drawn_probabilities(np.random.default_rng(i), run, theta) for i in range(8)]
    _, found = whole(posterior(run, theta).evaluate(NEW))
    # Both have the error of the functions given the scores, drawn once for each of 1000 draws.
    error = np.std(repeats, axis=0, ddof=1) * np.sqrt(1 + 1 / 8) + 1e-3
    assert np.all(np.abs(found.mean(-1) - np.mean(repeats, axis=0)) < 5 * error)


@pytest.mark.parametrize("theta", ["fixed", "grid"])
def test_a_row_is_told_the_same_in_any_company(theta):
    run = chains(theta=theta)
    rows = np.random.default_rng(0).normal(size=(2 * ROWS + 37, 2))
    functions, probabilities = whole(posterior(run, theta).evaluate(rows))
    order = np.random.default_rng(1).permutation(len(rows))
    for chosen in (order, order[:5], np.array([200]), np.arange(1, len(rows))):
        other = whole(posterior(run, theta).evaluate(rows[chosen]))
        np.testing.assert_array_equal(other[0], functions[chosen])
        np.testing.assert_array_equal(other[1], probabilities[chosen])


@pytest.mark.parametrize("theta", ["fixed", "grid", "off"])
def test_reading_a_posterior_draws_nothing(theta):
    """Every method called twice gives the same numbers; another seed gives others."""
    read = posterior(chains(theta=theta, num_samples=10), theta)
    for method in (read.probabilities, read.functions, read.exclusion):
        np.testing.assert_array_equal(method(NEW), method(NEW))
    predictive = PredictiveDistribution(read)
    for method in (predictive.uncertainty, predictive.sample):
        for one, other in zip(method(NEW), method(NEW), strict=True):
            np.testing.assert_array_equal(one, other)
    if theta != "off":
        for one, other in zip(read.leave_one_out(), read.leave_one_out(), strict=True):
            np.testing.assert_array_equal(one, other)
        one, other = (predictive.calibrated(squares=((Gaussian(), None),)) for _ in range(2))
        np.testing.assert_array_equal(np.hstack(one.calibration), np.hstack(other.calibration))
        np.testing.assert_array_equal(one.probabilities(NEW), other.probabilities(NEW))
    other = dataclasses.replace(read, seed=1)
    assert not np.array_equal(other.probabilities(NEW), read.probabilities(NEW))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (NEW[0], r"X must have two dimensions .* got shape \(2,\)"),
        (NEW[:, :1], "X must have 2 columns, as the training rows have; got 1"),
        (np.full((2, 2), np.nan), r"X must be finite; 4 entries are not"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, said):
    with pytest.raises(ValueError, match=said):
        posterior(chains()).probabilities(rows)


def test_chains_of_the_driver_lead_to_a_posterior_and_to_arviz():
    run = chains()
    found, expected = Posterior.from_numpyro(run, X), posterior(run)
    np.testing.assert_array_equal(found.probabilities(NEW), expected.probabilities(NEW))
    data = to_arviz(run, log_likelihood=False)
    np.testing.assert_array_equal(data["posterior"]["scores"], run.samples["scores"])
    assert data["sample_stats"]["acceptance_rate"].shape == (2, 40)
    assert repr(run).startswith(
        "Run(2 x 40 draws, complete, Problem(15 rows, 3 classes, normalized, sum_to_zero): "
    )


def test_leave_one_out_has_no_spare_rows():
    spare = prepare(X, Y, lengthscale=0.8, spare_rows=17)
    run = run_chains(
        BMSVMGibbs(sampler=QUICK), jax.random.key(0), spare, num_warmup=5, num_samples=30
    )
    found = Posterior.from_numpyro(run, X, lengthscale=0.8).leave_one_out()
    assert [len(part) for part in found] == [len(X)] * 3


def test_a_posterior_prints_sizes_and_not_arrays():
    problem = SimpleNamespace(
        row_weights=np.array([1.0, 2.0, 0.0]),
        n_rows=3,
        n_classes=4,
        likelihood="hinge",
        coupling="independent",
    )
    samples = {"noise_variance": np.zeros((2, 5)), "weights": np.zeros((2, 5, 3, 4))}
    assert repr(Posterior(samples, problem, None)) == (
        "Posterior(2 x 5 draws, 2 rows, 4 classes, hinge, independent; "
        "samples: noise_variance, weights)"
    )


def test_exclusion_is_equation_20():
    functions = np.random.default_rng(0).normal(size=(4, 3, 5))
    found = exclusion_probabilities(functions, axis=1)
    for i, j, s in np.ndindex(functions.shape):
        assert found[i, j, s] == pytest.approx(np.exp(-max(functions[i, j, s] + 0.5, 0)))


def test_predictive_draws_have_the_moments_of_their_conditionals():
    """Functions over 80 draws, labels over 4000 rows alike; false alarm below 1e-5 (five errors).

    The noise of the scores is in the probabilities: see test_the_noise_is_integrated.
    """
    run = chains()
    process = posterior(run, seed=7)
    m = 4000
    rows = np.repeat(NEW[-1:], m, axis=0)  # where everything is remainder
    draws = PredictiveDistribution(process).sample(rows)
    variance = process.flat("noise_variance") / process.flat("precision")
    scaled = (draws.functions[:, 0] - process.flat("intercept")) / np.sqrt(variance)[:, None]
    H, count = np.eye(3) - 1 / 3, len(scaled)
    assert np.all(np.abs(scaled.mean(0)) < 5 * np.sqrt(np.diag(H) / count))
    assert np.all(np.abs(scaled.T @ scaled / count - H) < 5 * np.sqrt(2 / count))
    # Rows alike have one function and one probability, and labels of their own.
    np.testing.assert_array_equal(draws.functions, draws.functions[:, :1].repeat(m, axis=1))
    for s in (0, 33, 79):
        frequency = np.bincount(draws.labels[s], minlength=3) / m
        assert np.all(np.abs(frequency - draws.probabilities[s].mean(0)) < 5 * 0.5 / np.sqrt(m))
    np.testing.assert_allclose(draws.probabilities.sum(-1), 1)
    np.testing.assert_allclose(draws.functions.sum(-1), 0, atol=1e-9)


def test_class_map_is_class_vector():
    for coupling, k in (("sum_to_zero", 3), ("independent", 4)):
        columns = np.random.default_rng(0).normal(size=(5, k))
        found = columns @ class_map(coupling, 4)
        np.testing.assert_allclose(found, class_vector(jnp.asarray(columns), coupling), atol=1e-12)


@pytest.mark.parametrize("dimension", [1, 2, 10])
def test_points_are_balanced_normals_and_a_longer_sequence_goes_on(dimension):
    points = normal_points(1024, dimension, seed=5)
    np.testing.assert_array_equal(points[:100], normal_points(100, dimension, seed=5))
    assert np.isfinite(points).all()
    assert np.abs(points.mean(0)).max() < 0.02  # independent draws: 0.03 on average
    np.testing.assert_allclose(points.T @ points / 1024, np.eye(dimension), atol=0.06)
    runs = points.reshape(64, 16, dimension)
    assert np.abs((runs > 0).mean(1) - 0.5).max() <= 0.25 / (1 if dimension > 2 else 4)
    assert not np.array_equal(points, normal_points(1024, dimension, seed=6))
