"""Which blocks make a sweep: configuration as data."""

from __future__ import annotations

from bmsvm._validation import check_choice
from bmsvm.inference.blocks import (
    Block,
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
    exact_scores,
    hamiltonian,
    metropolis_scores,
    scale,
)

__all__ = ["PRESETS", "preset_blocks"]

PRESETS = ("default", "gibbs", "paper")


def preset_blocks(preset: str, likelihood: str) -> tuple[Block, ...]:
    """Return the blocks of one sweep.

    ``default``
        Momentum for everything, then tau, sigma2, b and B given the scores; under ``normalized``,
        which leaves the overall scale nearly free, the scale is moved on its own in between.
    ``paper``
        Section 4.1: random-walk Metropolis on the scores, conjugate sigma2, b, B, then tau.
    ``gibbs``
        Exact scores where the likelihood allows it, tau collapsed over everything Gaussian.
    """
    check_choice("preset", preset, PRESETS)
    if preset == "default":
        if likelihood == "hinge":
            return hamiltonian(), collapsed_parameters()
        return hamiltonian(), scale(), collapsed_parameters()
    if preset == "paper":
        return metropolis_scores(), conjugate_parameters(), conjugate_precision()
    scores = exact_scores() if likelihood == "hinge" else metropolis_scores()
    return scores, collapsed_parameters()
