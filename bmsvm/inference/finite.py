"""Chains that leave the numbers: noticed after each piece, and told where it happened."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.inference.blocks import Block, Phase
from bmsvm.inference.gibbs import BMSVMState, sweep
from bmsvm.models.hierarchy import Position

__all__ = ["NonFiniteError", "check_finite"]

PUBLIC = {"columns": "scores"}
"""Names under which users know the parameters that have others here."""

POSITIVE = ("noise_variance", "precision")


class NonFiniteError(FloatingPointError):
    """A parameter of a chain became infinite, not a number, or zero where it must be positive."""


def _good(position: Position) -> dict[str, jax.Array]:
    """Whether each parameter is a finite number, and positive where it must be."""
    good = {}
    for name in ("columns", "intercept", "weights", *POSITIVE):
        value = getattr(position, name)
        right = jnp.isfinite(value)
        good[name] = jnp.all(right & (value > 0) if name in POSITIVE else right)
    return good


@jax.jit
def _all_good(position: Position) -> jax.Array:
    return jnp.all(jnp.stack(list(_good(position).values())))


def check_finite(
    before: BMSVMState, after: BMSVMState, blocks: Sequence[Block], sweeps: int
) -> None:
    """Raise :class:`NonFiniteError` unless vectorised chains are still made of numbers.

    The sweeps of the piece are then made again one by one, with the same draws, to say which was
    the first to go wrong.

    Parameters
    ----------
    before, after
        The chains before a piece of so many sweeps, and after it.
    blocks
        The moves of a sweep.
    sweeps
        Their number.
    """
    if bool(_all_good(after.position)):
        return
    program = jax.jit(functools.partial(sweep, blocks=tuple(blocks)))
    for _ in range(sweeps):
        ahead = program(before)
        if not bool(_all_good(ahead.position)):
            raise NonFiniteError(_where(before, ahead, blocks))
        before = ahead
    raise NonFiniteError(_told(after, int(after.i), _first_bad(after), "a block", after.position))


def _first_bad(state: BMSVMState) -> int:
    """Return the number of the first chain that is not made of numbers."""
    good = jax.vmap(_all_good)(state.position)
    return int(np.argmin(np.asarray(good)))


def _where(before: BMSVMState, ahead: BMSVMState, blocks: Sequence[Block]) -> str:
    """Make one sweep of the chain that fails, block by block."""
    chain = _first_bad(ahead)
    key, position, memory = jax.tree.map(
        lambda leaf: leaf[chain], (before.rng_key, before.position, before.memory)
    )
    phase = Phase(before.i, before.n_warmup)
    _, *keys = jax.random.split(key, len(blocks) + 1)
    for block, block_key, remembered in zip(blocks, keys, memory, strict=True):
        here = before.problem.at(position.kernel)
        position, _, _ = jax.jit(block.step)(block_key, position, remembered, here, phase)
        if not bool(_all_good(position)):
            break
    return _told(before, int(before.i), chain, f"the block {block.name}", position)


def _told(state: BMSVMState, number: int, chain: int, block: str, position: Position) -> str:
    bad = next((name for name, good in _good(position).items() if not bool(jnp.all(good))), "")
    value = np.asarray(getattr(position, bad, np.nan))
    wrong = ~np.isfinite(value) | ((value <= 0) if bad in POSITIVE else False)
    phase = "warm-up" if number < int(state.n_warmup) else "sampling"
    return (
        f"chain {chain} is no longer made of finite numbers: in sweep {number} ({phase}) {block} "
        f"left {PUBLIC.get(bad, bad)} with {value[wrong].flat[0] if wrong.any() else 'no value'}. "
        "Hyperparameters, weights or a kernel of extreme size do this; more in docs/trust.md"
    )
