"""Empirical Bayes: the gradient, the maximiser, and what is reported of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import Evidence, Hyperparameters, prepare
from bmsvm.inference import state as states
from bmsvm.kernels import Gaussian, gram
from bmsvm.models.conditionals import log_density_columns, project
from bmsvm.models.couplings import contrast
from bmsvm.selection import evidence_gradient
from bmsvm.selection.base import representative_rows
from bmsvm.selection.evidence_gradient import gram_gradient, with_gram

# Three classes along a line: short lengthscales learn nothing from a row's neighbours, long ones
# cannot tell the classes apart. The functions are large, so that the labels say much of theta.
LINE = np.array([-3.0, -2.6, -2.2, -0.2, 0.2, 2.2, 2.6, 3.0])[:, None]
ALONG = np.array([0, 0, 0, 1, 1, 2, 2, 2])
STRONG = Hyperparameters(
    noise_shape=5.0,
    noise_rate=4.0,
    precision_shape=3.0,
    precision_rate=60.0,
    intercept_precision=2.0,
)
LOG_GRID = np.log(np.geomspace(0.25, 8.0, 31))
PARTS, PART = 12, 1 << 15


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
@pytest.mark.parametrize("theta", [1.3, (0.8, 2.1)], ids=["one", "per-feature"])
def test_the_gradient_is_that_of_the_collapsed_density(coupling, theta):
    """Against central differences of ``log_density_columns`` in each log lengthscale."""
    rng, theta = np.random.default_rng(0), np.asarray(theta, float)
    X, y = rng.normal(size=(7, 2)), np.array([0, 1, 2, 1, 0, 2, 1])
    whole = prepare(X, y, lengthscale=1.0, coupling=coupling, hyperparameters=oracle.LIVELY)
    draws, n, k = 5, whole.n_rows, whole.n_columns
    columns = rng.normal(size=(draws, n, k)) * np.asarray(whole.design.mask.T > 0)
    tau, sigma2 = rng.gamma(2.0, 0.5, draws), rng.gamma(2.0, 0.5, draws)

    def gram_at(log_theta):
        rows = jnp.asarray(X)
        return Gaussian().traced(jnp.exp(log_theta))(rows, rows)

    def mean_log_density(log_theta):
        problem = with_gram(whole, gram_at(log_theta))
        return np.mean(
            [
                log_density_columns(project(t, problem), precision, noise, problem)
                for t, precision, noise in zip(columns, tau, sigma2, strict=True)
            ]
        )

    at = np.log(theta)
    cotangent = gram_gradient(columns, tau, 1 / sigma2, with_gram(whole, gram_at(at)))
    found = np.ravel(jax.vjp(gram_at, jnp.asarray(at))[1](jnp.asarray(cotangent))[0])
    steps = 1e-4 * np.eye(at.size).reshape(-1, *at.shape)
    expected = [(mean_log_density(at + h) - mean_log_density(at - h)) / 2e-4 for h in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def problem_at(theta, likelihood):
    return prepare(LINE, ALONG, lengthscale=theta, likelihood=likelihood, hyperparameters=STRONG)


@functools.cache
def surfaces():
    """``p(y | theta)`` over the grid by plain Monte Carlo, in parts: (PARTS, G) by likelihood.

    The same prior draws serve every theta, through the symmetric root of its Gram matrix.
    """
    roots = []
    for log_theta in LOG_GRID:
        values, vectors = np.linalg.eigh(gram(Gaussian().at(np.exp(log_theta)), LINE))
        roots.append(vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T)
    basis, rows = contrast(3).T, jnp.arange(8)

    @oracle.optimizing_jit
    def part(key):
        keys = jax.random.split(key, 5)
        sigma2 = STRONG.noise_rate / 2 / jax.random.gamma(keys[0], STRONG.noise_shape / 2, (PART,))
        tau = jax.random.gamma(keys[1], STRONG.precision_shape / 2, (PART,))
        tau = tau * 2 / STRONG.precision_rate
        intercept = jax.random.normal(keys[2], (2, PART)) / jnp.sqrt(STRONG.intercept_precision)
        weights = jax.random.normal(keys[3], (8, 2, PART)) / jnp.sqrt(tau)
        noise = jax.random.normal(keys[4], (8, 2, PART)) + intercept

        def at(root):
            columns = jnp.sqrt(sigma2) * (jnp.einsum("ij,jkp->ikp", root, weights) + noise)
            excess = jnp.maximum(jnp.einsum("ikp,kc->icp", columns, basis) + 0.5, 0)
            own = excess[rows, ALONG]
            total = {"hinge": excess.sum(1), "normalized": jax.nn.logsumexp(excess, 1)}
            return {name: jnp.exp((own - of).sum(0)).mean() for name, of in total.items()}

        return jax.lax.map(at, jnp.asarray(np.array(roots)))

    parts = [part(key) for key in jax.random.split(jax.random.key(0), PARTS)]
    return {name: np.array([each[name] for each in parts]) for name in parts[0]}


def peak(evidence):
    """Maximiser in log theta, of a polynomial through the points around the largest."""
    values, top = np.log(evidence), int(evidence.argmax())
    near = slice(top - 4, top + 5)
    fit = np.polynomial.Polynomial.fit(LOG_GRID[near], values[near], 4)
    fine = np.linspace(LOG_GRID[top - 2], LOG_GRID[top + 2], 2001)
    return fine[fit(fine).argmax()]


@pytest.mark.filterwarnings("ignore:the ascent of the marginal likelihood has not converged")
@pytest.mark.parametrize("start", [[2.0, 3.0], (2.0, 3.0), np.array([2.0, 3.0])], ids=repr)
def test_a_start_of_a_named_kernel_may_be_a_list(start):
    both = np.column_stack([LINE[:, 0], LINE[::-1, 0]])
    quick = {"num_warmup": 1, "num_steps": 20, "sweeps": 1, "num_chains": 2}
    found = climb("hinge", X=both, start=start, **quick)
    np.testing.assert_allclose(found.path[0], [2.0, 3.0])
    assert found.lengthscale.shape == (2,)


@pytest.mark.long
@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_the_mean_gradient_is_the_slope_of_the_evidence(likelihood):
    """From exact posterior draws, against differences of the surface: false alarm 1e-4."""
    parts, z = surfaces()[likelihood], []
    for g in (6, 15, 24):
        theta = float(np.exp(LOG_GRID[g]))
        problem, rng = problem_at(theta, likelihood), np.random.default_rng(g)
        draws = oracle.prior_draws(rng, 1 << 18, problem)
        kept = rng.uniform(size=1 << 18) < oracle.likelihood_of(draws.columns, problem)
        columns, tau, sigma2 = (
            part[kept] for part in (draws.columns, draws.precision, draws.noise_variance)
        )
        rows = jnp.asarray(LINE)

        def gram_at(log_theta, rows=rows):
            return Gaussian().traced(jnp.exp(log_theta))(rows, rows)

        slope = jax.jvp(gram_at, (jnp.log(theta),), (1.0,))[1]
        batches = np.array_split(np.arange(len(tau)), 20)
        found = [
            np.sum(slope * gram_gradient(columns[i], tau[i], 1 / sigma2[i], problem))
            for i in batches
        ]
        step = LOG_GRID[g + 1] - LOG_GRID[g - 1]
        expected = np.log(parts[:, g + 1] / parts[:, g - 1]) / step
        error = np.hypot(np.std(found) / np.sqrt(20), np.std(expected) / np.sqrt(PARTS))
        z.append((np.mean(found) - expected.mean()) / error)
    assert oracle.largest(np.array(z)) < oracle.threshold(1e-4 / 2, 3, dof=PARTS - 1)


OPTIONS = {
    "max_rows": None,
    "num_warmup": 100,
    "num_steps": 160,
    "step_size": 0.15,
    "num_chains": 32,
}


def climb(likelihood, X=LINE, y=ALONG, kernel="gaussian", row_weights=None, **options):
    return Evidence(**{**OPTIONS, **options}).select(
        X,
        y,
        rng_key=jax.random.key(1),
        kernel=kernel,
        likelihood=likelihood,
        hyperparameters=STRONG,
        row_weights=row_weights,
    )


@pytest.mark.parametrize(
    "likelihood", [pytest.param("hinge", marks=pytest.mark.long), "normalized"]
)
def test_the_maximiser_of_the_brute_force_surface_is_found(likelihood):
    parts = surfaces()[likelihood]
    expected = peak(parts.mean(0))
    left_out = [peak(np.delete(parts, i, axis=0).mean(0)) for i in range(PARTS)]
    error = np.std(left_out) * np.sqrt(PARTS - 1)  # the jackknife's
    assert LOG_GRID[5] < expected < LOG_GRID[-6]
    compiled = states.compiled_chunk._cache_size()
    found = climb(likelihood)
    assert states.compiled_chunk._cache_size() <= compiled + 1  # one program at all lengthscales
    print(f"log theta {np.log(found.lengthscale):.3f} +- {found.log_error[0]:.3f}, ", end="")
    print(f"by brute force {expected:.3f} +- {error:.3f}")
    assert found.converged
    assert found.log_error[0] < 0.1
    assert abs(np.log(found.lengthscale) - expected) < 4 * np.hypot(found.log_error[0], error)
    assert found.path.shape == found.gradients.shape == (160, 1)
    assert found.hyperparameters == STRONG


@pytest.mark.filterwarnings("ignore:the marginal likelihood still rises at a bound")
def test_a_feature_that_says_nothing_gets_a_long_lengthscale():
    noise = np.random.default_rng(3).permutation(LINE[:, 0])
    both = np.column_stack([LINE[:, 0], noise])
    found = climb("hinge", X=both, per_feature=True)
    assert found.lengthscale.shape == (2,)
    assert found.path.shape == (160, 2)
    assert found.lengthscale[1] > 2 * found.lengthscale[0]


def test_a_short_ascent_from_afar_says_that_it_has_not_converged():
    with pytest.warns(UserWarning, match=r"not converged.*num_steps"):
        found = climb("hinge", start=30.0, num_steps=20, step_size=0.02)
    assert not found.converged


def test_a_maximum_at_a_bound_is_reported():
    with pytest.warns(UserWarning, match="bound"):
        found = climb("hinge", bounds=(4.0, 9.0))
    assert found.lengthscale < 4.3


def test_parameters_may_be_any_tree_of_a_callable_kernel():
    def make(parameters):
        return Gaussian().traced(parameters["scale"])

    named = climb("hinge", num_steps=20, start=2.0)
    called = climb("hinge", num_steps=20, start={"scale": 2.0}, kernel=make)
    # The first step is the same; later ones remember every rounding.
    np.testing.assert_allclose(called.gradients[0], named.gradients[0], rtol=1e-6)
    np.testing.assert_allclose(called.path[1], named.path[1], rtol=1e-6)
    assert called.lengthscale["scale"].shape == ()


@pytest.mark.filterwarnings("ignore:the ascent of the marginal likelihood has not converged")
def test_some_of_many_rows_are_looked_at_and_the_rest_is_not(monkeypatch):
    many, codes = np.tile(LINE, (40, 1)), np.tile(ALONG, 40)
    many = many + np.random.default_rng(0).normal(scale=0.1, size=many.shape)
    weights = np.linspace(0.5, 1.5, len(many))
    looked_at = {}
    whole = evidence_gradient.prepare

    def watched(*, X, y, **settings):
        looked_at.update(X=np.asarray(X), y=np.asarray(y), weights=settings["row_weights"])
        return whole(X, y, **settings)

    monkeypatch.setattr(evidence_gradient, "prepare", watched)
    settings = {"num_steps": 20, "start": 2.0}
    found = climb("hinge", X=many, y=codes, row_weights=weights, max_rows=8, **settings)
    assert found.num_rows == 8
    np.testing.assert_array_equal(np.bincount(looked_at["y"]), [3, 2, 3])
    rows = np.flatnonzero(np.isin(many[:, 0], looked_at["X"][:, 0]))
    np.testing.assert_array_equal(looked_at["y"], codes[rows])
    np.testing.assert_array_equal(looked_at["weights"], weights[rows])
    alone = climb("hinge", X=many[rows], y=codes[rows], row_weights=weights[rows], **settings)
    np.testing.assert_array_equal(alone.path, found.path)


def test_rows_are_chosen_in_proportion_with_every_class_among_them():
    labels = np.repeat([0, 1, 2], [600, 299, 1])
    rng = np.random.default_rng(0)
    chosen = representative_rows(labels, 90, rng)
    assert np.all(np.diff(chosen) > 0)
    np.testing.assert_allclose(np.bincount(labels[chosen]), [60, 29, 1], atol=1)
    assert np.bincount(labels[chosen])[2] == 1
    assert set(labels[representative_rows(labels, 3, rng)]) == {0, 1, 2}
    assert not np.array_equal(chosen, representative_rows(labels, 90, rng))


def test_spare_rows_do_not_move_the_ascent():
    """Averaged over the columns of spare rows, given the others, their gradient is nothing."""
    rng = np.random.default_rng(0)
    y = np.arange(8) % 3
    X = rng.normal(size=(8, 2)) + 1.5 * np.c_[y == 1, y == 2]
    tau, sigma2, draws = 0.4, 1.3, 20_000
    hyper = oracle.LIVELY
    few, wider = (
        prepare(X, y, lengthscale=1.0, hyperparameters=hyper, spare_rows=k) for k in (0, 3)
    )
    matrix = np.exp(-0.5 * (X[:, :1] - X[:, 0]) ** 2)
    few, wider = with_gram(few, matrix), with_gram(wider, matrix)
    assert wider.n_rows == 11
    columns = rng.normal(size=(8, 2))
    covariance = np.eye(11) + 1 / hyper.intercept_precision
    covariance[:8, :8] += matrix / tau
    gain = np.linalg.solve(covariance[:8, :8], covariance[:8, 8:]).T
    left = covariance[8:, 8:] - gain @ covariance[:8, 8:]
    noise = np.linalg.cholesky(sigma2 * left) @ rng.normal(size=(draws, 3, 2))
    both = np.concatenate([np.tile(columns, (draws, 1, 1)), gain @ columns + noise], axis=1)
    found = gram_gradient(both, np.full(draws, tau), np.full(draws, 1 / sigma2), wider)
    expected = gram_gradient(columns[None], np.array([tau]), np.array([1 / sigma2]), few)
    np.testing.assert_allclose(found[:8, :8], expected, atol=0.02 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("settings", "argument", "value"),
    [
        ({"kernel": "linear"}, "lengthscale", "linear"),
        ({"kernel": 3}, "kernel", "3"),
        ({"start": -1.0}, "start", "-1.0"),
        ({"start": "long"}, "start", "'long'"),
        ({"start": [1.0, 2.0]}, "start", "[1.0, 2.0]"),
        ({"start": {"a": 1.0}}, "start", "{'a': 1.0}"),
        ({"bounds": (2.0, 1.0)}, "bounds", "(2.0, 1.0)"),
        ({"num_steps": 3}, "num_steps", "3"),
        ({"sweeps": 1000}, "sweeps", "1000"),
        ({"step_size": 0.0}, "step_size", "0.0"),
        ({"max_rows": 2}, "max_rows", "2"),
        ({"likelihood": "softmax"}, "likelihood", "'softmax'"),
        (
            {"kernel": lambda theta: lambda a, b: -theta * (a @ b.T), "start": 1.0},
            "kernel",
            "positive semi-definite",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_bad_arguments_are_named(settings, argument, value):
    with pytest.raises(ValueError, match=f"^{argument}") as caught:
        climb(**{"likelihood": "hinge", **settings})
    assert value in str(caught.value)
