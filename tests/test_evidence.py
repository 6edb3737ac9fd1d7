"""Empirical Bayes: the gradient, the maximiser, and what is reported of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import Hyperparameters, kernels, maximize_evidence, prepare
from bmsvm.inference import evidence
from bmsvm.inference import run as runner
from bmsvm.inference.blocks import hamiltonian
from bmsvm.inference.subset import representative_rows
from bmsvm.models.conditionals import log_density_columns, project
from bmsvm.models.couplings import contrast
from bmsvm.models.gram_gradient import gram_gradient
from bmsvm.models.regram import with_gram

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
    whole = prepare(X, y, coupling=coupling, hyperparameters=oracle.LIVELY)
    draws, n, k = 5, whole.n_rows, whole.n_columns
    columns = rng.normal(size=(draws, n, k)) * np.asarray(whole.design.mask.T > 0)
    tau, sigma2 = rng.gamma(2.0, 0.5, draws), rng.gamma(2.0, 0.5, draws)
    unit = kernels.gaussian(1.0)

    def gram(log_theta):
        rows = jnp.asarray(X) / jnp.exp(log_theta)
        return unit(rows, rows)

    def mean_log_density(log_theta):
        problem = with_gram(whole, gram(log_theta))
        return np.mean(
            [
                log_density_columns(project(t, problem), precision, noise, problem)
                for t, precision, noise in zip(columns, tau, sigma2, strict=True)
            ]
        )

    at = np.log(theta)
    cotangent = gram_gradient(columns, tau, 1 / sigma2, with_gram(whole, gram(at)))
    found = np.ravel(jax.vjp(gram, jnp.asarray(at))[1](jnp.asarray(cotangent))[0])
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
        values, vectors = np.linalg.eigh(kernels.gram(kernels.gaussian(np.exp(log_theta)), LINE))
        roots.append(vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T)
    basis, rows = contrast(3).T, jnp.arange(8)

    @jax.jit
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


def test_a_start_of_a_named_kernel_may_be_a_list():
    rows, bounds = np.zeros((4, 2)), np.log((0.1, 200.0))
    for start in ([2.0, 3.0], (2.0, 3.0), np.array([2.0, 3.0])):
        flat, unravel = evidence._start(start, rows, False, bounds, named=True)
        np.testing.assert_allclose(np.exp(flat), [2.0, 3.0])
        assert unravel(flat).shape == (2,)
    with pytest.raises(ValueError, match="start must be positive numbers"):
        evidence._start({"a": 1.0}, rows, False, bounds, named=True)


def test_one_chain_has_an_r_hat():
    """Of its two halves: near 1 where they agree, large where they do not."""
    noise = np.random.default_rng(0).normal(size=(41, 1, 2))
    assert evidence._largest_rhat(noise) < 1.2
    assert evidence._largest_rhat(noise + 5 * (np.arange(41) > 20)[:, None, None]) > 1.5


@pytest.mark.parametrize(
    "likelihood", [pytest.param("hinge", marks=pytest.mark.long), "normalized"]
)
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

        def gram(log_theta, rows=rows):
            scaled = rows / jnp.exp(log_theta)
            return kernels.gaussian(1.0)(scaled, scaled)

        slope = jax.jvp(gram, (jnp.log(theta),), (1.0,))[1]
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


def climb(likelihood, **settings):
    defaults = {
        "rng_key": jax.random.key(1),
        "hyperparameters": STRONG,
        "likelihood": likelihood,
        "num_chains": 32,
        "progress_bar": False,
    }
    X, y = settings.pop("X", LINE), settings.pop("y", ALONG)
    return maximize_evidence(X, y, **{**defaults, **settings})


@pytest.mark.parametrize(
    "likelihood", [pytest.param("hinge", marks=pytest.mark.long), "normalized"]
)
def test_the_maximiser_of_the_brute_force_surface_is_found(likelihood):
    parts = surfaces()[likelihood]
    expected = peak(parts.mean(0))
    left_out = [peak(np.delete(parts, i, axis=0).mean(0)) for i in range(PARTS)]
    error = np.std(left_out) * np.sqrt(PARTS - 1)  # the jackknife's
    assert LOG_GRID[5] < expected < LOG_GRID[-6]
    compiled = runner._advance._cache_size()
    found = climb(likelihood)
    assert runner._advance._cache_size() <= compiled + 1  # one program at all lengthscales
    print(f"log theta {np.log(found.lengthscale):.3f} +- {found.log_error[0]:.3f}, ", end="")
    print(f"by brute force {expected:.3f} +- {error:.3f}")
    assert found.converged
    assert found.log_error[0] < 0.1
    assert abs(np.log(found.lengthscale) - expected) < 4 * np.hypot(found.log_error[0], error)
    assert found.path.shape == found.gradients.shape == (160, 1)
    assert found.init_params["scores"].shape == (32, 8, 3)


@pytest.mark.filterwarnings("ignore:the marginal likelihood still rises at a bound")
def test_a_feature_that_says_nothing_gets_a_long_lengthscale():
    noise = np.random.default_rng(3).permutation(LINE[:, 0])
    both = np.column_stack([LINE[:, 0], noise])
    found = climb("hinge", X=both, per_feature=True)
    assert found.lengthscale.shape == (2,)
    assert found.path.shape == (160, 2)
    assert found.lengthscale[1] > 2 * found.lengthscale[0]


def test_a_short_ascent_from_afar_says_that_it_has_not_converged():
    with pytest.warns(UserWarning, match="has not converged.*num_steps"):
        found = climb("hinge", start=30.0, num_steps=20, step_size=0.02)
    assert not found.converged


def test_a_maximum_at_a_bound_is_reported():
    with pytest.warns(UserWarning, match="still rises at a bound"):
        found = climb("hinge", bounds=(4.0, 9.0))
    assert found.lengthscale < 4.3


def test_parameters_may_be_any_tree_of_a_callable_kernel():
    def make(parameters):
        unit = kernels.gaussian(1.0)
        return lambda a, b: unit(a / parameters["scale"], b / parameters["scale"])

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
    whole = evidence.prepare

    def watched(X, y, **settings):
        looked_at.update(X=np.asarray(X), y=np.asarray(y), weights=settings["row_weights"])
        return whole(X, y=y, **settings)

    monkeypatch.setattr(evidence, "prepare", watched)
    settings = {"num_steps": 20, "start": 2.0}
    found = climb(
        "hinge", X=many, y=codes, row_weights=weights, max_rows=8, spare_rows=5, **settings
    )
    assert found.num_rows == 8
    assert found.state is None
    np.testing.assert_array_equal(np.bincount(looked_at["y"]), [3, 2, 3])
    rows = np.flatnonzero(np.isin(many[:, 0], looked_at["X"][:, 0]))
    np.testing.assert_array_equal(looked_at["y"], codes[rows])
    np.testing.assert_array_equal(looked_at["weights"], weights[rows])
    alone = climb("hinge", X=many[rows], y=codes[rows], row_weights=weights[rows], **settings)
    np.testing.assert_array_equal(alone.path, found.path)
    assert alone.state is not None


def test_rows_are_chosen_in_proportion_with_every_class_among_them():
    labels = np.repeat([0, 1, 2], [600, 299, 1])
    rng = np.random.default_rng(0)
    chosen = representative_rows(labels, 90, rng)
    assert np.all(np.diff(chosen) > 0)
    np.testing.assert_allclose(np.bincount(labels[chosen]), [60, 29, 1], atol=1)
    assert np.bincount(labels[chosen])[2] == 1
    assert set(labels[representative_rows(labels, 3, rng)]) == {0, 1, 2}
    assert not np.array_equal(chosen, representative_rows(labels, 90, rng))


@pytest.mark.parametrize("hold", [("precision",), ("precision", "noise_variance")])
def test_what_is_held_stands_still_and_the_rest_keeps_its_posterior(hold):
    """Three sweeps from exact draws; false alarm 1e-4 over both."""
    problem, before = oracle.exact_draws(oracle.CASES[0], 4000)
    after, _ = oracle.after_sweeps((hamiltonian(hold=hold),), problem, before, 3, seed=4)
    for name in ("precision", "noise_variance"):
        old, new = getattr(before, name), getattr(after, name)
        same = np.allclose(old, new, rtol=1e-12)
        assert same == (name in hold)
    assert float(jnp.mean(jnp.any(after.columns != before.columns, axis=(1, 2)))) > 0.5
    z = oracle.drift(problem, before, after)
    assert oracle.largest(z) < oracle.threshold(1e-4 / 2, z.size)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "linear"}, "kernel must be one of 'gaussian'"),
        ({"kernel": 3}, "kernel must be a name or a callable that makes"),
        ({"start": -1.0}, "start must be positive numbers"),
        ({"start": "long"}, "start must be positive numbers"),
        ({"start": [1.0, 2.0]}, "start must be a positive number, or one per feature"),
        ({"bounds": (2.0, 1.0)}, "bounds must be two positive numbers, the smaller first"),
        ({"also": ["tau"]}, "also must be one of 'precision', 'noise_variance'; got 'tau'"),
        ({"also": "precision", "likelihood": "probit"}, "also must be empty"),
        ({"num_steps": 3}, "num_steps must be an integer of at least 20; got 3"),
        ({"sweeps": 1000}, "sweeps must be at most 50"),
        ({"max_rows": 2}, "max_rows must be an integer of at least 3; got 2"),
        (
            {"kernel": lambda theta: lambda a, b: -theta * (a @ b.T), "start": 1.0},
            "^kernel: the Gram matrix must be positive semi-definite",
        ),
    ],
)
def test_bad_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        climb(**{"likelihood": "hinge", **settings})
