"""The moves of the sampler, one file each; none knows another."""

from bmsvm.inference.blocks.base import Block, Info, Phase, in_turn, memories, stateless
from bmsvm.inference.blocks.collapsed import collapsed
from bmsvm.inference.blocks.hamiltonian import hamiltonian
from bmsvm.inference.blocks.interweave import interweave
from bmsvm.inference.blocks.lengthscale import lengthscale
from bmsvm.inference.blocks.parameters import (
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
)
from bmsvm.inference.blocks.repeat import repeat
from bmsvm.inference.blocks.scale import scale
from bmsvm.inference.blocks.scores import exact_scores, metropolis_scores, truncated_scores
from bmsvm.inference.blocks.transport import transported_lengthscale

__all__ = [
    "Block",
    "Info",
    "Phase",
    "collapsed",
    "collapsed_parameters",
    "conjugate_parameters",
    "conjugate_precision",
    "exact_scores",
    "hamiltonian",
    "in_turn",
    "interweave",
    "lengthscale",
    "memories",
    "metropolis_scores",
    "repeat",
    "scale",
    "stateless",
    "transported_lengthscale",
    "truncated_scores",
]
