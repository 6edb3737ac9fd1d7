"""Compile the programs of chains in a second thread, while something else is computed.

JAX compiles a program when it is first called. Programs depend on the shapes of the data and not on
their values, so that the call can be made ahead on other values.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import jax

from bmsvm._arrays import key_of
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.run import start_chains
from bmsvm.inference.state import advance_chains, sites_of
from bmsvm.models.problem import Problem


class Ahead:
    """Calls in a second thread, with float64 as in the first; an error of a call is dropped.

    Parameters
    ----------
    calls
        What to call, in order.
    """

    def __init__(self, *calls: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=_quietly, args=calls, name="bmsvm: load and compile")
        self._thread.start()

    def wait(self) -> None:
        """Return when all calls have ended."""
        self._thread.join()


def _quietly(*calls: Callable[[], object]) -> None:
    for call in calls:
        with contextlib.suppress(Exception), jax.enable_x64(True):
            call()  # what is wrong in it is wrong in the first thread too, and said there


def compile_chains(kernel: BMSVMGibbs, problem: Problem, num_chains: int) -> None:
    """Compile what :func:`bmsvm.run_chains` runs for a problem of these shapes."""
    state = start_chains(kernel, key_of(0), problem, num_chains=num_chains, num_warmup=1)
    advance_chains(state, kernel.algorithm(problem), 0, 1, tuple(sites_of(state)))
