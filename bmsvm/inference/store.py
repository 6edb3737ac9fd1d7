"""The store of a run: which chains it belongs to, and the state in which it left them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bmsvm.checkpoint import Checkpoint, digest_of_arrays
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.samplers import Sampler, Table
from bmsvm.inference.state import BMSVMState, moving_part, with_shared
from bmsvm.models.problem import Problem


def store_of(
    path: str | os.PathLike[str],
    kernel: BMSVMGibbs,
    start: BMSVMState,
    num_warmup: int,
    thinning: int,
    collect: tuple[str, ...],
) -> Checkpoint:
    """Return the store of a run, with a fingerprint of all that determines its draws."""
    problem = start.problem
    fingerprint = {
        "num_chains": int(start.accept_prob.shape[0]),
        "num_warmup": int(num_warmup),
        "thinning": int(thinning),
        "collect": list(collect),
        "coupling": problem.coupling,
        "likelihood": problem.likelihood,
        "algorithm": _algorithm_name(kernel, problem),
        "sampler": _options(kernel.sampler_of(problem)),
        "every": None if problem.family is None else int(problem.family.every),
        "data": digest_of_arrays(problem),
        "start": digest_of_arrays(moving_part(start)),
    }
    return Checkpoint(path, fingerprint, collect)


def _algorithm_name(kernel: BMSVMGibbs, problem: Problem) -> str:
    tabled = isinstance(kernel.sampler_of(problem), Table)
    return "table" if tabled else kernel.algorithm(problem).name


def _options(sampler: Sampler) -> dict[str, Any]:
    """Options of a sampler that neither its algorithm's name nor the run's thinning says."""
    said = ("sweep", "thinning")
    return {name: np.asarray(v).item() for name, v in vars(sampler).items() if name not in said}


def last_state(store: Checkpoint, state: BMSVMState) -> BMSVMState:
    """Read the state of the chains of a store; ``state`` is one of them."""
    return with_shared(store.last(moving_part(state)), state)
