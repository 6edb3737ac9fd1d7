"""The posterior of the squared likelihood as a table, against integration by brute force.

The brute force writes out the covariance of the codes, and sums over a fine grid of
(log sigma2, log tau) with SciPy's densities.
"""

import functools
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.special
import scipy.stats

from bmsvm import (
    HMC,
    BMSVMGibbs,
    Gibbs,
    Nystrom,
    Posterior,
    Sampled,
    Table,
    prepare,
    run_chains,
)
from bmsvm.inference.blocks import exact_scores
from bmsvm.inference.sweep import block_sweep
from bmsvm.inference.table import PosteriorTable
from bmsvm.models import Position, log_joint, squared
from bmsvm.models.couplings import contrast
from bmsvm.models.likelihoods import (
    class_codes,
    class_probabilities,
    log_likelihood_given_functions,
    probabilities_by_class,
    probabilities_given_functions,
    squared_scale,
)
from bmsvm.models.quadrature import normal_points
from bmsvm.prediction.leave_one_out_of_table import (
    held_out_draws_of_table,
    leave_one_out_of_table,
)

LABELS = np.array([0, 1, 2, 2, 0, 1, 0])
ROWS = np.random.default_rng(3).normal(size=(len(LABELS), 2)) + LABELS[:, None]
THETAS = np.array([0.5, 1.5, 4.5])
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 0.0, 3.0, 1.0])
MANY = np.linspace(0.5, 2.0, len(LABELS))
HYPER = oracle.LIVELY
FALSE_ALARM = 1e-5  # of each test of draws


@functools.cache
def problem_of(lengthscale=1.5, weights=None, spare_rows=0):
    grid = Sampled(grid=THETAS) if lengthscale == "grid" else lengthscale
    with jax.enable_x64(True):
        return prepare(
            ROWS,
            LABELS,
            lengthscale=grid,
            likelihood="squared",
            hyperparameters=HYPER,
            row_weights=weights,
            spare_rows=spare_rows,
        )


class Brute(NamedTuple):
    """Posterior of theta (G,); mean and deviation of log sigma2 and log tau; of f, shape (n, c)."""

    theta: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    functions: np.ndarray
    variance: np.ndarray


@functools.cache
def brute_force(lengthscale=1.5, weights=None):
    thetas = THETAS if lengthscale == "grid" else np.array([lengthscale])
    log_prior = np.log(thetas)  # uniform, on a log grid
    w = np.ones(len(LABELS)) if weights is None else np.array(weights)
    known = w > 0
    targets = np.where(LABELS[:, None] == np.arange(3), 1.0, -0.5)
    # Two columns of the contrast, and the third is minus their sum in some other basis.
    columns = targets @ np.linalg.svd(np.eye(3) - 1 / 3)[0][:, :2]
    back = np.linalg.svd(np.eye(3) - 1 / 3)[0][:, :2].T
    u, v = (each.ravel() for each in np.meshgrid(np.linspace(-6, 5, 45), np.linspace(-8, 6, 57)))
    sigma2, tau = np.exp(u), np.exp(v)
    hyperprior = (
        scipy.stats.invgamma.logpdf(sigma2, HYPER.noise_shape / 2, scale=HYPER.noise_rate / 2)
        + scipy.stats.gamma.logpdf(tau, HYPER.precision_shape / 2, scale=2 / HYPER.precision_rate)
        + u
        + v
    )
    logs, means, variances, where = [], [], [], []
    for number, theta in enumerate(thetas):
        gram = np.exp(-np.sum((ROWS[:, None] - ROWS) ** 2, axis=-1) / (2 * theta**2))
        prior = sigma2[:, None, None] * (gram / tau[:, None, None] + 1 / HYPER.intercept_precision)
        noise = sigma2[:, None] + 0.0625 / w[known]
        seen = prior[:, known][:, :, known] + noise[:, :, None] * np.eye(known.sum())
        inverse = np.linalg.inv(seen)
        quadratic = np.einsum("ik,mij,jk->m", columns[known], inverse, columns[known])
        evidence = -0.5 * quadratic - np.linalg.slogdet(seen)[1]  # of two columns
        logs.append(evidence + hyperprior + log_prior[number])
        where.append([np.full(len(u), number), u, v])
        gain = prior[:, :, known] @ inverse
        means.append(gain @ columns[known] @ back)
        reduced = prior - gain @ prior[:, known]
        variances.append(np.diagonal(reduced, axis1=1, axis2=2))
    logs, means, variances = (np.concatenate(each) for each in (logs, means, variances))
    p = scipy.special.softmax(logs)
    number, *both = np.concatenate(where, axis=1)
    both = np.array(both)
    mean = both @ p
    deviation = np.sqrt(both**2 @ p - mean**2)
    functions = np.einsum("m,mnc->nc", p, means)
    spread = np.einsum("m,mnc->nc", p, np.square(means)) - functions**2
    # A class function has 2/3 of the variance of a column: the diagonal of I - 11'/3.
    variance = spread + 2 / 3 * (p @ variances)[:, None]
    return Brute(np.bincount(number.astype(int), p), mean, deviation, functions, variance)


