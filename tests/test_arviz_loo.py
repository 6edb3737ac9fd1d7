"""Leave-one-out by ArviZ, of both versions, against exact leave-one-out."""

from dataclasses import replace

import arviz as az
import jax
import numpy as np
import oracle
import pytest
import scipy.special
import scipy.stats
from few_draws import few_draws
from numpyro.infer import MCMC

import bmsvm.arviz
import bmsvm.prediction.training_rows
from bmsvm import BMSVMClassifier, BMSVMGibbs, Hyperparameters, Nystrom, Posterior, Sampled, prepare
from bmsvm.arviz import to_arviz
from bmsvm.datasets import load_wine
from bmsvm.models.couplings import contrast
from reproduction.simulate import likelihood_of_rows

ARVIZ_1 = int(az.__version__.split(".")[0]) >= 1
FEW = Hyperparameters(noise_shape=6.0, noise_rate=2.0, precision_shape=4.0, precision_rate=4.0)


def loo(data):
    """Log scores and Pareto's k of the rows."""
    found = az.loo(data, pointwise=True)
    scores = found.elpd_i if ARVIZ_1 else found.loo_i
    return np.asarray(scores), np.asarray(found.pareto_k)


def small(n=14):
    labels = np.arange(n) % 3
    rows = np.random.default_rng(3).normal(size=(n, 2)) + 1.2 * np.eye(3)[labels, :2]
    return rows, labels


def exact_squared(rows, labels, theta, weights):
    """Log of p(code_i | other codes) under the pseudo-likelihood, by sums over a fine lattice."""
    c, n = 3, len(labels)
    s2 = (0.5 / (c - 1)) ** 2
    codes = ((c * np.eye(c) - 1) / (c - 1))[labels]
    gram = np.exp(-((rows[:, None] - rows) ** 2).sum(-1) / (2 * theta**2))
    log_s, log_t = np.meshgrid(np.linspace(-7, 3, 81), np.linspace(-8, 6, 81), indexing="ij")
    sigma2, tau = np.exp(log_s).ravel(), np.exp(log_t).ravel()
    prior = scipy.stats.invgamma(FEW.noise_shape / 2, scale=FEW.noise_rate / 2).logpdf(sigma2)
    prior += scipy.stats.gamma(FEW.precision_shape / 2, scale=2 / FEW.precision_rate).logpdf(tau)
    prior += np.log(sigma2) + np.log(tau)
    eta = FEW.intercept_precision
    cover = sigma2[:, None, None] * (np.eye(n) + 1 / eta + gram / tau[:, None, None])
    cover = cover + np.diag(s2 / weights)

    def log_evidence(kept):
        """Of the codes of some rows, in k = 2 independent columns."""
        part = cover[:, kept][:, :, kept]
        solved = np.linalg.solve(part, np.broadcast_to(codes[kept], (len(part), kept.sum(), c)))
        square = np.sum(codes[kept] * solved, axis=(1, 2))
        half = -0.5 * (square + 2 * np.linalg.slogdet(2 * np.pi * part)[1])
        constant = np.sum(np.log(2 * np.pi * s2 / weights[kept]))  # exp(-w |z - code|^2 / 2 s^2)
        return scipy.special.logsumexp(half + prior) + constant

    whole = log_evidence(np.ones(n, bool))
    return np.array([whole - log_evidence(np.arange(n) != i) for i in range(n)])


@pytest.mark.parametrize("weighted", [False, True])
def test_squared_against_the_closed_form(weighted):
    """Relative errors of 8000 draws are below 0.025 for six seeds; the bound is twice that."""
    rows, labels = small()
    weights = 0.5 + (np.arange(len(labels)) % 4) / 2 if weighted else np.ones(len(labels))
    model = BMSVMClassifier(
        likelihood="squared", lengthscale=1.3, standardize=False, hyperparameters=FEW,
        num_chains=4, num_samples=2000, predictive="posterior", random_state=0,
    ).fit(rows, labels, sample_weight=weights)  # fmt: skip
    model.fit_more(2000 - model.run_.num_samples)  # fewer were enough for the classifier
    found, k = loo(to_arviz(model, posterior_predictive=False))
    expected = exact_squared(rows, labels, 1.3, weights)
    np.testing.assert_allclose(np.exp(found - expected), 1, atol=0.05)
    assert k.max() < 0.7


def test_chains_against_posteriors_without_the_row():
    """Both sides are Monte Carlo, of some thousands of draws: errors of about 0.02."""
    case = oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 2, 1, 0))
    problem = case.problem()
    mcmc = MCMC(
        BMSVMGibbs(), num_warmup=500, num_samples=2000, num_chains=4,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), problem)
    found, k = loo(to_arviz(mcmc))
    prior = oracle.prior_draws(np.random.default_rng(1), 1 << 18, problem)
    scores = prior.columns @ contrast(3).T
    labels = np.broadcast_to(case.labels, scores.shape[:2])
    each = likelihood_of_rows(scores, labels, "normalized")  # (s, n)
    for i in range(len(case.labels)):
        weight = each[:, np.arange(len(case.labels)) != i].prod(1)
        expected = np.sum(weight * each[:, i]) / weight.sum()
        assert np.exp(found[i]) == pytest.approx(expected, rel=0.08)
    assert k.max() < 0.7


