"""Non-finite draws: detected after each chunk of sweeps, and reported with the first bad sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.inference.state import BMSVMState

__all__ = ["NonFiniteError", "check_finite"]

POSITIVE = ("noise_variance", "precision")


class NonFiniteError(FloatingPointError):
    """A parameter of a chain became infinite, not a number, or zero where it must be positive."""


def _good(sites: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Whether each site is finite, and positive where it must be, for each chain, shape (m,)."""
    good = {}
    for name, value in sites.items():
        right = jnp.isfinite(value)
        right = right & (value > 0) if name in POSITIVE else right
        good[name] = jnp.all(right.reshape(len(value), -1), axis=1)
    return good


@jax.jit
def _all_good(sites: Mapping[str, jax.Array]) -> jax.Array:
    return jnp.all(jnp.stack(list(_good(sites).values())))


def check_finite(
    before: BMSVMState,
    after: BMSVMState,
    advance: Callable[[BMSVMState], BMSVMState],
    sweeps: int,
) -> None:
    """Raise :class:`NonFiniteError` unless all sites of vectorised chains are finite.

    The sweeps of the chunk are then repeated one by one, with the same draws, to find the first
    that went wrong.

    Parameters
    ----------
    before, after
        The chains before the chunk and after it.
    advance
        One sweep of the chains.
    sweeps
        Number of sweeps of the chunk.
    """
    if bool(_all_good(after.z)):
        return
    program, state = jax.jit(advance), before
    for _ in range(sweeps):
        state = program(state)
        if not bool(_all_good(state.z)):
            break
    else:
        state = after
    raise NonFiniteError(_message(state))


def _message(state: BMSVMState) -> str:
    """Name the chain, the sweep and the parameter."""
    good = {name: np.asarray(value) for name, value in _good(state.z).items()}
    name = next(name for name, value in good.items() if not value.all())
    chain = int(np.argmin(good[name]))
    values = np.asarray(state.z[name])[chain]
    wrong = ~np.isfinite(values) | ((values <= 0) if name in POSITIVE else False)
    sweep = int(state.i) - 1
    phase = "warm-up" if sweep < int(state.n_warmup) else "sampling"
    return (
        f"chain {chain} is not finite: after sweep {sweep} ({phase}) {name.lstrip('_')} has the "
        f"value {values[wrong].flat[0]}. Hyperparameters, weights or a kernel of extreme size "
        "cause this; see docs/trust.md"
    )