def logs_of(table):
    """Mean and deviation of log sigma2 and log tau over a table."""
    p = table.cells.probabilities
    both = np.log([table.cells.noise_variance, table.cells.precision])
    mean = both @ p
    return mean, np.sqrt(both**2 @ p - mean**2)


def from_table(table):
    """The same from a table, with no draws."""
    p = table.cells.probabilities
    n = len(LABELS)
    functions, squares = np.zeros((n, 3)), np.zeros((n, 3))
    for places, rows, moments in table.by_moments(np.arange(len(p))):
        for place in places:
            cell = table.cell(place, moments)
            found, variance = squared.functions_at(rows.design(slice(0, n)), moments, cell)
            found = found @ contrast(3).T
            functions += p[place] * found
            squares += p[place] * (found**2 + 2 / 3 * variance[:, None])
    return Brute(
        np.bincount(table.cells.theta, p, len(table.rows)),
        *logs_of(table),
        functions,
        squares - functions**2,
    )


CASES = [(1.5, None), ("grid", None), (1.5, tuple(WEIGHTS)), ("grid", tuple(MANY))]


@pytest.mark.parametrize(("lengthscale", "weights"), CASES, ids=str)
def test_the_table_is_the_posterior_by_brute_force(lengthscale, weights):
    expected = brute_force(lengthscale, weights)
    table = PosteriorTable(problem_of(lengthscale, weights), step=1.0, origin=(0.3, 0.6))
    found = from_table(table)
    np.testing.assert_allclose(found.theta, expected.theta, atol=2e-4)
    np.testing.assert_allclose(found.mean, expected.mean, atol=2e-3)
    np.testing.assert_allclose(found.deviation, expected.deviation, rtol=2e-3)
    np.testing.assert_allclose(found.functions, expected.functions, atol=1e-3)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=3e-3)


@pytest.mark.parametrize("hyperparameters", [HYPER, None])
def test_a_finer_lattice_changes_nothing(hyperparameters):
    """Moments are those of a lattice four times as fine, to 1e-3 of a deviation."""
    problem = problem_of()
    if hyperparameters is None:
        with jax.enable_x64(True):
            problem = prepare(ROWS, LABELS, lengthscale=1.5, likelihood="squared")
    mean, deviation = logs_of(PosteriorTable(problem, step=0.25 / 4))
    for step in (0.25, 1.0):
        found = logs_of(PosteriorTable(problem, step=step, origin=(0.7, 0.2)))
        assert np.all(np.abs(found[0] - mean) < 1e-3 * deviation)
        assert np.all(np.abs(found[1] - deviation) < 1e-3 * deviation)


