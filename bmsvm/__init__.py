"""Bayesian multicategory support vector machines."""

from bmsvm._version import __version__ as __version__
from bmsvm.estimators import BMSVMClassifier
from bmsvm.features import LowRank
from bmsvm.inference import (
    BMSVMGibbs,
    cross_validate,
    cross_validate_modes,
    maximize_evidence,
    run_chains,
)
from bmsvm.machines import AltMSVM, MSVMClassifier, OneVsRestSVC
from bmsvm.models import PAPER, UNIT_NOISE, Hyperparameters, Problem, prepare
from bmsvm.persistence import load
from bmsvm.rows import from_batches

__all__ = [
    "PAPER",
    "UNIT_NOISE",
    "AltMSVM",
    "BMSVMClassifier",
    "BMSVMGibbs",
    "Hyperparameters",
    "LowRank",
    "MSVMClassifier",
    "OneVsRestSVC",
    "Problem",
    "cross_validate",
    "cross_validate_modes",
    "from_batches",
    "load",
    "maximize_evidence",
    "prepare",
    "run_chains",
]
