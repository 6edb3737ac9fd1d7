"""Posterior draws at new rows, against dense Gaussian process formulas and other codes."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import BMSVMGibbs, kernels, run_chains
from bmsvm.inference import predict
from bmsvm.inference.posterior import ROWS, posterior_of
from bmsvm.inference.posterior_predictive import predictive_draws
from bmsvm.inference.quasirandom import normal_points
from bmsvm.models.couplings import class_map, class_vector
from bmsvm.models.likelihoods import exclusion_probabilities

RNG = np.random.default_rng(3)
Y = np.arange(15) % 3
X = RNG.normal(size=(15, 2)) + 1.5 * np.eye(3)[Y][:, :2]
NEW = np.concatenate([RNG.normal(size=(6, 2)), X[:1], [[30.0, -30.0]]])
GRID = np.geomspace(0.5, 2.0, 4)
KEPT = ("scores", "weights", "intercept", "noise_variance", "precision")


def chains(coupling="sum_to_zero", likelihood="normalized", lengthscale=0.8, num_samples=40):
    sampled = isinstance(lengthscale, str)
    sampler = BMSVMGibbs(
        lengthscale=lengthscale,
        lengthscale_grid=GRID if sampled else None,
        coupling=coupling,
        likelihood=likelihood,
        preset="paper",  # the quickest to compile: any draws will do
    )
    return run_chains(
        sampler,
        jax.random.key(0),
        X,
        Y,
        num_warmup=50,
        num_samples=num_samples,
        num_chains=2,
        collect=(*KEPT, "lengthscale") if sampled else KEPT,
        progress_bar=False,
    )


def posterior(run, lengthscale=0.8, **settings):
    return posterior_of(run.samples, run.state.problem, X, lengthscale=lengthscale, **settings)


def whole(parts):
    parts = list(parts)
    return tuple(np.concatenate([part[i] for part in parts]) for i in (1, 2))


@pytest.mark.parametrize(
    ("coupling", "lengthscale"),
    [("sum_to_zero", 0.8), ("independent", 0.8), ("sum_to_zero", "sample")],
)
def test_functions_are_interpolated_as_the_dense_formula_says(coupling, lengthscale):
    # Given the functions at the training rows, the mean at new rows is K* K^-1 f.
    run = chains(coupling, lengthscale=lengthscale)
    found, _ = whole(posterior(run, remainder=False).evaluate(NEW, probabilities=False))
    samples = {name: np.concatenate(value) for name, value in run.samples.items()}
    problem, to_classes = run.state.problem, class_map(coupling, 3)
    for s in range(0, len(samples["precision"]), 7):
        theta = 0.8 if lengthscale == 0.8 else samples["lengthscale"][s]
        kernel = kernels.gaussian(theta)
        index = None if lengthscale == 0.8 else int(np.argmin(np.abs(GRID - theta)))
        basis, eigenvalues = map(np.asarray, problem.at(index).factor)
        here = (basis * np.sqrt(eigenvalues)) @ samples["weights"][s]
        there = kernels.gram(kernel, NEW, X) @ np.linalg.solve(kernels.gram(kernel, X), here)
        expected = samples["intercept"][s] + there @ to_classes
        np.testing.assert_allclose(found[:, :, s], expected, atol=1e-6)
    assert len(posterior(run).stages) == (
        1 if lengthscale == 0.8 else len(np.unique(samples["lengthscale"]))
    )


def test_the_remainder_is_what_the_process_leaves_open():
    run = chains()
    process = posterior(run)
    kernel = kernels.gaussian(0.8)
    cross = kernels.gram(kernel, NEW, X)
    left = 1 - np.sum(cross * np.linalg.solve(kernels.gram(kernel, X), cross.T).T, axis=1)
    _, root = process.features(process.stages[0], NEW)
    np.testing.assert_allclose(root**2, np.maximum(left, 0), atol=1e-8)
    np.testing.assert_allclose(root[-2:], [0, 1], atol=1e-4)
    # Over the draws it has the variance sigma2/tau times that.
    known, _ = whole(posterior(run, remainder=False).evaluate(NEW, probabilities=False))
    full, _ = whole(process.evaluate(NEW, probabilities=False))
    ratio = process.samples["noise_variance"] / process.samples["precision"]
    points, _ = process.points
    expected = root[:, None, None] * np.sqrt(ratio) * (points @ class_map("sum_to_zero", 3)).T
    np.testing.assert_allclose(full - known, expected, atol=1e-10)


def test_the_noise_is_integrated_as_quadrature_does():
    # Two classes have one score; Gauss-Hermite with 200 nodes is exact here.
    run = chains()
    problem = run.state.problem
    draws = whole(posterior(run, points=64).evaluate(NEW))
    functions, probabilities = draws
    # A product rule over the two contrasts of three classes.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2) @ class_map("sum_to_zero", 3)
    mass = np.outer(weights, weights).ravel()
    sigma = np.sqrt(np.concatenate(run.samples["noise_variance"]))
    assert problem.likelihood == "normalized"
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


@pytest.mark.parametrize(
    ("likelihood", "lengthscale"),
    [("normalized", 0.8), ("probit", 0.8), ("normalized", "sample")],
)
def test_probabilities_agree_with_the_other_code_on_the_same_draws(likelihood, lengthscale):
    """The other code draws what is integrated here.

    Means of 24 numbers within five standard errors: false alarm below 2e-5 for each case.
    """
    run = chains(likelihood=likelihood, lengthscale=lengthscale, num_samples=500)
    problem = run.state.problem
    draws = {name: jnp.asarray(np.concatenate(value)) for name, value in run.samples.items()}
    if lengthscale == "sample":
        features = predict.features_on_grid("gaussian", NEW, X, problem.grid)
    else:
        features = predict.features_at(kernels.gaussian(0.8), NEW, X, problem.factor)

    @oracle.quick_jit
    def other(key):
        return predict.class_probabilities(key, draws, features, problem).mean(0)

    repeats = [np.asarray(other(jax.random.key(i))) for i in range(8)]
    _, found = whole(posterior(run, lengthscale).evaluate(NEW))
    # Both have the error of the functions given the scores, drawn once for each of 1000 draws.
    error = np.std(repeats, axis=0, ddof=1) * np.sqrt(1 + 1 / 8) + 1e-3
    assert np.all(np.abs(found.mean(-1) - np.mean(repeats, axis=0)) < 5 * error)


@pytest.mark.parametrize("lengthscale", [0.8, "sample"])
def test_a_row_is_told_the_same_in_any_company(lengthscale):
    run = chains(lengthscale=lengthscale)
    rows = np.random.default_rng(0).normal(size=(2 * ROWS + 37, 2))
    functions, probabilities = whole(posterior(run, lengthscale).evaluate(rows))
    order = np.random.default_rng(1).permutation(len(rows))
    for chosen in (order, order[:5], np.array([200]), np.arange(1, len(rows))):
        other = whole(posterior(run, lengthscale).evaluate(rows[chosen]))
        np.testing.assert_array_equal(other[0], functions[chosen])
        np.testing.assert_array_equal(other[1], probabilities[chosen])


def test_exclusion_is_equation_20():
    functions = np.random.default_rng(0).normal(size=(4, 3, 5))
    found = exclusion_probabilities(functions, axis=1)
    for i, j, s in np.ndindex(functions.shape):
        assert found[i, j, s] == pytest.approx(np.exp(-max(functions[i, j, s] + 0.5, 0)))


def test_predictive_draws_have_the_moments_of_their_conditionals():
    """First and second moments over 4000 rows alike; false alarm below 1e-5 (five errors)."""
    run = chains()
    process = posterior(run)
    m = 4000
    rows = np.repeat(NEW[-1:], m, axis=0)  # where everything is remainder
    draws = predictive_draws(process, rows, seed=7)
    noise, ratio = process.samples["noise_variance"], process.samples["precision"]
    center = process.samples["intercept"]
    H = np.eye(3) - 1 / 3
    for s in (0, 33, 79):
        for deviation, variance in (
            (draws.functions[s] - center[s], noise[s] / ratio[s]),
            (draws.scores[s] - draws.functions[s], noise[s]),
        ):
            scaled = deviation / np.sqrt(variance)
            assert np.all(np.abs(scaled.mean(0)) < 5 * np.sqrt(np.diag(H) / m))
            covariance = scaled.T @ scaled / m
            assert np.all(np.abs(covariance - H) < 5 * np.sqrt(2 / m))
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
