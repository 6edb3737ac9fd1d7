"""A block: one move of the sampler, as pure functions; and blocks in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from bmsvm._validation import check_count
from bmsvm.inference.adaptation import Phase
from bmsvm.inference.algorithm import Info
from bmsvm.models.hierarchy import Position
from bmsvm.models.problem import Problem


class Block(NamedTuple):
    """One move of the sampler.

    name
        What to call it in a list of blocks.
    init
        ``init(position, problem) -> memory``: what the block remembers from sweep to sweep.
    step
        ``step(key, position, memory, problem, phase) -> (position, memory, info)``: after
        warm-up it leaves the posterior invariant and does not change its memory's tuning.
    """

    name: str
    init: Callable[[Position, Problem], Any]
    step: Callable[[jax.Array, Position, Any, Problem, Phase], tuple[Position, Any, Info]]


def memories(blocks: Sequence[Block], position: Position, problem: Problem) -> tuple[Any, ...]:
    """Return what each of some blocks remembers at the start."""
    return tuple(block.init(position, problem.at(position.kernel)) for block in blocks)


def in_turn(
    blocks: Sequence[Block],
    keys: Sequence[jax.Array] | jax.Array,
    position: Position,
    memory: tuple[Any, ...],
    problem: Problem,
    phase: Phase,
) -> tuple[Position, tuple[Any, ...], Info]:
    """Run every block once, each with its key, at the theta that the one before it left."""
    learned, info = [], {}
    for block, block_key, remembered in zip(blocks, keys, memory, strict=True):
        here = problem.at(position.kernel)
        position, remembered, said = block.step(block_key, position, remembered, here, phase)
        learned.append(remembered)
        info.update(said)
    return position, tuple(learned), info


def stateless(
    name: str, move: Callable[[jax.Array, Position, Problem], tuple[Position, Info]]
) -> Block:
    """Make a block of a move that remembers nothing."""

    def step(key, position, memory, problem, phase):
        moved, info = move(key, position, problem)
        return moved, memory, info

    return Block(name, lambda position, problem: (), step)


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
