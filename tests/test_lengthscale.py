"""Theta on its grid and off it: exact draws of the joint posterior, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import oracle
import pytest
import tinygp

import bmsvm
from bmsvm import BMSVMGibbs, Sampled, prepare, run_chains
from bmsvm.inference import blocks
from bmsvm.inference.sweep import block_sweep
from bmsvm.kernels import Gaussian, Parametric, gram
from bmsvm.kernels.factor import factorize
from bmsvm.models.family import unconstrained
from bmsvm.models.theta import masked_design
from bmsvm.models.whitening import matrix_function

GRID = np.geomspace(0.4, 6.0, 6)
BOUNDS = (0.4, 6.0)
DRAWS = 20_000
FALSE_ALARM = 1e-4 / 12  # over the tests of this file
X = np.random.default_rng(3).normal(size=(4, 2))
Y = np.array([0, 1, 2, 1])


def mixed_kernel(parameters):
    """Return a kernel with two kinds of parameters."""
    return tinygp.kernels.Constant(parameters["size"]) * tinygp.kernels.Matern32(
        parameters["shape"]["scale"], distance=tinygp.kernels.distance.L2Distance()
    )


MIXED_PRIOR = {"size": dist.LogNormal(0, 0.5), "shape": {"scale": dist.Gamma(3, 2)}}
SETTINGS = {
    "grid": {"lengthscale": Sampled(grid=GRID)},
    "log-grid": {"lengthscale": Sampled(grid=GRID, prior="log-uniform")},
    "off-grid": {"lengthscale": Sampled(grid="off", bounds=BOUNDS, every=1)},
    "per-feature": {
        "lengthscale": Sampled(prior="log-uniform", bounds=BOUNDS, per_feature=True, every=1)
    },
    "mixed": {"kernel": Parametric(mixed_kernel, MIXED_PRIOR, every=1)},
}


@functools.cache
def problem_of(coupling, likelihood, how):
    return prepare(
        X,
        Y,
        coupling=coupling,
        likelihood=likelihood,
        hyperparameters=oracle.LIVELY,
        **SETTINGS[how],
    )


def prior_kernels(rng, size, how, problem):
    """Theta drawn from its prior, as the positions hold it."""
    if problem.grid is not None:
        weight = {"grid": GRID, "log-grid": np.ones_like(GRID)}[how]  # of log-even cells
        return jnp.asarray(rng.choice(GRID.size, size, p=weight / weight.sum()))
    if how == "off-grid":
        draws = {"lengthscale": rng.uniform(*BOUNDS, size)}
    elif how == "per-feature":
        draws = {"lengthscale": np.exp(rng.uniform(*np.log(BOUNDS), (size, 2)))}
    else:
        draws = {"size": np.exp(rng.normal(0, 0.5, size)), "shape.scale": rng.gamma(3, 0.5, size)}
    parameters = unconstrained(jax.tree.map(jnp.asarray, draws), problem.family)
    return jax.jit(jax.vmap(problem.kernel_point))(parameters)


@functools.cache
def exact_draws(case):
    """Joint draws of theta and the rest."""
    problem = problem_of(*case)
    draws = oracle.rejection_draws(
        np.random.default_rng(5),
        DRAWS,
        problem,
        lambda rng, size: prior_kernels(rng, size, case[2], problem),
        batch=2 * DRAWS,
    )
    return problem, draws


def drift(algorithm, case, sweeps=3):
    """Z-scores of the moments after some sweeps from exact draws; and how many thetas moved."""
    problem, before = exact_draws(case)
    after, _ = oracle.after_sweeps(algorithm, problem, before, sweeps, seed=7)
    theta = [np.asarray(jax.tree.leaves(part.kernel)[0]) for part in (before, after)]
    moved = np.mean(np.any((theta[0] != theta[1]).reshape(DRAWS, -1), axis=1))
    return oracle.drift(problem, before, after, rows=(0, 1)), moved


def long(*case):
    return pytest.param(case, marks=pytest.mark.long)


INVARIANT = [
    ("sum_to_zero", "hinge", "grid", ("surrogate", "ridge", "collapsed")),
    ("independent", "hinge", "grid", ("ridge", "coefficients")),
    ("sum_to_zero", "normalized", "per-feature", ("surrogate", "collapsed")),
    long("sum_to_zero", "normalized", "grid", ("surrogate", "ridge")),
    long("sum_to_zero", "normalized", "log-grid", ("surrogate",)),
    long("independent", "normalized", "grid", ("surrogate", "collapsed")),
    long("sum_to_zero", "hinge", "grid", ("coefficients",)),
    long("independent", "hinge", "off-grid", ("coefficients",)),
    long("sum_to_zero", "hinge", "off-grid", ("surrogate", "collapsed")),
    long("independent", "normalized", "mixed", ("surrogate", "collapsed")),
]


@pytest.mark.parametrize("case", INVARIANT, ids=lambda case: "-".join((*case[:3], *case[3])))
def test_the_moves_of_theta_leave_the_posterior_invariant(case):
    """Three steps from exact draws; false alarm 1e-4 over the file."""
    z, moved = drift(block_sweep((blocks.lengthscale(moves=case[3]),)), case[:3])
    # With the coefficients held theta hardly moves: that is why no sampler uses this move.
    assert moved > (0.1 if set(case[3]) == {"coefficients"} else 0.3)
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


def test_the_printed_ratio_leaves_the_posterior():
    """Section 4.1 as printed does not leave this posterior invariant, which the test detects."""
    sweep = block_sweep((blocks.lengthscale(moves=("paper",)),))
    z, _ = drift(sweep, ("independent", "hinge", "grid"))
    assert oracle.largest(z) > 3 * oracle.threshold(FALSE_ALARM, z.size)


@pytest.mark.parametrize(
    ("sampler", "likelihood", "how"),
    [
        ("gibbs", "hinge", "grid"),
        pytest.param("hmc", "normalized", "log-grid", marks=pytest.mark.long),
        pytest.param("hmc", "normalized", "per-feature", marks=pytest.mark.long),
    ],
)
def test_a_sweep_with_theta_leaves_the_posterior_invariant(sampler, likelihood, how):
    """Blocks after a move of theta use the factor of the new theta."""
    case = ("sum_to_zero", likelihood, how)
    z, _ = drift(oracle.SAMPLERS[sampler].algorithm(problem_of(*case)), case)
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
def test_the_symmetric_root_squares_to_the_covariance(coupling):
    problem = problem_of(coupling, "hinge", "grid").at(2)
    n, k = problem.n_rows, problem.n_columns
    unit = jnp.eye(n * k).reshape(n * k, n, k)
    root = jax.vmap(lambda e: matrix_function(e, jnp.sqrt, 0.3, problem))(unit)
    root = root.reshape(n * k, n * k)
    gram = np.asarray(problem.factor.basis * problem.factor.eigenvalues @ problem.factor.basis.T)
    expected = np.zeros((n, k, n, k))
    for j in range(k):
        seen = np.ones(n) if coupling == "sum_to_zero" else (j != Y).astype(float)
        expected[:, j, :, j] = np.eye(n) + np.outer(seen, seen) * gram / 0.3
    np.testing.assert_allclose(root.T @ root, expected.reshape(n * k, n * k), atol=1e-10)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(n, k)))
    coloured = matrix_function(noise, jnp.sqrt, 0.3, problem)
    back = matrix_function(coloured, jax.lax.rsqrt, 0.3, problem)
    np.testing.assert_allclose(back, noise, atol=1e-10)


def test_chains_report_the_lengthscale():
    run = run_chains(
        BMSVMGibbs(lengthscale=Sampled(grid=GRID)),
        jax.random.key(0),
        X,
        Y,
        num_warmup=30,
        num_samples=20,
        num_chains=2,
    )
    drawn = run.samples["lengthscale"]
    assert drawn.shape == (2, 20)
    assert np.all(np.isin(drawn, GRID))
    assert len(np.unique(drawn)) > 1
    assert "theta" in run.kernel.get_diagnostics_str(run.state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": "flat"}, "prior must be one of 'uniform'"),
        ({"grid": [1.0]}, "grid must be .*two or more positive"),
        ({"grid": [2.0, 1.0]}, "grid must be .*two or more positive"),
        ({"grid": [1.0, 2.0, 3.0]}, "evenly spaced on a log scale"),
        ({"grid": "on"}, 'grid must be "off", or two or more positive'),
        ({"grid": [1, [2, 3]]}, 'grid must be "off", or two or more'),
        ({"grid": GRID, "per_feature": True}, 'per_feature needs grid to be None or "off"'),
        ({"per_feature": "yes"}, "per_feature must be True or False; got 'yes'"),
        ({"bounds": (2.0, 1.0)}, "bounds must be"),
        ({"every": 0}, "every must be an integer of at least 1; got 0"),
    ],
)
def test_bad_grids_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampled(**settings)


def constant_precision(parameters):
    return Gaussian().traced(parameters["precision"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lengthscale": "guess"}, "lengthscale must be a positive number.*; got 'guess'"),
        ({"lengthscale": None}, "lengthscale must be given for the kernel gaussian"),
        ({"lengthscale": Sampled(grid=np.geomspace(1, 2, 3_000))}, "pass a grid of at most"),
        ({"kernel": "linear"}, "sampled only with a kernel that has one.*got kernel linear"),
        ({"kernel": Gaussian().at(1.0)}, "sampled only with a kernel that has one"),
        (
            {
                "lengthscale": None,
                "kernel": Parametric(constant_precision, {"precision": dist.Uniform(5.0, 6.0)}),
            },
            "prior must name its parameters unlike those of the model.*'precision'",
        ),
    ],
)
def test_settings_without_effect_or_sense_are_refused(settings, message, monkeypatch):
    monkeypatch.setattr(bmsvm.models.theta, "GRID_BYTES", 2**18)
    with pytest.raises(ValueError, match=message):
        prepare(X, Y, **{"lengthscale": "sample", **settings})


def test_narrow_bounds_off_the_grid_have_a_start_inside():
    problem = prepare(X, Y, lengthscale=Sampled(grid="off", bounds=(1.0, 1.01)))
    start = problem.kernel_values(problem.first_kernel())["lengthscale"]
    assert 1.0 < float(start) < 1.01


def test_masked_designs_do_not_depend_on_the_faster_svd(monkeypatch):
    """LAPACK's gesdd fails on some of them: 214 rows of glass at theta = 0.61."""

    def fails(*args, **kwargs):
        raise np.linalg.LinAlgError("SVD did not converge")

    def designs():
        made = masked_design(factorize(gram(Gaussian().at(1.0), X)), Y, 3)
        return (made.basis * np.sqrt(made.eigenvalues)[:, None]) @ np.swapaxes(made.rotation, 1, 2)

    usual = designs()
    monkeypatch.setattr(np.linalg, "svd", fails)
    np.testing.assert_allclose(designs(), usual, atol=1e-12)


