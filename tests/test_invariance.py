"""Every block and every preset leaves the exact posterior of tiny data alone."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from numpyro.infer import MCMC
from oracle import (
    CASES,
    after_sweeps,
    all_blocks,
    chain_z,
    coordinates,
    drift,
    exact_draws,
    largest,
)

from bmsvm.inference import PRESETS, BMSVMGibbs
from bmsvm.inference.blocks import conjugate_parameters, parameters, stateless
from bmsvm.inference.slice import slice_step
from bmsvm.models import conditionals as model_conditionals
from bmsvm.models import log_likelihood
from bmsvm.models.hierarchy import noise_prior

DRAWS = 20_000
# At most 10000 z-scores are looked at in this file, with 1e-4 for all of them.
BOUND = oracle.threshold(1e-4, 10_000)
BLOCKS = [(case, name) for case in CASES[:3] for name in all_blocks(case.likelihood)]
BLOCKS += [(CASES[3], name) for name in ("metropolis_scores", "hamiltonian", "interweave")]
BLOCKS += [(CASES[4], name) for name in ("truncated_scores", "metropolis_scores", "scale")]
BLOCKS += [(CASES[4], "interweave"), (CASES[5], "truncated_scores")]


@pytest.mark.parametrize(("case", "name"), BLOCKS, ids=str)
def test_block_leaves_the_posterior_invariant(case, name):
    """Three steps from exact draws change no first or second moment.

    False alarm: 1e-4 for the whole file.
    """
    problem, before = exact_draws(case, DRAWS)
    block = all_blocks(case.likelihood)[name]
    after, _ = after_sweeps((block,), problem, before, sweeps=3, seed=10)
    assert largest(drift(problem, before, after)) < BOUND
    moved = jax.tree.map(lambda old, new: bool(jnp.any(old != new)), before, after)
    assert any(jax.tree.leaves(moved))


PRESET_CASES = [(CASES[1], "default"), (CASES[2], "paper"), (CASES[3], "gibbs")]
PRESET_CASES += [(CASES[5], "default")]


@pytest.mark.parametrize(("case", "preset"), PRESET_CASES, ids=str)
def test_preset_leaves_the_posterior_invariant(case, preset):
    """Five sweeps from exact draws change no first or second moment.

    False alarm: 1e-4 for the whole file.
    """
    problem, before = exact_draws(case, DRAWS)
    blocks = oracle.preset_sweep(preset, case.likelihood)
    after, _ = after_sweeps(blocks, problem, before, sweeps=5, seed=11)
    assert largest(drift(problem, before, after)) < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_chains_from_far_away_find_the_posterior(preset):
    """Chains started at wild scores, much noise and no precision forget it.

    Their means, over 64 independent chains, agree with those of the exact draws. False alarm:
    1e-4 for all presets.
    """
    n_chains, case = 64, CASES[1]
    problem, exact = exact_draws(case, DRAWS)
    start = {
        "scores": jnp.tile(jnp.array([20.0, -20.0, 0.0]), (problem.n_rows, 1)),
        "noise_variance": jnp.array(300.0),
        "precision": jnp.array(1e-3),
    }
    start = jax.tree.map(lambda value: jnp.stack([value] * n_chains), start)
    mcmc = MCMC(
        BMSVMGibbs(likelihood=case.likelihood, coupling=case.coupling, preset=preset),
        num_warmup=300,
        num_samples=300,
        num_chains=n_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(12), problem, init_params=start, extra_fields=("position", "weights"))
    fields = mcmc.get_extra_fields()  # chain after chain
    draws = fields["position"]._replace(weights=fields["weights"])
    truth = coordinates(exact, problem)
    chains = oracle.second_order(coordinates(draws, problem), truth)
    truth = oracle.second_order(truth, truth)
    z = chain_z(
        chains.reshape(n_chains, -1, chains.shape[1]).mean(1),
        truth.mean(0),
        truth.std(0) / np.sqrt(DRAWS),
    )
    assert largest(z) < oracle.threshold(1e-4, 3 * z.size, n_chains - 1)


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
    """The oracle has power: the wrong scale move is rejected, and by a wide margin."""
    problem, before = exact_draws(CASES[0], DRAWS)
    after, _ = after_sweeps((scale_without_jacobian(),), problem, before, sweeps=3, seed=13)
    assert largest(drift(problem, before, after)) > 2 * BOUND


def test_the_printed_shape_of_the_noise_is_noticed(monkeypatch):
    """Shape (a_sigma + nc)/2, as printed, does not leave the posterior invariant."""

    def printed(projection, precision, problem):
        right = model_conditionals.noise_variance_collapsed(projection, precision, problem)
        return type(right)(right.concentration + problem.n_rows / 2, right.rate)

    problem, before = exact_draws(CASES[0], DRAWS)
    monkeypatch.setattr(parameters, "noise_variance_collapsed", printed)
    after, _ = after_sweeps((conjugate_parameters(),), problem, before, sweeps=1, seed=14)
    assert largest(drift(problem, before, after)) > 2 * BOUND