@pytest.mark.slow
def test_paretos_k_is_small_on_wine():
    X, y = load_wine(return_X_y=True)
    model = BMSVMClassifier(random_state=0).fit(X, y)
    data = to_arviz(model, posterior_predictive=False)
    scores, k = loo(data)
    assert np.mean(k > 0.7) <= 0.05
    # The tails of phi, regressed on, do not change what leave-one-out says.
    own = model.posterior_.leave_one_out().log_score
    np.testing.assert_allclose(scores, own, atol=1e-3)
    wide = BMSVMClassifier(lengthscale=0.5, random_state=0).fit(X, y)  # rows nearly independent
    table = az.compare({"default": data, "short": to_arviz(wide, posterior_predictive=False)})
    assert table.index[0] == "default"
    gap = own.sum() - wide.posterior_.leave_one_out().log_score.sum()
    np.testing.assert_allclose(table["elpd_diff"].abs().max(), gap, rtol=0.02)


def test_a_kernel_for_each_draw_gives_what_a_fixed_one_gives():
    rows, labels = small()
    fixed = prepare(rows, labels, lengthscale=1.3)
    family = prepare(rows, labels, lengthscale=Sampled(grid="off"))
    random = np.random.default_rng(0)
    scores = random.normal(size=(2, 30, len(labels), 3))
    draws = {
        "scores": scores - scores.mean(-1, keepdims=True),
        "noise_variance": random.gamma(4, size=(2, 30)),
        "precision": random.gamma(4, size=(2, 30)),
    }
    with_theta = {**draws, "lengthscale": np.full((2, 30), 1.3)}
    expected = Posterior(draws, fixed, rows).log_likelihood()[0].log_likelihood
    found = Posterior(with_theta, family, rows).log_likelihood()[0].log_likelihood
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.fixture(scope="module")
def low_rank():
    rows, labels = small(60)
    with few_draws():
        return BMSVMClassifier(
            lengthscale=1.3, approximation=Nystrom(rank=12), num_warmup=30, num_samples=40,
            num_chains=2, random_state=0,
        ).fit(rows, labels)  # fmt: skip


@pytest.mark.filterwarnings("ignore:log_likelihood")
def test_large_log_likelihoods_have_fewer_draws_and_rows(low_rank, monkeypatch):
    whole = to_arviz(low_rank, posterior_predictive=False)["log_likelihood"]["y"]
    assert whole.shape == (2, 40, 60)
    thin = to_arviz(low_rank, posterior_predictive=False, thin=3)["log_likelihood"]["y"]
    assert thin["draw"].values.tolist() == list(range(0, 40, 3))
    monkeypatch.setattr(bmsvm.arviz, "MOST_LOG_LIKELIHOODS", 600)
    monkeypatch.setattr(bmsvm.arviz, "FEWEST_DRAWS", 4)
    monkeypatch.setattr(bmsvm.prediction.training_rows, "LOO_ROWS", 25)
    data = to_arviz(low_rank, posterior_predictive=False)["log_likelihood"]["y"]
    assert data.shape[:2] == (2, 5)
    assert 20 <= data.shape[2] <= 25  # spare rows may be among those that are chosen
    every = to_arviz(low_rank, posterior_predictive=False, thin=1)["log_likelihood"]["y"]
    np.testing.assert_allclose(every, whole.sel(row=every["row"]), rtol=1e-10)


def test_too_few_effective_draws_are_warned_of(low_rank, monkeypatch):
    monkeypatch.setattr(bmsvm.arviz, "FEWEST_EFFECTIVE", 79.999)
    with pytest.warns(UserWarning, match="fewer than 79.999 effective draws integrate"):
        to_arviz(low_rank, posterior_predictive=False)


def test_rows_of_other_chains_and_spare_rows_are_not_there():
    rows, labels = small()
    problem = prepare(rows, labels, lengthscale=1.3)
    draws = {
        "scores": np.zeros((1, 25, len(labels), 3)),
        "noise_variance": np.linspace(1, 2, 25)[None],
        "precision": np.ones((1, 25)),
    }
    spare = prepare(rows, labels, lengthscale=1.3, spare_rows=2)
    padded = {**draws, "scores": np.zeros((1, 25, len(labels) + 2, 3))}
    found = Posterior(padded, spare, rows).log_likelihood()[0].log_likelihood
    expected = Posterior(draws, problem, rows).log_likelihood()[0].log_likelihood
    np.testing.assert_allclose(found[:, : len(labels)], expected, atol=1e-7)
    np.testing.assert_allclose(found[:, len(labels) :], 0)
    without = replace(problem, likelihood="squared")
    assert Posterior(
        {name: draws[name] for name in ("noise_variance", "precision")}, without, rows
    ).log_likelihood()[0].log_likelihood.shape == (25, len(labels))