def test_a_prepared_problem_says_whether_theta_is_sampled():
    fixed, sampled = prepare(X, Y, lengthscale=1.0), problem_of("sum_to_zero", "hinge", "grid")
    default, also = BMSVMGibbs(), BMSVMGibbs(lengthscale="sample")
    for problem, kernel in ((fixed, default), (sampled, default), (sampled, also)):
        assert kernel.prepare(problem) is problem
        state = kernel.init(jax.random.key(0), 1, None, (problem,), {})
        assert ("lengthscale" in state.z) == problem.samples_kernel


def test_parameters_at_which_a_gram_matrix_is_indefinite_are_not_accepted():
    """``K + a 11'`` is positive semi-definite if ``a >= -1/(1' K^-1 1)``, whatever its prior."""
    kernel = Parametric(
        lambda p: lambda a, b: Gaussian().traced(2.0)(a, b) + p["a"], {"a": dist.Normal()}, every=1
    )
    run = run_chains(
        BMSVMGibbs(kernel, sampler="gibbs"), jax.random.key(0), X, Y, num_warmup=50, num_samples=200
    )
    lowest = -1 / np.linalg.inv(bmsvm.kernels.gram(Gaussian().at(2.0), X)).sum()
    assert lowest * (1 + 1e-6) < run.samples["a"].min() < 0 < run.samples["a"].std()
