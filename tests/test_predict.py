"""Functions at new rows are the Gaussian process conditioned on the scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bmsvm import PAPER, Posterior, PredictiveDistribution, Sampled, prepare
from bmsvm.kernels import Gaussian, gram
from bmsvm.models import Position
from bmsvm.models.conditionals import intercept_collapsed, project, weights_given_rest
from bmsvm.models.couplings import class_map, class_vector, to_columns

N_DRAWS = 20_000
SIGMA2, TAU, ETA = 0.7, 0.4, 1000.0
THETA, GRID = 1.3, (0.7, 1.3)
KERNEL = Gaussian().at(THETA)


def draw_given_scores(problem, scores, size, seed):
    """Draw (b, v) from their exact conditional given scores, sigma2 and tau."""
    columns = to_columns(scores, problem.labels, problem.coupling)
    sigma2, tau = jnp.asarray(SIGMA2), jnp.asarray(TAU)

    def one(key):
        keys = jax.random.split(key)
        intercept = intercept_collapsed(project(columns, problem), tau, sigma2, problem)
        position = Position(columns, intercept.sample(keys[0]), None, sigma2, tau)
        weights = weights_given_rest(position, problem).sample(keys[1])
        return class_vector(position.intercept, problem.coupling), weights

    keys = jax.random.split(jax.random.key(seed), size)
    return tuple(np.asarray(part) for part in jax.jit(jax.vmap(one))(keys))


@pytest.fixture(
    scope="module",
    params=[("sum_to_zero", "fixed"), ("independent", "fixed"), ("sum_to_zero", "grid")],
    ids="-".join,
)
def case(request):
    """Rows, new rows, scores, the problem, and draws at new rows of the theta that is tested.

    On a grid half of the draws have another theta.
    """
    coupling, theta = request.param
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(9, 2)), np.arange(9) % 3
    new = np.concatenate([rng.normal(size=(2, 2)), X[:1], [[40.0, 0.0]]])
    how = THETA if theta == "fixed" else Sampled(grid=GRID)
    problem = prepare(
        X, y, lengthscale=how, coupling=coupling, likelihood="hinge", hyperparameters=PAPER
    )
    scores = rng.normal(size=(9, 3))
    scores -= scores.mean(1, keepdims=True)
    if theta == "fixed":
        intercept, weights = draw_given_scores(problem, scores, N_DRAWS, 0)
        kept, extra = slice(None), {}
    else:
        parts = [draw_given_scores(problem.at(g), scores, N_DRAWS, g) for g in (0, 1)]
        intercept, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        kept, extra = slice(N_DRAWS, None), {"lengthscale": np.repeat(GRID, N_DRAWS)[None]}
    sites = {
        "intercept": intercept[None],
        "weights": weights[None],
        "noise_variance": np.full((1, len(weights)), SIGMA2),
        "precision": np.full((1, len(weights)), TAU),
        **extra,
    }
    fixed = THETA if theta == "fixed" else None
    drawn = PredictiveDistribution(Posterior(sites, problem, X, "gaussian", fixed)).sample(new)
    return X, new, scores, problem, type(drawn)(*(part[kept] for part in drawn))


def test_functions_have_the_dense_conditional_mean_and_covariance(case):
    """Means within five standard errors, covariances within six; false alarm below 1e-4."""
    X, new, scores, problem, drawn = case
    columns = np.asarray(to_columns(jnp.asarray(scores), problem.labels, problem.coupling))
    masks = np.asarray(problem.design.mask) > 0
    to_classes = class_map(problem.coupling, 3)
    mean, variance = np.zeros((2, len(new), problem.n_columns))
    for j in range(problem.n_columns):
        rows = masks[j if len(masks) > 1 else 0]
        prior = lambda a, b: SIGMA2 * (gram(KERNEL, a, b) / TAU + 1 / ETA)  # noqa: E731
        inner = prior(X[rows], X[rows]) + SIGMA2 * np.eye(rows.sum())
        gain = np.linalg.solve(inner, prior(X[rows], new)).T
        mean[:, j] = gain @ columns[rows, j]
        # The remainder is drawn row by row, so only variances are those of the process.
        variance[:, j] = np.diag(prior(new, new) - gain @ prior(X[rows], new))
    # Columns are independent given the scores; the classes are a linear map of them.
    expected, spread = mean @ to_classes, variance @ to_classes**2
    found = drawn.functions
    error = np.sqrt(spread / N_DRAWS)
    assert np.all(np.abs(found.mean(0) - expected) < 5 * error)
    assert np.all(np.abs(found.var(0) / spread - 1) < 6 * np.sqrt(2 / N_DRAWS))


def test_far_from_the_data_the_prior_comes_back(case):
    *_, problem, drawn = case
    far = drawn.functions[:, -1]
    scale = np.sum(class_map(problem.coupling, 3) ** 2, axis=0)
    np.testing.assert_allclose(far.var(0) / scale, SIGMA2 / TAU, rtol=0.1)


def test_probabilities_are_normalised_and_finite(case):
    *_, drawn = case
    assert drawn.probabilities.shape == (N_DRAWS, 4, 3)
    np.testing.assert_allclose(drawn.probabilities.sum(-1), 1, rtol=1e-12)
