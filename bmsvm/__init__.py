"""Bayesian multicategory support vector machines."""

from bmsvm.estimators import BMSVMClassifier
from bmsvm.inference import BMSVMGibbs, run_chains
from bmsvm.models import PAPER, Hyperparameters, Problem, prepare

__version__ = "0.1.0.dev0"

__all__ = [
    "PAPER",
    "BMSVMClassifier",
    "BMSVMGibbs",
    "Hyperparameters",
    "Problem",
    "prepare",
    "run_chains",
]
