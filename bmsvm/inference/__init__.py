"""What moves through the model: blocks, the NumPyro kernel that composes them."""

from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.presets import PRESETS, preset_blocks

__all__ = ["PRESETS", "BMSVMGibbs", "BMSVMState", "preset_blocks"]
