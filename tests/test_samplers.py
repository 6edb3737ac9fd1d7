"""Samplers: their posteriors agree, their scores are valid, and tuning ends with warm-up."""

import functools

import arviz
import jax
import numpy as np
import oracle
import pytest
from numpyro.infer import MCMC

from bmsvm import (
    HMC,
    PAPER,
    BMSVMClassifier,
    BMSVMGibbs,
    Gibbs,
    Paper,
    Sampled,
    Table,
    prepare,
)
from bmsvm.inference import Blocks
from bmsvm.inference.blocks import collapsed_parameters, exact_scores, metropolis_scores, scale
from bmsvm.inference.samplers import as_sampler
from bmsvm.inference.sweep import block_sweep
from bmsvm.models import scores_of

N_CHAINS = 32
METROPOLIS = Blocks(sweep=(metropolis_scores(2.0), collapsed_parameters()))
SAMPLERS = {"metropolis": METROPOLIS, **oracle.SAMPLERS}


@functools.cache
def rows(n_classes, n):
    rng = np.random.default_rng(n_classes)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 2)) + 2.0 * rng.normal(size=(n_classes, 2))[y], y


def run(sampler):
    kernel = BMSVMGibbs(
        lengthscale=2.0, likelihood="hinge", hyperparameters=oracle.LIVELY, sampler=sampler
    )
    mcmc = MCMC(
        kernel,
        num_warmup=500,
        num_samples=500,
        num_chains=N_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(30), *rows(3, 12))
    return mcmc


@functools.cache
def posterior(sampler):
    """Posterior means with their standard errors, shape (m,); the file's main comparison."""
    draws = run(SAMPLERS[sampler]).get_samples(group_by_chain=True)
    logs = {name: np.log(draws[name]) for name in ("noise_variance", "precision")}
    sites = {**logs, "intercept": draws["intercept"], "scores": draws["scores"][:, :, :3]}
    data = arviz.from_dict({name: np.asarray(value) for name, value in sites.items()})
    error = arviz.mcse(data)
    flat = [
        (data.posterior[name].mean(("chain", "draw")).values.ravel(), error[name].values.ravel())
        for name in sites
    ]
    return tuple(np.concatenate(part) for part in zip(*flat, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("paper", "gibbs"),
        ("paper", "hmc"),
        ("gibbs", "hmc"),
        pytest.param("gibbs", "metropolis", marks=pytest.mark.long),
    ],
)
def test_two_samplers_have_one_posterior(one, other):
    """Means of log sigma2, log tau, intercept and scores agree within Monte Carlo error.

    False alarm: 1e-4 over all pairs.
    """
    (mean, error), (other_mean, other_error) = posterior(one), posterior(other)
    z = (mean - other_mean) / np.hypot(error, other_error)
    assert oracle.largest(z) < oracle.threshold(1e-4, 4 * z.size)


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_metropolis_accepts_sometimes(likelihood):
    """The paper's random walk neither rejects nor accepts everything."""
    problem = prepare(*rows(3, 12), lengthscale=1.0, likelihood=likelihood, hyperparameters=PAPER)
    start = oracle.prior_draws(np.random.default_rng(34), 50, problem)
    sweep = block_sweep((metropolis_scores(),))
    _, info = oracle.after_sweeps(sweep, problem, start, sweeps=20, seed=35)
    accept = np.asarray(info["accept_prob"])
    assert ((accept > 0) & (accept < 1)).all()


@pytest.mark.parametrize(
    ("n_classes", "coupling"),
    [
        (2, "independent"),
        (5, "sum_to_zero"),
        pytest.param(3, "sum_to_zero", marks=pytest.mark.long),
        pytest.param(4, "independent", marks=pytest.mark.long),
    ],
)
def test_exact_scores_stay_finite_and_sum_to_zero(n_classes, coupling):
    """Whatever the number of classes, draws are finite and the scores of a row sum to zero."""
    problem = prepare(
        *rows(n_classes, 15),
        lengthscale=1.0,
        coupling=coupling,
        likelihood="hinge",
        hyperparameters=PAPER,
    )
    start = oracle.prior_draws(np.random.default_rng(36), 50, problem)
    sweep = block_sweep((exact_scores(),))
    end, info = oracle.after_sweeps(sweep, problem, start, sweeps=50, seed=37)
    scores = np.asarray(jax.vmap(lambda columns: scores_of(columns, problem))(end.columns))
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores.sum(-1), 0, atol=1e-9)
    np.testing.assert_array_equal(info["accept_prob"], 1.0)


