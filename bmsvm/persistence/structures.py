"""Classes that a model is made of, and that its file may name."""

from __future__ import annotations

from bmsvm.estimators.convergence import Diagnosis
from bmsvm.features import FeatureMap, LowRank
from bmsvm.inference.calibration import Calibration
from bmsvm.inference.cross_validation import CrossValidation
from bmsvm.inference.evidence import EvidenceMaximum
from bmsvm.inference.modes import ModeCrossValidation
from bmsvm.kernels import Factor
from bmsvm.models.computed_basis import ComputedBasis
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.models.kernel_parameters import Design, KernelGrid
from bmsvm.models.problem import Problem
from bmsvm.models.reference import Reference

__all__ = ["STRUCTURES"]

STRUCTURES: tuple[type, ...] = (
    Calibration,
    ComputedBasis,
    CrossValidation,
    Design,
    Diagnosis,
    EvidenceMaximum,
    Factor,
    FeatureMap,
    Hyperparameters,
    KernelGrid,
    LowRank,
    ModeCrossValidation,
    Problem,
    Reference,
)