def test_rows_of_equal_weights_are_those_of_the_general_case():
    """One eigendecomposition for all x, and one for each of them."""
    problem = problem_of("grid")
    nearly = replace(problem, row_weights=jnp.asarray(1 + 1e-9 * np.arange(len(LABELS))))
    one, other = (PosteriorTable(each, step=1.0) for each in (problem, nearly))
    assert one.rows[0].even
    assert not other.rows[0].even
    for a, b in zip(from_table(one), from_table(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-5)


def test_many_different_weights_are_those_of_groups(monkeypatch):
    problem = problem_of(1.5, tuple(MANY))
    grouped = from_table(PosteriorTable(problem, step=1.0))
    monkeypatch.setattr("bmsvm.models.regression.GROUPS", 2)
    for a, b in zip(grouped, from_table(PosteriorTable(problem, step=1.0)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)


def test_unequal_weights_need_few_decompositions(monkeypatch):
    """Each of them takes as long as all that a fit of equal weights needs."""
    made, decomposed = [], squared.moments_of_sums

    def counted(*args):
        made.append(1)
        return decomposed(*args)

    monkeypatch.setattr("bmsvm.models.squared.moments_of_sums", counted)
    problem = problem_of(1.5, tuple(MANY))
    run_chains(BMSVMGibbs(), jax.random.key(0), problem, num_samples=50)
    assert 15 < len(made) < 40


@pytest.mark.parametrize("origin", [(0.0, 0.0), (0.3, 0.6), (0.8, 0.1)], ids=str)
def test_a_wide_lattice_integrates_as_well_as_a_fine_one(monkeypatch, origin):
    """The trapezoidal rule at points a standard deviation apart, wherever they begin."""
    problem = problem_of(1.5, tuple(MANY))
    wide = from_table(PosteriorTable(problem, origin=origin))
    monkeypatch.setattr("bmsvm.inference.table.WIDE_STEP", 0.25)
    for a, b in zip(wide, from_table(PosteriorTable(problem)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_spare_rows_change_nothing():
    plain, spare = (
        from_table(PosteriorTable(problem_of("grid", None, count), step=1.0)) for count in (0, 9)
    )
    for a, b in zip(plain, spare, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


# Draws ---------------------------------------------------------------------------------------


def drawn(problem, size, seed=0, **options):
    table = PosteriorTable(problem, origin=(0.4, 0.9))
    keys = np.tile([[seed, 7]], (size, 1))
    return table, table.draw(keys, np.arange(size), **options)


@pytest.mark.parametrize(("lengthscale", "weights"), [CASES[1], CASES[2]], ids=str)
def test_draws_have_the_moments_of_brute_force(lengthscale, weights):
    """Means and squares of log sigma2, log tau and f; and of the scores given f.

    False alarm: 1e-5.
    """
    problem, size = problem_of(lengthscale, weights), 4000
    expected = brute_force(lengthscale, weights)
    table, draws = drawn(problem, size)
    logs = np.log(np.stack([draws["noise_variance"], draws["precision"]], axis=1))
    theta = (
        np.zeros(size, int)
        if lengthscale != "grid"
        else np.searchsorted(THETAS, draws["lengthscale"] - 1e-6)
    )
    designs = [rows.design(slice(None)) for rows in table.rows]
    functions = np.stack(
        [
            b + designs[g] @ v[: designs[g].shape[1]] @ contrast(3).T
            for g, b, v in zip(theta, draws["intercept"], draws["weights"], strict=True)
        ]
    )
    flat = functions.reshape(size, -1)
    values = np.concatenate([logs, flat, (flat - expected.functions.ravel()) ** 2], axis=1)
    means = np.concatenate([expected.mean, expected.functions.ravel(), expected.variance.ravel()])
    z = (values.mean(0) - means) / (values.std(0) / np.sqrt(size))
    w = np.ones(len(LABELS)) if weights is None else np.array(weights)
    sigma2 = draws["noise_variance"][:, None, None]
    share = sigma2 / (sigma2 + 0.0625 / np.maximum(w, 1e-300)[:, None])
    codes = np.where(LABELS[:, None] == np.arange(3), 1.0, -0.5)
    rest = (draws["scores"] - functions - share * (codes - functions)) / np.sqrt(
        2 / 3 * sigma2 * (1 - share)
    )
    white = rest.reshape(size, -1)
    more = np.concatenate([white, white**2 - 1], axis=1)
    z = np.append(z, more.mean(0) / (more.std(0) / np.sqrt(size)))
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


def test_a_draw_depends_on_its_key_and_number_only():
    problem = problem_of("grid")
    _, together = drawn(problem, 20)
    table, _ = drawn(problem, 1)
    alone = table.draw(np.array([[0, 7]]), np.array([11]), scores=False)
    for name, value in alone.items():
        np.testing.assert_array_equal(value[0], together[name][11])
    other = table.draw(np.array([[1, 7]]), np.array([11]))
    assert not np.array_equal(other["weights"][0], together["weights"][11])


def as_positions(draws, problem):
    """Draws of a table as positions of the chains."""
    to_columns = contrast(problem.n_classes)
    return jax.tree.map(
        jnp.asarray,
        Position(
            draws["scores"] @ to_columns,
            draws["intercept"] @ to_columns,
            draws["weights"],
            draws["noise_variance"],
            draws["precision"],
        ),
    )


@pytest.mark.parametrize("sampler", [Gibbs(), HMC()], ids=str)
def test_the_chains_leave_the_draws_of_the_table_invariant(sampler):
    """Three sweeps change no first or second moment. False alarm: 1e-5."""
    problem = problem_of(1.5, tuple(WEIGHTS))
    with jax.enable_x64(True):
        _, draws = drawn(problem, 6000)
        before = as_positions(draws, problem)
        after, _ = oracle.after_sweeps(
            sampler.algorithm(problem), problem, before, sweeps=3, seed=5
        )
        z = oracle.drift(problem, before, after)
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
def test_the_exact_scores_have_the_slope_of_the_joint_density(coupling):
    """Scores are normal: slopes over roots of curvatures are standard normal at draws of them.

    With ``independent`` of the class that is drawn last. False alarm: 1e-5.
    """
    labels = np.array([0, 1, 2, 0])
    with jax.enable_x64(True):
        problem = prepare(
            ROWS[:4],
            labels,
            lengthscale=1.5,
            likelihood="squared",
            coupling=coupling,
            hyperparameters=HYPER,
            row_weights=[1.0, 0.4, 2.0, 1.0],
        )
        sweep = block_sweep((exact_scores(),))
        start = sweep.init(jax.random.key(0), {}, problem)

        def at(columns):
            return log_joint(start.position._replace(columns=columns), problem)

        def white(key):
            state, info = sweep.step(key, start, problem, oracle.PAST_WARM_UP)
            columns = state.position.columns
            slope = jax.grad(at)(columns).ravel()
            curvature = jnp.diag(jax.hessian(at)(columns).reshape(slope.size, -1))
            return slope / jnp.sqrt(-curvature), info["accept_prob"]

        keys = jax.random.split(jax.random.key(1), 5000)
        found, accepted = oracle.quick_jit(jax.vmap(white))(keys)
    assert np.all(np.asarray(accepted) == 1)
    found = np.asarray(found).reshape(len(found), 4, -1)
    if coupling == "independent":
        found = found[:, labels != 2, -1:]
    found = found.reshape(len(found), -1)
    values = np.concatenate([found, found**2 - 1], axis=1)
    z = values.mean(0) / (values.std(0) / np.sqrt(len(values)))
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


# Probabilities -------------------------------------------------------------------------------


def test_probabilities_given_functions_are_shares_of_the_density_of_the_codes():
    rng = np.random.default_rng(0)
    functions = rng.normal(size=(5, 4))
    functions -= functions.mean(axis=1, keepdims=True)
    sigma2 = 0.3
    with jax.enable_x64(True):
        found = np.stack(
            probabilities_given_functions(list(jnp.asarray(functions).T), (), sigma2, "squared"),
            axis=-1,
        )
        given_scores = class_probabilities(jnp.asarray(functions), "squared")
    for variance, probabilities in ((sigma2 + 1 / 36, found), (1 / 36, given_scores)):
        distance = np.sum((functions[:, None] - class_codes(4)) ** 2, axis=-1)
        expected = scipy.special.softmax(-distance / (2 * variance), axis=1)
        np.testing.assert_allclose(probabilities, expected, rtol=1e-10)


def test_the_likelihood_given_functions_is_an_integral_over_the_scores():
    """Against a product of Gauss-Hermite rules in the plane of the scores."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    pairs = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    share = np.outer(weights, weights).ravel() / (2 * np.pi)
    rng, sigma2 = np.random.default_rng(1), 0.2
    functions = rng.normal(size=(4, 2)) @ contrast(3).T
    labels, w = np.array([0, 2, 1, 1]), np.array([1.0, 0.3, 2.0, 0.0])
    with jax.enable_x64(True):
        found = log_likelihood_given_functions(
            jnp.asarray(functions), jnp.zeros((1, 3)), sigma2, jnp.asarray(labels), "squared", w
        )
    for i in range(4):
        scores = functions[i] + np.sqrt(sigma2) * pairs @ contrast(3).T
        distance = np.sum((scores - class_codes(3)[labels[i]]) ** 2, axis=1)
        expected = np.log(share @ np.exp(-w[i] * distance / (2 * squared_scale(3) ** 2)))
        assert found[i] == pytest.approx(expected, abs=1e-6)


def test_an_unknown_likelihood_has_no_probabilities():
    with pytest.raises(ValueError, match=r"^likelihood must be one of .*'squared'; got 'cubed'"):
        probabilities_by_class([jnp.zeros(2), jnp.zeros(2)], "cubed")


# Leave-one-out -------------------------------------------------------------------------------


@pytest.mark.parametrize(("lengthscale", "weights"), [CASES[1], CASES[2]], ids=str)
def test_leave_one_out_is_what_fits_without_the_label_predict(lengthscale, weights):
    """A fit without the label of a row, for each row; its table is another."""
    problem = problem_of(lengthscale, weights)
    found = leave_one_out_of_table(problem, np.arange(problem.n_rows), num_nodes=64)
    assert np.all(found.pareto_k == 0)
    nodes = normal_points(64, 2, seed=0)
    whole = np.ones(len(LABELS)) if weights is None else np.array(weights)
    for row in range(len(LABELS)):
        without = whole.copy()
        without[row] = 0.0
        table = PosteriorTable(replace(problem, row_weights=jnp.asarray(without)), step=1.0)
        p = table.cells.probabilities
        expected = np.zeros(3)
        for places, rows, moments in table.by_moments(np.arange(len(p))):
            for place in places:
                cell = table.cell(place, moments)
                mean, variance = squared.functions_at(rows.design([row]), moments, cell)
                around = (mean + np.sqrt(variance) * nodes) @ contrast(3).T
                slope = 1.5 / (table.cells.noise_variance[place] + 0.0625)
                expected += p[place] * scipy.special.softmax(slope * around, axis=1).mean(0)
        np.testing.assert_allclose(found.probabilities[row], expected, atol=2e-4)
        assert found.log_score[row] == pytest.approx(np.log(expected[LABELS[row]]), abs=1e-3)


@pytest.mark.parametrize(("lengthscale", "weights"), [CASES[1], CASES[2]], ids=str)
def test_held_out_draws_have_the_integrated_probabilities_as_their_mean(lengthscale, weights):
    """Within Monte Carlo error, and 0.002 for the points of the integral."""
    problem = problem_of(lengthscale, weights)
    chosen = np.array([6, 0, 3, 4])
    integrated = leave_one_out_of_table(problem, chosen, num_nodes=256).probabilities
    draws = held_out_draws_of_table(problem, chosen, seed=0, num_draws=4000)
    assert draws.probabilities.shape == (4, 3, 4000)
    np.testing.assert_allclose(draws.probabilities.sum(1), 1)
    np.testing.assert_allclose(draws.weights.sum(1), 1)
    assert np.all(draws.pareto_k == 0)
    mean = np.einsum("ncs,ns->nc", draws.probabilities, draws.weights)
    error = draws.probabilities.std(axis=-1) / np.sqrt(4000)
    bound = oracle.threshold(FALSE_ALARM, mean.size)
    assert np.all(np.abs(mean - integrated) < bound * error + 0.002)


# Low rank ------------------------------------------------------------------------------------


def low_rank_problem(rows, labels, rank, **settings):
    with jax.enable_x64(True):
        return prepare(
            rows,
            labels,
            lengthscale=1.5,
            likelihood="squared",
            hyperparameters=HYPER,
            approximation=Nystrom(rank=rank),
            **settings,
        )


@pytest.mark.parametrize("weights", [None, tuple(WEIGHTS)])
def test_a_complete_basis_is_the_exact_factor(weights):
    """Evidence, moments of the functions and leave-one-out."""
    low = low_rank_problem(ROWS, LABELS, len(LABELS), row_weights=weights)
    exact = problem_of(1.5, weights)
    one, other = (PosteriorTable(each, step=1.0) for each in (low, exact))
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-5)
    for a, b in zip(from_table(one), from_table(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    left, right = (leave_one_out_of_table(each, np.arange(each.n_rows)) for each in (low, exact))
    np.testing.assert_allclose(left.probabilities, right.probabilities, atol=1e-4)


def test_what_a_basis_leaves_is_noise_of_the_mean_row():
    """The same as a Gram matrix of low rank with its mean remainder on the diagonal."""
    low = low_rank_problem(ROWS, LABELS, 3)
    table = PosteriorTable(low, step=1.0)
    basis, eigenvalues = (np.asarray(part) for part in low.factor)
    left = float(np.mean(low.remainder))
    assert left > 0.01
    codes = squared.code_columns(LABELS, 3)
    for place in np.argsort(table.cells.probabilities)[-3:]:
        sigma2, tau = table.cells.noise_variance[place], table.cells.precision[place]
        gram = basis * eigenvalues @ basis.T + left * np.eye(len(LABELS))
        covariance = sigma2 * (gram / tau + 1 / HYPER.intercept_precision)
        covariance += (sigma2 + 0.0625) * np.eye(len(LABELS))
        ((_, _, moments),) = table.by_moments(np.array([place]))
        found = squared.log_evidence(table.cell(place, moments), 2) - len(LABELS) * np.log(
            2 * np.pi
        )
        density = scipy.stats.multivariate_normal(cov=covariance).logpdf(codes.T).sum()
        assert found == pytest.approx(density, abs=1e-6)
    draws = table.draw(np.zeros((5, 2), int), np.arange(5), scores=False)
    assert draws["weights"].shape == (5, 3, 2)


@pytest.mark.slow
def test_a_hundred_thousand_rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=100_000)
    rows = rng.normal(size=(len(labels), 3)) + 2.5 * np.eye(3)[labels]
    problem = low_rank_problem(rows, labels, 64)
    run = run_chains(BMSVMGibbs(), jax.random.key(0), problem, num_samples=50)
    assert run.samples["weights"].shape == (4, 50, 64, 2)
    assert "scores" not in run.samples
    posterior = Posterior(run.samples, problem, rows, "gaussian", 1.5)
    guess = posterior.probabilities(rows[:500]).argmax(axis=1)
    assert np.mean(guess == labels[:500]) > 0.8
    assert posterior.leave_one_out(num_nodes=16).probabilities.shape == (2000, 3)


# The driver ----------------------------------------------------------------------------------


def run_of(problem, num_samples=60, **options):
    with jax.enable_x64(True):
        return run_chains(
            BMSVMGibbs(), jax.random.key(3), problem, num_samples=num_samples, **options
        )


def test_longer_runs_begin_with_the_draws_of_shorter_ones(tmp_path):
    problem = problem_of("grid")
    whole, part = run_of(problem, 90), run_of(problem, 30)
    assert whole.samples["scores"].shape == (4, 90, len(LABELS), 3)
    assert int(whole.state.n_warmup) == 0
    with jax.enable_x64(True):
        longer = part.more(60)
    stored = run_of(problem, 90, store=tmp_path / "draws")
    again = run_of(problem, 90, store=tmp_path / "draws")
    for name, value in whole.samples.items():
        for other in (longer, stored, again):
            np.testing.assert_array_equal(other.samples[name], value)
    thinned = run_of(problem, 30, thinning=3)
    np.testing.assert_array_equal(thinned.samples["weights"], whole.samples["weights"][:, 2::3])


def test_chains_are_independent():
    draws = run_of(problem_of()).samples
    assert len(np.unique(draws["intercept"])) == draws["intercept"].size
    some = run_of(problem_of(), collect=("precision", "accept_prob")).samples
    assert set(some) == {"precision", "accept_prob"}
    np.testing.assert_array_equal(some["precision"], draws["precision"])


def test_an_interruption_keeps_finished_draws(monkeypatch):
    problem, calls = problem_of(), []
    whole = PosteriorTable.draw

    def interrupted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(PosteriorTable, "draw", interrupted)
    with pytest.warns(UserWarning, match="interrupted: 50 of 60"):
        run = run_of(problem)
    assert run.interrupted
    with jax.enable_x64(True):
        run = run.more(10)
    np.testing.assert_array_equal(run.samples["weights"], run_of(problem).samples["weights"])


def test_what_a_table_cannot_do_is_said():
    table = BMSVMGibbs(sampler=Table())
    with jax.enable_x64(True):
        other = prepare(ROWS, LABELS, lengthscale=1.5)
        apart = prepare(ROWS, LABELS, lengthscale=1.5, likelihood="squared", coupling="independent")
        off = prepare(ROWS, LABELS, lengthscale=Sampled(grid="off"), likelihood="squared")
    for problem, value in ((other, "normalized"), (apart, "independent"), (off, "off it")):
        with pytest.raises(ValueError, match=f'^sampler="table" needs .*{value}'):
            run_chains(table, jax.random.key(0), problem)
    with pytest.raises(ValueError, match=r"^init_params must be None"):
        run_of(problem_of(), init_params={"precision": np.ones(4)})
    with pytest.raises(ValueError, match=r"is no Markov chain"):
        table.algorithm(problem_of())
    assert BMSVMGibbs().algorithm(problem_of()).name == "hamiltonian"
    for problem in (apart, off):
        assert BMSVMGibbs().sampler_of(problem) == HMC()
    nobody = replace(problem_of(), row_weights=jnp.zeros(len(LABELS)))
    with pytest.raises(ValueError, match="positive weight"):
        PosteriorTable(nobody)
