"""Samplers: Gibbs blocks, the NumPyro kernel that composes them, and the chain driver."""

from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.larger_model import MACHINE_SITES
from bmsvm.inference.run import Run, run_chains
from bmsvm.inference.samplers import HMC, Blocks, Gibbs, Paper, Sampler, Table
from bmsvm.inference.state import BMSVMState, NonFiniteError

__all__ = [
    "HMC",
    "MACHINE_SITES",
    "BMSVMGibbs",
    "BMSVMState",
    "Blocks",
    "Gibbs",
    "NonFiniteError",
    "Paper",
    "Run",
    "Sampler",
    "Table",
    "run_chains",
]
