"""The probability model, written once: pure functions of arrays."""

from bmsvm.models.hierarchy import Position, coefficients, log_joint, log_likelihood, scores_of
from bmsvm.models.hyperparameters import PAPER, UNIT_NOISE, Hyperparameters
from bmsvm.models.numpyro_model import hierarchical_model
from bmsvm.models.problem import Problem, prepare

__all__ = [
    "PAPER",
    "UNIT_NOISE",
    "Hyperparameters",
    "Position",
    "Problem",
    "coefficients",
    "hierarchical_model",
    "log_joint",
    "log_likelihood",
    "prepare",
    "scores_of",
]
