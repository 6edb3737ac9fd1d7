"""Bayesian multicategory support vector machines.

A public name is imported when it is first used, so that ``import bmsvm`` and ``bmsvm --help`` do
not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bmsvm._version import __version__

if TYPE_CHECKING:  # for type checkers and editors; tests/test_house.py compares it with _HOMES
    from bmsvm._predicting import Predictive
    from bmsvm.classifier import BMSVMClassifier
    from bmsvm.compilation import enable_compilation_cache
    from bmsvm.inference import HMC, BMSVMGibbs, Gibbs, Paper, Table, run_chains
    from bmsvm.kernels import Fourier, Nystrom
    from bmsvm.machines import AltMSVM, LeastSquaresSVM, MSVMClassifier, OneVsRestSVC
    from bmsvm.models import PAPER, Hyperparameters, Problem, Sampled, prepare
    from bmsvm.persistence import load, save
    from bmsvm.posterior import Posterior
    from bmsvm.predictive import PredictiveDistribution
    from bmsvm.selection import ModeCV, SquaresCV

__all__ = [
    "HMC",
    "PAPER",
    "AltMSVM",
    "BMSVMClassifier",
    "BMSVMGibbs",
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
    "SquaresCV",
    "Table",
    "__version__",
    "enable_compilation_cache",
    "load",
    "prepare",
    "run_chains",
    "save",
]

_HOMES = {
    "_predicting": ("Predictive",),
    "classifier": ("BMSVMClassifier",),
    "compilation": ("enable_compilation_cache",),
    "inference": ("HMC", "BMSVMGibbs", "Gibbs", "Paper", "Table", "run_chains"),
    "kernels": ("Fourier", "Nystrom"),
    "machines": ("AltMSVM", "LeastSquaresSVM", "MSVMClassifier", "OneVsRestSVC"),
    "models": ("PAPER", "Hyperparameters", "Problem", "Sampled", "prepare"),
    "persistence": ("load", "save"),
    "posterior": ("Posterior",),
    "predictive": ("PredictiveDistribution",),
    "selection": ("ModeCV", "SquaresCV"),
}
"""The public names of each module."""

_HOME = {name: home for home, names in _HOMES.items() for name in names}

_MODULES = (
    *("arviz", "checkpoint", "classifier", "convergence", "conversion", "datasets", "inference"),
    *("kernels", "machines", "models", "persistence", "plots", "posterior", "prediction"),
    *("predictive", "report", "scaling", "selection", "summary"),
)
"""Modules that are attributes of the package without an import of their own."""


def __getattr__(name: str) -> Any:
    """Import a public name, or a module, when it is first used (PEP 562)."""
    if name in _MODULES:
        return import_module(f"bmsvm.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'bmsvm' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"bmsvm.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
