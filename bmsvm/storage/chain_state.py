"""Where chains stand, leaf by leaf: what is saved of them besides their draws and their data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from bmsvm.storage.encoding import Encoder
from bmsvm.storage.errors import ModelFileError

if TYPE_CHECKING:
    from bmsvm.inference.gibbs import BMSVMState
    from bmsvm.models.problem import Problem

__all__ = ["decode_state", "encode_state"]


def encode_state(state: BMSVMState, encoder: Encoder) -> dict[str, Any]:
    """Return the leaves of a state by their path, the problem left out."""
    return {
        name: encoder.encode(leaf, f"state{name}") for name, leaf in _named_leaves(state).items()
    }


def decode_state(leaves: dict[str, Any], like: BMSVMState, problem: Problem) -> BMSVMState:
    """Put decoded leaves where a state that is like the one that was saved has them."""
    template = _without_problem(like)
    wanted = _named_leaves(template)
    if leaves.keys() != wanted.keys():
        raise ModelFileError("its chains are of another sampler than this version of bmsvm has")
    for name, leaf in leaves.items():
        if (leaf.shape, leaf.dtype) != (wanted[name].shape, wanted[name].dtype):
            raise ModelFileError(f"its chains do not fit its data: {name[1:]}")
    state = jax.tree.unflatten(jax.tree.structure(template), [leaves[name] for name in wanted])
    return state._replace(problem=problem)


def _named_leaves(state: BMSVMState) -> dict[str, Any]:
    """Leaves of the state by their path, the problem left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(_without_problem(state))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _without_problem(state: BMSVMState) -> BMSVMState:
    return state._replace(problem=None)  # type: ignore[arg-type]
