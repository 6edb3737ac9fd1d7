"""Rounds of blocks within a sweep: the blocks themselves, that many times, with one memory."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm.inference import preset_blocks
from bmsvm.inference.blocks import (
    Phase,
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


def test_the_sweep_with_theta_repeats_under_the_normalised_likelihood_only():
    for likelihood, count in (("hinge", 2), ("normalized", 1), ("probit", 4)):
        assert len(preset_blocks("default", likelihood, lengthscale=True)) == count
    (rounds,) = preset_blocks("default", "normalized", lengthscale=True)
    assert rounds.name == "2 x (hamiltonian, scale, lengthscale)"


def test_the_number_of_rounds_is_checked():
    with pytest.raises(ValueError, match="times must be an integer of at least 1; got 0"):
        repeat(BLOCKS, 0)
