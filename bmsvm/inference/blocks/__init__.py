"""The moves of the sampler; those of one step share a file, and no block imports another."""

from bmsvm.inference.blocks.base import Block, in_turn, memories, repeat, stateless
from bmsvm.inference.blocks.hamiltonian import hamiltonian
from bmsvm.inference.blocks.lengthscale import lengthscale
from bmsvm.inference.blocks.parameters import (
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
)
from bmsvm.inference.blocks.scale import scale
from bmsvm.inference.blocks.scores import exact_scores, metropolis_scores

__all__ = [
    "Block",
    "collapsed_parameters",
    "conjugate_parameters",
    "conjugate_precision",
    "exact_scores",
    "hamiltonian",
    "in_turn",
    "lengthscale",
    "memories",
    "metropolis_scores",
    "repeat",
    "scale",
    "stateless",
]
