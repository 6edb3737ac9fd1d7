"""Threads of BLAS: one for small matrices.

BLAS libraries divide even a product of a few hundred rows among all cores, and their threads wait
for each other by spinning. Beside JAX's threads, or other processes, a fit of some hundred rows
then takes several times as long.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from threadpoolctl import ThreadpoolController

SMALL = 1500
"""Rows up to which one thread is used."""


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def few_blas_threads(n_rows: int) -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread, if matrices of so many rows are small."""
    if n_rows > SMALL:
        return nullcontext()
    return _controller().limit(limits=1, user_api="blas")
