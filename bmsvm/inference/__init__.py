"""What moves through the model: blocks, the NumPyro kernel of them, a runner; and theta set."""

from bmsvm.inference.cross_validation import CrossValidation, cross_validate
from bmsvm.inference.evidence import EvidenceMaximum, maximize_evidence
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.loo import LeaveOneOut, leave_one_out
from bmsvm.inference.modes import ModeCrossValidation, cross_validate_modes
from bmsvm.inference.presets import PRESETS, preset_blocks
from bmsvm.inference.run import Run, run_chains

__all__ = [
    "PRESETS",
    "BMSVMGibbs",
    "BMSVMState",
    "CrossValidation",
    "EvidenceMaximum",
    "LeaveOneOut",
    "ModeCrossValidation",
    "Run",
    "cross_validate",
    "cross_validate_modes",
    "leave_one_out",
    "maximize_evidence",
    "preset_blocks",
    "run_chains",
]
