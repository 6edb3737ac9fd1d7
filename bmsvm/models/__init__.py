"""The probability model, written once: pure functions of arrays."""

from bmsvm.models.hierarchy import Position, coefficients, log_joint, log_likelihood, scores_of
from bmsvm.models.hyperparameters import DEFAULT, PAPER, Hyperparameters
from bmsvm.models.numpyro_model import Machine, hierarchical_model
from bmsvm.models.prepare import prepare
from bmsvm.models.problem import Problem
from bmsvm.models.theta import Sampled

__all__ = [
    "DEFAULT",
    "PAPER",
    "Hyperparameters",
    "Machine",
    "Position",
    "Problem",
    "Sampled",
    "coefficients",
    "hierarchical_model",
    "log_joint",
    "log_likelihood",
    "prepare",
    "scores_of",
]
