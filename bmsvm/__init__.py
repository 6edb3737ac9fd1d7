"""Bayesian multicategory support vector machines."""

from bmsvm._predicting import Predictive
from bmsvm._version import __version__
from bmsvm.classifier import BMSVMClassifier
from bmsvm.inference import HMC, BMSVMGibbs, CollapsedHMC, Gibbs, Paper, Table, run_chains
from bmsvm.kernels import Fourier, Nystrom
from bmsvm.machines import AltMSVM, LeastSquaresSVM, MSVMClassifier, OneVsRestSVC
from bmsvm.models import PAPER, Hyperparameters, Problem, Sampled, prepare
from bmsvm.persistence import load, save
from bmsvm.posterior import Posterior
from bmsvm.predictive import PredictiveDistribution
from bmsvm.rows import from_batches
from bmsvm.selection import Evidence, ModeCV

__all__ = [
    "HMC",
    "PAPER",
    "AltMSVM",
    "BMSVMClassifier",
    "BMSVMGibbs",
    "CollapsedHMC",
    "Evidence",
    "Fourier",
    "Gibbs",
    "Hyperparameters",
    "LeastSquaresSVM",
    "MSVMClassifier",
    "ModeCV",
    "Nystrom",
    "OneVsRestSVC",
    "Paper",
    "Posterior",
    "Predictive",
    "PredictiveDistribution",
    "Problem",
    "Sampled",
    "Table",
    "__version__",
    "from_batches",
    "load",
    "prepare",
    "run_chains",
    "save",
]
