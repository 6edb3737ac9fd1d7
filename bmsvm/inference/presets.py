"""Which blocks make a sweep: configuration as data."""

from __future__ import annotations

import functools

from bmsvm._validation import check_choice
from bmsvm.inference import blocks
from bmsvm.inference.blocks import (
    Block,
    collapsed,
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
    exact_scores,
    hamiltonian,
    metropolis_scores,
    repeat,
    scale,
    truncated_scores,
)
from bmsvm.models.likelihoods import LIKELIHOODS

__all__ = ["LARGE", "PRESETS", "default_blocks", "preset_blocks"]

PRESETS = ("default", "gibbs", "paper")
"""Sweeps of any model."""

LARGE = "large"
"""A sweep for many rows."""


def preset_blocks(preset: str, likelihood: str, *, lengthscale: bool = False) -> tuple[Block, ...]:
    """Return the blocks of one sweep.

    ``default``
        Momentum for everything at once; under ``normalized``, which leaves the overall scale
        nearly free, the scale is then moved on its own. Under ``probit``: as ``gibbs``.
    ``paper``
        Section 4.1: random-walk Metropolis on the scores, conjugate sigma2, b, B, then tau.
    ``gibbs``
        Exact scores where the likelihood allows it, tau collapsed over everything Gaussian; under
        ``probit``, which says nothing of the scale, with the scale moved on its own.

    ``large``
        Momentum for weights, intercept, sigma2 and tau, scores integrated out at a few points: for
        many rows and a basis of low rank. Not with ``probit``, nor with theta sampled off a grid.

    ``lengthscale`` adds the moves of theta; under ``normalized`` the default then is two rounds.
    """
    check_choice("preset", preset, (*PRESETS, LARGE))
    check_choice("likelihood", likelihood, LIKELIHOODS)
    if preset == LARGE and likelihood == "probit":
        raise ValueError(
            'preset must be another than "large" with likelihood="probit", which has no slope to '
            'follow; got preset="large"'
        )
    return _with_lengthscale(preset, likelihood) if lengthscale else _blocks(preset, likelihood)


@functools.cache
def _with_lengthscale(preset: str, likelihood: str) -> tuple[Block, ...]:
    if preset == LARGE:
        return blocks.transported_lengthscale(), *_blocks(preset, likelihood)
    sweep = (*_blocks(preset, likelihood), blocks.lengthscale())
    # Theta and the scores depend on each other so much that one round moves theta little.
    twice = preset == "default" and likelihood == "normalized"
    return (repeat(sweep, 2),) if twice else sweep


@functools.cache
def _blocks(preset: str, likelihood: str) -> tuple[Block, ...]:
    """Build the blocks once, so that programs compiled for them are found again."""
    if preset == "paper":
        return metropolis_scores(), conjugate_parameters(), conjugate_precision()
    if preset == LARGE:
        return (collapsed(),)
    if likelihood == "probit":  # no slope to follow, and no scale in the labels
        return truncated_scores(), scale(), collapsed_parameters()
    if preset == "gibbs":
        scores = exact_scores() if likelihood == "hinge" else metropolis_scores()
        return scores, collapsed_parameters()
    return default_blocks(likelihood)


@functools.cache
def default_blocks(likelihood: str, hold: frozenset[str] = frozenset()) -> tuple[Block, ...]:
    """Return the default sweep of a likelihood with a slope; ``hold`` keeps tau or sigma2 fixed."""
    if likelihood == "hinge":
        return (hamiltonian(draw_weights=False, hold=hold),)
    momentum = hamiltonian(target_accept_prob=0.9, draw_weights=False, hold=hold)
    return (momentum,) if "noise_variance" in hold else (momentum, scale())
