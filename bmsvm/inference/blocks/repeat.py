"""Several blocks in turn, more than once in a sweep."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from bmsvm._validation import check_count
from bmsvm.inference.blocks.base import Block, in_turn, memories


def repeat(blocks: Sequence[Block], times: int) -> Block:
    """Run blocks in order, ``times`` times; the info is that of the last round.

    Parameters
    ----------
    blocks
        The blocks of one round.
    times
        Rounds of a sweep.
    """
    check_count("times", times)
    blocks = tuple(blocks)

    def step(key, position, memory, problem, phase):
        def once(carry, keys):
            position, memory = carry
            position, memory, info = in_turn(blocks, keys, position, memory, problem, phase)
            return (position, memory), info

        keys = jax.random.split(key, (times, len(blocks)))
        (position, memory), infos = jax.lax.scan(once, (position, memory), keys)
        return position, memory, jax.tree.map(lambda each: each[-1], infos)

    name = f"{times} x ({', '.join(block.name for block in blocks)})"
    return Block(name, lambda position, problem: memories(blocks, position, problem), step)
