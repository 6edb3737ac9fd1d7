"""Where chains start: further apart than the posterior is wide, or R-hat could not tell."""

import jax
import numpy as np
import pytest

from bmsvm import HMC, BMSVMGibbs, Gibbs, Hyperparameters, Nystrom, Paper, prepare, run_chains
from bmsvm.inference.run import start_chains
from bmsvm.inference.state import sites_of

RNG = np.random.default_rng(0)
LABELS = np.arange(30) % 3
ROWS = RNG.normal(size=(30, 2)) + 2 * np.eye(3)[LABELS][:, :2]
KNOWN = Hyperparameters(precision_shape=600.0, precision_rate=600.0 / 0.05)
"""A prior of tau as narrow as the default fit has, near 0.05."""

CHAINS = 200


def starts(sampler, **settings):
    """Public sites where so many chains start; ``sigma2`` and ``tau`` as logarithms."""
    problem = prepare(ROWS, LABELS, lengthscale=1.5, **settings)
    kernel = BMSVMGibbs(sampler=sampler)
    state = start_chains(
        kernel, jax.random.key(0), problem, num_chains=CHAINS, num_warmup=10, init_params=None
    )
    return with_logs({name: np.asarray(value) for name, value in sites_of(state).items()})


def posterior(sampler, **settings):
    """Draws of the posterior, flat over chains."""
    problem = prepare(ROWS, LABELS, lengthscale=1.5, **settings)
    run = run_chains(
        BMSVMGibbs(sampler=sampler), jax.random.key(1), problem, num_warmup=150, num_samples=1000
    )
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in run.samples.items()}
    return with_logs(flat)


def with_logs(sites):
    logs = {name: np.log(sites[name]) for name in ("noise_variance", "precision")}
    return {**sites, **logs}


@pytest.mark.parametrize(
    "settings",
    [{}, {"hyperparameters": KNOWN}, {"approximation": Nystrom(rank=6)}],
    ids=["vague", "known", "low rank"],
)
def test_chains_start_further_apart_than_the_posterior(settings):
    """The standard deviation of 200 starts is known to 5%, that of the posterior to 5%."""
    first, after = starts(HMC(), **settings), posterior(HMC(), **settings)
    for name in ("noise_variance", "precision"):
        assert np.std(first[name]) > 1.2 * np.std(after[name])
    ratios = np.std(first["scores"], axis=0) / np.std(after["scores"], axis=0)
    assert np.median(ratios) > 1.2
    assert ratios.min() > 0.8


@pytest.mark.parametrize("sampler", [HMC(), Gibbs()], ids=str)
@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
def test_no_two_chains_start_at_one_point(sampler, likelihood, coupling):
    first = starts(sampler, likelihood=likelihood, coupling=coupling)
    for name in ("noise_variance", "precision", "scores", "weights"):
        assert len(np.unique(first[name].reshape(CHAINS, -1), axis=0)) == CHAINS
    np.testing.assert_allclose(first["scores"].sum(axis=-1), 0.0, atol=1e-10)


def test_weights_start_from_their_prior():
    """Of variance sigma2/tau: 200 chains of r k weights each know the variance to a few percent."""
    first = starts(HMC(), hyperparameters=KNOWN)
    scale = np.exp(0.5 * (first["noise_variance"] - first["precision"]))
    white = first["weights"] / scale[:, None, None]
    np.testing.assert_allclose(np.mean(white**2), 1.0, rtol=0.1)


def test_the_paper_starts_all_scores_at_a_perfect_fit():
    first = starts(Paper(), likelihood="hinge", coupling="independent")
    np.testing.assert_array_equal(np.ptp(first["scores"], axis=0), 0.0)
    own = first["scores"][0][np.arange(30), LABELS]
    np.testing.assert_allclose(own, 1.0)
    assert np.ptp(first["precision"]) > 0
