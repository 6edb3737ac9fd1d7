"""Compiled programs of few shapes at a time, so that many fits in one process do not fill it.

JAX keeps what it compiles for every shape of data that it has seen, some tens of megabytes for a
sampler, until the process ends. Compiling takes hundreds of megabytes more for a while, in several
threads, and the C library of Linux keeps those for each thread that had them: they are given back
whenever something was compiled.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from typing import Any

import jax

__all__ = ["SHAPES", "forget_old_programs", "give_back_memory"]

SHAPES = 32
"""Shapes of data that are seen before the programs of all of them are forgotten.

A fit of the classifier sees two, its rows and the problem made of them.
"""

_seen: set[Any] = set()
_lock = threading.Lock()


def forget_old_programs(data: Any) -> bool:
    """Drop what JAX has compiled if this is one shape more than :data:`SHAPES`.

    Parameters
    ----------
    data
        What is to be sampled or learned from, any tree of arrays. Programs of the user's own are
        dropped too: they are compiled again when they are next called.

    Returns
    -------
    bool
        Whether the shape is new, so that programs are going to be compiled for it: call
        :func:`give_back_memory` after that.
    """
    leaves, tree = jax.tree.flatten(data)
    shape = tree, tuple(getattr(leaf, "shape", None) for leaf in leaves)
    with _lock:
        if shape in _seen:
            return False
        if len(_seen) >= SHAPES:
            _seen.clear()
            jax.clear_caches()
            gc.collect()
        _seen.add(shape)
    give_back_memory()
    return True


def give_back_memory() -> None:
    """Return memory that is free to the system, which the C library of Linux does when asked.

    It takes some hundredths of a second, little beside what compiling takes.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
