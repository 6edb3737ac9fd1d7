"""Every sampler against NumPyro's NUTS: two codes, one posterior.

NUTS ran long on the model written as a NumPyro program with nothing integrated out, and its
summaries are kept in ``tests/references``; the sampler runs its own conditionals here. What they
share is the prior and the likelihood.
"""

import jax
import numpy as np
import oracle
import pytest
from numpyro.infer import MCMC
from references import setups, summaries

from bmsvm import BMSVMGibbs, run_chains
from bmsvm.models.couplings import class_vector
from bmsvm.models.hierarchy import latent

FALSE_ALARM = 1e-4
# The plain Gibbs samplers mix too slowly under the normalised likelihood to say anything.
PAIRS = {
    ("wine", "gibbs"): 6000,
    ("wine", "hmc"): 1500,
    ("iris", "hmc"): 1500,
    ("blobs", "hmc"): 1500,
    ("blobs", "gibbs"): 6000,
    ("blobs", "paper"): 30_000,
    ("squares", "table"): 2000,
    ("squares", "hmc"): 1500,
    ("squares", "gibbs"): 6000,
}

REFERENCES = [*setups.SETUPS, *(f"{name}_theta" for name in setups.SETUPS), "iris_integrated"]
LONG = [("wine", "gibbs"), ("blobs", "gibbs"), ("blobs", "paper"), ("squares", "gibbs")]


def by_sampler(name, sampler, num_samples):
    problem = setups.problem_of(name)
    draws = (
        by_table(problem, num_samples)
        if sampler == "table"
        else by_chains(problem, sampler, num_samples)
    )

    def functions(intercept, weights):
        shown = latent(0.0, weights, problem)[: setups.ROWS_SHOWN]
        return intercept + class_vector(shown, problem.coupling)

    draws["latent"] = jax.vmap(jax.vmap(functions))(draws["intercept"], draws["weights"])
    return summaries.summarize(setups.sites_of(draws))


def by_table(problem, num_samples):
    run = run_chains(BMSVMGibbs(), jax.random.key(41), problem, num_samples=num_samples)
    return dict(run.samples)


def by_chains(problem, sampler, num_samples):
    mcmc = MCMC(
        BMSVMGibbs(sampler=sampler),
        num_warmup=500,
        num_samples=num_samples,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
        thinning=max(1, num_samples // 3000),
    )
    mcmc.run(jax.random.key(41), problem)
    return mcmc.get_samples(group_by_chain=True)


@pytest.mark.parametrize(
    ("name", "sampler"),
    [pytest.param(*pair, marks=pytest.mark.long if pair in LONG else ()) for pair in PAIRS],
)
def test_the_sampler_and_nuts_have_one_posterior(name, sampler):
    """Moments of sigma2, tau, intercept, functions and scores agree within Monte Carlo error.

    False alarm: 1e-4 over all pairs, if the errors are right.
    """
    reference = summaries.load(name)
    z = summaries.z_scores(by_sampler(name, sampler, PAIRS[name, sampler]), reference["sites"])
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, len(PAIRS) * z.size)


def test_integrating_the_weights_out_changes_nothing():
    """Both forms of the NumPyro model give NUTS one posterior of all they share.

    False alarm: 1e-4, if the errors are right.
    """
    both = (summaries.load(name)["sites"] for name in ("iris_integrated", "iris"))
    z = summaries.z_scores(*both)
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_references_have_converged(name):
    """R-hat below 1.01, and none of the 10,000 transitions diverged."""
    reference = summaries.load(name)
    assert reference["divergences"] == 0
    for site in reference["sites"].values():
        assert (np.asarray(site["rhat"]) < 1.01).all()
