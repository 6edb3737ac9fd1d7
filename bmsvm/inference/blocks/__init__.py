"""The moves of the sampler, one file each; none knows another."""

from bmsvm.inference.blocks.base import Block, Info, Phase, stateless
from bmsvm.inference.blocks.hamiltonian import hamiltonian
from bmsvm.inference.blocks.interweave import interweave
from bmsvm.inference.blocks.lengthscale import lengthscale
from bmsvm.inference.blocks.parameters import (
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
)
from bmsvm.inference.blocks.scale import scale
from bmsvm.inference.blocks.scores import exact_scores, metropolis_scores, truncated_scores

__all__ = [
    "Block",
    "Info",
    "Phase",
    "collapsed_parameters",
    "conjugate_parameters",
    "conjugate_precision",
    "exact_scores",
    "hamiltonian",
    "interweave",
    "lengthscale",
    "metropolis_scores",
    "scale",
    "stateless",
    "truncated_scores",
]
