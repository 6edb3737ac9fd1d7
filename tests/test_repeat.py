"""Rounds of blocks within a sweep: the blocks themselves, that many times, with one memory."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import HMC, Sampled, prepare
from bmsvm.inference.adaptation import Phase
from bmsvm.inference.blocks import (
    collapsed_parameters,
    in_turn,
    memories,
    metropolis_scores,
    repeat,
)

BLOCKS = (metropolis_scores(), collapsed_parameters())
WARMING_UP = Phase(jnp.array(0), jnp.array(10))


def test_rounds_are_the_blocks_one_after_another():
    problem, draws = oracle.exact_draws(oracle.CASES[0], 10)
    position = jax.tree.map(lambda part: part[0], draws)
    memory, block = memories(BLOCKS, position, problem), repeat(BLOCKS, 3)
    key = jax.random.key(0)
    found = block.step(key, position, block.init(position, problem), problem, WARMING_UP)
    for each in jax.random.split(key, (3, len(BLOCKS))):
        position, memory, info = in_turn(BLOCKS, each, position, memory, problem, WARMING_UP)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10),
        found,
        (position, memory, info),
    )


@pytest.mark.parametrize(
    ("likelihood", "name"),
    [
        ("hinge", "hamiltonian, lengthscale"),
        ("squared", "hamiltonian, lengthscale"),
        ("normalized", "2 x (hamiltonian, scale, lengthscale)"),
    ],
)
def test_the_sweep_with_theta_repeats_under_the_normalised_likelihood_only(likelihood, name):
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6) % 3
    problem = prepare(X, y, lengthscale=Sampled(grid=[1.0, 2.0]), likelihood=likelihood)
    assert HMC().algorithm(problem).name == name


def test_the_number_of_rounds_is_checked():
    with pytest.raises(ValueError, match="times must be an integer of at least 1; got 0"):
        repeat(BLOCKS, 0)
