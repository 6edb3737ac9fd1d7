"""Support vector machines: the MSVM, the AltMSVM, least squares and one-versus-rest."""

from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.least_squares import LeastSquaresSVM
from bmsvm.machines.losses import Loss, lee, weston_watkins
from bmsvm.machines.msvm import AltMSVM, MSVMClassifier
from bmsvm.machines.one_vs_rest import OneVsRestSVC
from bmsvm.machines.solver import Solution, solve
from bmsvm.machines.tuning import Grid, Tuning, held_out_scores

__all__ = [
    "AltMSVM",
    "Grid",
    "LeastSquaresSVM",
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
