"""A cache of compiled programs on disk, which later processes read instead of compiling again.

JAX compiles a program for each shape of data. A first fit in a new process spends most of its time
on that. With the cache only the first process on a machine does.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax

VARIABLE = "JAX_COMPILATION_CACHE_DIR"
"""JAX's own environment variable: a directory, and the cache is on from the start."""


def _default_directory() -> Path:
    """Return ``bmsvm`` in the user's directory of caches."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bmsvm"


def enable_compilation_cache(directory: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs on disk from now on, and use those that are there.

    It sets ``jax_compilation_cache_dir`` and ``jax_persistent_cache_min_compile_time_secs`` of JAX
    for this process, so that programs of other packages are kept too. Call it before the first fit.
    Importing bmsvm changes no setting. To empty the cache, delete the directory.

    Parameters
    ----------
    directory
        Where programs are kept. Default: the environment variable ``JAX_COMPILATION_CACHE_DIR``, or
        ``bmsvm`` in the user's directory of caches (``XDG_CACHE_HOME``, or ``~/.cache``).

    Returns
    -------
    pathlib.Path
        The directory.

    Examples
    --------
    >>> import bmsvm
    >>> directory = bmsvm.enable_compilation_cache()  # doctest: +SKIP
    """
    path = Path(directory or os.environ.get(VARIABLE) or _default_directory())
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return path
