"""What moves through the model: blocks, the NumPyro kernel of them, and a runner."""

from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.presets import PRESETS, preset_blocks
from bmsvm.inference.run import Run, run_chains

__all__ = ["PRESETS", "BMSVMGibbs", "BMSVMState", "Run", "preset_blocks", "run_chains"]
