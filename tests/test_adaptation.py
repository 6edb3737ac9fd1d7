"""Vectorised chains learn together in warm-up: scales and step size against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bmsvm import BMSVMGibbs, prepare, run_chains
from bmsvm.datasets import load_wine
from bmsvm.inference.adaptation import Phase, adapt, init_adaptation

CHAINS, SWEEPS = 4, 20


def learned(seen, accepted, chains="chains"):
    """Adapt vectorised chains to coordinates (sweep, chain, 3), windows ending at 20 sweeps."""
    start = init_adaptation(jnp.zeros(3), jnp.ones(3), 0.1, jnp.result_type(float))

    def one_chain(coordinates, accept_prob):
        memory = start
        for sweep in range(SWEEPS):
            phase = Phase(jnp.asarray(sweep), jnp.asarray(SWEEPS), chains)
            memory = adapt(memory, coordinates[sweep], accept_prob[sweep], 0.8, phase, (1.0,))
        return memory

    return jax.vmap(one_chain, axis_name="chains", in_axes=1)(seen, accepted)


def test_scales_are_those_of_all_chains():
    rng = np.random.default_rng(0)
    seen = rng.normal(3.0, [0.1, 1.0, 10.0], (SWEEPS, CHAINS, 3))
    memory = learned(jnp.asarray(seen), jnp.ones((SWEEPS, CHAINS)))
    n = SWEEPS * CHAINS
    variance = seen.reshape(-1, 3).var(axis=0, ddof=1)
    expected = np.sqrt(n / (n + 5) * variance + 1e-3 * 5 / (n + 5))
    np.testing.assert_allclose(memory.scales, np.tile(expected, (CHAINS, 1)), rtol=1e-4)
    np.testing.assert_allclose(
        memory.centre, np.tile(seen.mean(axis=(0, 1)), (CHAINS, 1)), rtol=1e-5
    )


def test_a_chain_alone_learns_from_itself():
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(SWEEPS, CHAINS, 3))
    memory = learned(jnp.asarray(seen), jnp.ones((SWEEPS, CHAINS)), chains=None)
    expected = np.sqrt(SWEEPS / (SWEEPS + 5) * seen.var(axis=0, ddof=1) + 1e-3 * 5 / (SWEEPS + 5))
    np.testing.assert_allclose(memory.scales, expected, rtol=1e-4)


def test_the_step_size_follows_the_geometric_mean_of_acceptance():
    """Chains at 0.4 and 0.9 have 0.6 together."""
    accepted = np.full((SWEEPS, CHAINS), 0.4)
    accepted[:, ::2] = 0.9
    apart = learned(jnp.zeros((SWEEPS, CHAINS, 3)), jnp.asarray(accepted))
    together = learned(jnp.zeros((SWEEPS, CHAINS, 3)), jnp.full((SWEEPS, CHAINS), 0.6))
    np.testing.assert_allclose(apart.step[0], together.step[0], rtol=1e-5)


@pytest.mark.parametrize("chains", [1, 4, 64])
def test_a_chain_that_accepts_nothing_makes_steps_shorter(chains):
    accepted = np.ones((SWEEPS, chains))
    accepted[:, 0] = 0.0
    memory = learned(jnp.zeros((SWEEPS, chains, 3)), jnp.asarray(accepted))
    assert np.all(np.exp(memory.step[0]) < 0.01)  # the first step is 0.1


def test_vectorised_chains_share_one_step_size():
    X, y = load_wine(return_X_y=True)
    problem = prepare(((X - X.mean(0)) / X.std(0))[::4], y[::4], lengthscale=3.5)
    run = run_chains(
        BMSVMGibbs(), jax.random.key(0), problem, num_warmup=30, num_samples=5, num_chains=3
    )
    steps = run.samples["step_size"]
    assert np.all(steps == steps[0, 0])