@pytest.mark.parametrize(
    "likelihood", [pytest.param("hinge", marks=pytest.mark.long), "normalized"]
)
def test_tuning_stands_still_after_warm_up(likelihood):
    """What was learned in warm-up stays the same afterwards, and something was learned."""
    grid = Sampled(grid=[1.0, 2.0])
    kernel = BMSVMGibbs(likelihood=likelihood, lengthscale=grid, sampler=HMC())
    state = kernel.init(jax.random.key(0), 3, None, rows(3, 12), {})
    sweep = oracle.quick_jit(lambda state: kernel.sample(state, (), {}))
    memories = []
    for _ in range(6):
        state = sweep(state)
        memories.append([np.asarray(leaf) for leaf in jax.tree.leaves(state.chain.memory)])
    of_warm_up, later = memories[:3], memories[2:]
    tuned = [number for number, leaf in enumerate(memories[0]) if np.ndim(leaf) > 0]
    assert any((of_warm_up[0][number] != of_warm_up[-1][number]).any() for number in tuned)
    for number in tuned:
        for memory in later:
            np.testing.assert_array_equal(memory[number], later[0][number])


def test_names_stand_for_samplers():
    named = {"hmc": HMC(), "gibbs": Gibbs(), "paper": Paper(), "table": Table()}
    assert {name: as_sampler(name) for name in named} == named
    assert as_sampler("auto") == HMC()
    assert as_sampler("auto", likelihood="squared") == Table()
    assert as_sampler("auto", likelihood="squared", off_grid=True) == HMC()
    assert as_sampler(METROPOLIS) is METROPOLIS


def test_a_sampler_makes_one_algorithm_for_each_model():
    """Or programs would be compiled anew for each run."""
    one, other = (prepare(*rows(3, n), lengthscale=1.0) for n in (12, 15))
    assert HMC().algorithm(one) is HMC().algorithm(other)
    assert HMC().algorithm(one) is not Gibbs().algorithm(one)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_sampler("nuts"), "sampler must be one of 'auto', 'hmc', .*got 'nuts'"),
        (lambda: scale(every=0), "every must be an integer of at least 1; got 0"),
        (lambda: scale(every=1.5), "every must be an integer of at least 1; got 1.5"),
        (lambda: BMSVMGibbs(sampler=3), "sampler must be one of 'auto', 'hmc', .*got 3"),
        (lambda: HMC(thinning=0), "thinning must be .*at least 1; got 0"),
        (lambda: Paper(step_size=-1.0), "step_size must be .*positive.*got -1.0"),
        (lambda: Paper(printed_ratio="yes"), "printed_ratio must be True or False; got 'yes'"),
        (lambda: Blocks(), r"sweep must be a tuple of blocks; got \(\)"),
        (lambda: Blocks(sweep=("scale",)), "sweep must be a tuple of blocks; got .*scale"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("of", [BMSVMClassifier, BMSVMGibbs])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": Paper(thinning=1)}, r"with a sampler.*Paper\(printed_ratio=True\); got Paper"),
        ({"lengthscale": 3.5}, r"needs a lengthscale that is sampled.*3\.5 does not move"),
        ({"lengthscale": [1.0, 2.0]}, r"\[1\.0, 2\.0\] does not move"),
    ],
    ids=["sampler", "number", "per feature"],
)
def test_a_printed_ratio_that_would_be_ignored_is_refused(of, settings, message):
    with pytest.raises(ValueError, match=f"^printed_ratio.*{message}"):
        of.paper(printed_ratio=True, **settings)
    assert of.paper(**settings).sampler == settings.get("sampler", Paper())


@pytest.mark.parametrize(
    "settings", [{}, {"lengthscale": "sample"}, {"lengthscale": Sampled(grid="off")}]
)
def test_a_printed_ratio_is_that_of_the_sampler(settings):
    for of in (BMSVMClassifier, BMSVMGibbs):
        assert of.paper(printed_ratio=True, **settings).sampler == Paper(printed_ratio=True)
