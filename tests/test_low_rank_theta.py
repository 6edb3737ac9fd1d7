"""Theta sampled on a grid whose Gram matrices are of low rank."""

import functools
import sys

import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from few_draws import few_draws

from bmsvm import HMC, BMSVMClassifier, Fourier, Nystrom, Sampled, load, prepare, save
from bmsvm.kernels import Gaussian, gram
from bmsvm.models.couplings import class_vector

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(5, 2)), np.array([0, 1, 2, 1, 0])
GRID = np.geomspace(0.4, 6.0, 4)
FINE = np.geomspace(0.7, 1.4, 4)


def on_grid(how, rows=X, labels=Y, **settings):
    return prepare(
        rows, labels, lengthscale=Sampled(**{"grid": GRID, **settings}),
        hyperparameters=oracle.LIVELY, approximation=how,
    )  # fmt: skip


@pytest.mark.parametrize("how", [Nystrom(rank=8), Fourier(rank=8)], ids=str)
def test_a_value_of_the_grid_is_the_problem_prepared_at_it(how):
    rows, labels = RNG.normal(size=(30, 2)), np.arange(30) % 3
    problem = on_grid(how, rows=rows, labels=labels)
    for number, theta in enumerate(GRID):
        here = problem.at(number)
        alone = prepare(rows, labels, lengthscale=theta, approximation=how)
        ours, theirs = (
            (each.factor.basis * each.factor.eigenvalues) @ each.factor.basis.T
            for each in (here, alone)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        if isinstance(how, Nystrom):
            function, points = Gaussian().at(theta), np.asarray(here.basis_map.points)
            inner = gram(function, points) + 1e-12 * np.eye(8)
            inside = gram(function, rows, points) @ np.linalg.solve(
                inner, gram(function, points, rows)
            )
            np.testing.assert_allclose(here.remainder, 1 - np.diag(inside), atol=1e-6)


def exact_draws(problem, size=10_000):
    """Joint draws of theta and the rest, by rejection from the prior."""
    weight = GRID / GRID.sum()  # the prior is uniform, its cells even in log theta

    def prior_kernels(rng, count):
        return jnp.asarray(rng.choice(GRID.size, count, p=weight))

    return oracle.rejection_draws(np.random.default_rng(5), size, problem, prior_kernels, 1 << 15)


@pytest.mark.parametrize(
    "how", [Nystrom(rank=3), pytest.param(Fourier(rank=4), marks=pytest.mark.long)], ids=str
)
def test_sweeps_with_theta_leave_exact_draws_where_they_are(how):
    """Moments of exact posterior draws do not drift, theta among them. False alarm: 1e-4."""
    problem = on_grid(how)
    before = exact_draws(problem)
    algorithm = HMC().algorithm(problem)
    after, _ = oracle.after_sweeps(algorithm, problem, before, sweeps=2, seed=7)
    assert np.mean(np.asarray(after.kernel) != np.asarray(before.kernel)) > 0.3
    z = oracle.drift(problem, before, after, rows=(0, 1))
    assert oracle.largest(z) < oracle.threshold(1e-4, z.size)


@functools.cache
def fitted():
    """Of few rows: the scores of many determine theta, which then hardly moves."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2))
    noisy = rows + rng.normal(size=rows.shape)
    labels = (np.sin(2 * noisy[:, 0]) > 0).astype(int) + (noisy[:, 1] > 0.5)
    with few_draws():
        return BMSVMClassifier(
            lengthscale=Sampled(grid=FINE), approximation=Nystrom(rank=12), num_chains=2,
            num_warmup=30, num_samples=30, random_state=0,
        ).fit(rows, labels)  # fmt: skip


def test_the_classifier_samples_theta_with_low_rank():
    fit = fitted()
    drawn = fit.run_.samples["lengthscale"]
    assert np.isin(drawn.ravel().round(6), FINE.round(6)).all()
    assert len(np.unique(drawn)) > 1
    assert FINE[0] <= fit.lengthscale_ <= FINE[-1]
    np.testing.assert_allclose(fit.predict_proba(RNG.normal(size=(20, 2))).sum(1), 1.0)


def test_every_draw_predicts_with_the_basis_of_its_theta():
    fit, new = fitted(), RNG.normal(size=(7, 2))
    posterior = fit.posterior_
    rows = fit.standardized_rows(new)
    thetas = posterior.flat("lengthscale")
    weights, intercept = posterior.flat("weights"), posterior.flat("intercept")
    expected = []
    for draw, theta in enumerate(thetas):
        number = int(np.abs(FINE - theta).argmin())
        basis_map = posterior.problem.at(number).basis_map
        columns = basis_map(rows, Gaussian().at(theta)) @ weights[draw]
        expected.append(class_vector(columns, "sum_to_zero") + intercept[draw])
    parts = posterior.evaluate(rows, probabilities=False, remainder=False)
    found = np.concatenate([part.functions for part in parts])
    np.testing.assert_allclose(found, np.moveaxis(expected, 0, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.few_draws
def test_saved_and_continued(tmp_path):
    fit, new = fitted(), RNG.normal(size=(20, 2))
    save(fit, tmp_path / "model.bmsvm")
    again = load(tmp_path / "model.bmsvm")
    np.testing.assert_array_equal(again.predict_proba(new), fit.predict_proba(new))
    assert again.fit_more(5).run_.num_samples == 35


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": None}, "sampled on a given grid"),
        ({"grid": "off"}, "sampled on a given grid"),
        ({"grid": "off", "per_feature": True}, "sampled on a given grid"),
        ({"grid": np.geomspace(1, 2, 100)}, "100 bases of 5 rows and 3 columns"),
    ],
)
def test_bad_settings_are_named(settings, message, monkeypatch):
    monkeypatch.setattr(sys.modules[prepare.__module__], "GRID_BYTES", 2**12)
    with pytest.raises(ValueError, match=message):
        on_grid(Nystrom(rank=3), **settings)
