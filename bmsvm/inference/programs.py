"""Compiled programs of few shapes at a time, so that many fits in one process do not fill it.

JAX keeps what it compiles for every shape of data that it has seen, some tens of megabytes for a
sampler, until the process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from typing import Any

import jax

__all__ = ["SHAPES", "forget_old_programs"]

SHAPES = 32
"""Shapes of data that are seen before the programs of all of them are forgotten."""

_seen: set[Any] = set()
_lock = threading.Lock()


def forget_old_programs(data: Any) -> None:
    """Drop what JAX has compiled if this is one shape more than :data:`SHAPES`.

    Parameters
    ----------
    data
        What is to be sampled or learned from, any tree of arrays. Programs of the user's own are
        dropped too: they
        are compiled again when they are next called.
    """
    leaves, tree = jax.tree.flatten(data)
    shape = tree, tuple(getattr(leaf, "shape", None) for leaf in leaves)
    with _lock:
        if shape not in _seen and len(_seen) >= SHAPES:
            _seen.clear()
            jax.clear_caches()
            _give_back()
        _seen.add(shape)


def _give_back() -> None:
    """Return memory that is free to the system, which the C library of Linux does when asked."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
