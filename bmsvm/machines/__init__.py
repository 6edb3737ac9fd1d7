"""Support vector machines: the posterior's mode, and what the paper compares it with."""

from bmsvm.machines.alternative import AltMSVM
from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.losses import Loss, lee, weston_watkins
from bmsvm.machines.msvm import MSVMClassifier
from bmsvm.machines.one_vs_rest import OneVsRestSVC
from bmsvm.machines.solver import Solution, solve
from bmsvm.machines.tuning import Tuning, held_out_scores

__all__ = [
    "AltMSVM",
    "Loss",
    "MSVMClassifier",
    "MachineProblem",
    "OneVsRestSVC",
    "Solution",
    "Tuning",
    "held_out_scores",
    "lee",
    "solve",
    "weston_watkins",
]
