"""Every block and every sampler of blocks leaves the exact posterior of tiny data invariant."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from numpyro.infer import MCMC
from oracle import CASES, LOW_RANK, SAMPLERS, after_sweeps, all_blocks, drift, exact_draws, largest

from bmsvm import BMSVMGibbs
from bmsvm.inference.blocks import conjugate_parameters, stateless
from bmsvm.inference.slice import slice_step
from bmsvm.inference.sweep import block_sweep
from bmsvm.models import log_likelihood
from bmsvm.models.hierarchy import noise_prior

DRAWS = 20_000
# At most 10000 z-scores are looked at in this file, with 1e-4 for all of them.
BOUND = oracle.threshold(1e-4, 10_000)
BLOCKS = [(CASES[0], "exact_scores")]
ONE = ("conjugate_parameters", "conjugate_precision", "exact_scores", "hamiltonian")
OTHER = ("metropolis_scores", "collapsed_parameters", "scale", "hamiltonian")
BLOCKS += [(CASES[1], name) for name in ONE] + [(CASES[2], name) for name in OTHER]
# Moves of which the cases above, and the samplers below, have every likelihood, every coupling and
# a singular kernel.
MORE = [(CASES[1], name) for name in all_blocks("hinge") if name not in ONE]
MORE += [(CASES[2], name) for name in all_blocks("normalized") if name not in OTHER]
MORE += [(CASES[0], name) for name in all_blocks("hinge") if name != "exact_scores"]
MORE += [(CASES[3], name) for name in ("metropolis_scores", "hamiltonian")]
BLOCKS += [pytest.param(*each, marks=pytest.mark.long) for each in MORE]


@pytest.mark.parametrize(("case", "name"), BLOCKS, ids=str)
def test_block_leaves_the_posterior_invariant(case, name):
    """Three steps from exact draws change no first or second moment.

    False alarm: 1e-4 for the whole file.
    """
    problem, before = exact_draws(case, DRAWS)
    sweep = block_sweep((all_blocks(case.likelihood)[name],))
    after, _ = after_sweeps(sweep, problem, before, sweeps=3, seed=10)
    assert largest(drift(problem, before, after)) < BOUND
    moved = jax.tree.map(lambda old, new: bool(jnp.any(old != new)), before, after)
    assert any(jax.tree.leaves(moved))


SAMPLED = [(CASES[2], "paper"), (CASES[3], "gibbs"), (LOW_RANK, "hmc")]
SAMPLED += [pytest.param(CASES[1], "hmc", marks=pytest.mark.long)]  # the block is all of it


@pytest.mark.parametrize(("case", "sampler"), SAMPLED, ids=str)
def test_sampler_leaves_the_posterior_invariant(case, sampler):
    """Five sweeps from exact draws change no first or second moment.

    False alarm: 1e-4 for the whole file.
    """
    problem, before = exact_draws(case, DRAWS)
    algorithm = SAMPLERS[sampler].algorithm(problem)
    after, _ = after_sweeps(algorithm, problem, before, sweeps=5, seed=11)
    assert largest(drift(problem, before, after)) < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_chains_from_far_away_find_the_posterior(sampler):
    """Chains that start at extreme scores, much noise and no precision forget where they started.

    Their means, over 64 independent chains, agree with those of the exact draws. False alarm:
    1e-4 for all samplers.
    """
    n_chains = 64
    problem, exact = exact_draws(CASES[1], DRAWS)
    start = {
        "scores": jnp.tile(jnp.array([20.0, -20.0, 0.0]), (problem.n_rows, 1)),
        "noise_variance": jnp.array(300.0),
        "precision": jnp.array(1e-3),
    }
    start = jax.tree.map(lambda value: jnp.stack([value] * n_chains), start)
    mcmc = MCMC(
        BMSVMGibbs(sampler=sampler),
        num_warmup=300,
        num_samples=300,
        num_chains=n_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(12), problem, init_params=start, extra_fields=("chain.position",))
    draws = mcmc.get_extra_fields()["chain.position"]  # chain after chain
    truth = oracle.coordinates(exact, problem)
    chains = oracle.second_order(oracle.coordinates(draws, problem), truth)
    truth = oracle.second_order(truth, truth)
    z = oracle.chain_z(
        chains.reshape(n_chains, -1, chains.shape[1]).mean(1),
        truth.mean(0),
        truth.std(0) / np.sqrt(DRAWS),
    )
    assert largest(z) < oracle.threshold(1e-4, len(SAMPLERS) * z.size, n_chains - 1)


def scale_without_jacobian():
    """The scale move with alpha^2 forgotten."""

    def move(key, position, problem):
        def log_density(log_alpha):
            alpha = jnp.exp(log_alpha)
            likelihood = jnp.sum(log_likelihood(alpha * position.columns, problem))
            return likelihood + noise_prior(problem).log_prob(alpha**2 * position.noise_variance)

        alpha = jnp.exp(slice_step(key, jnp.zeros(()), log_density, width=0.5))
        return position._replace(
            columns=alpha * position.columns,
            intercept=alpha * position.intercept,
            weights=alpha * position.weights,
            noise_variance=alpha**2 * position.noise_variance,
        ), {}

    return stateless("scale_without_jacobian", move)


def test_a_forgotten_jacobian_is_noticed():
    """The comparison has power: the wrong scale move is rejected by a wide margin."""
    problem, before = exact_draws(CASES[0], DRAWS)
    sweep = block_sweep((scale_without_jacobian(),))
    after, _ = after_sweeps(sweep, problem, before, sweeps=3, seed=13)
    assert largest(drift(problem, before, after)) > 2 * BOUND


def test_the_printed_shape_of_the_noise_is_noticed(monkeypatch):
    """Shape (a_sigma + nc)/2, as printed, does not leave the posterior invariant."""
    problem, before = exact_draws(CASES[0], DRAWS)
    oracle.use_printed_noise_shape(monkeypatch)
    sweep = block_sweep((conjugate_parameters(),))
    after, _ = after_sweeps(sweep, problem, before, sweeps=1, seed=14)
    assert largest(drift(problem, before, after)) > 2 * BOUND
