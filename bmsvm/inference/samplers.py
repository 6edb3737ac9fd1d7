"""The samplers that can be chosen, as objects that carry their options.

========================  ===================================================================
``HMC()``                 Momentum for scores, intercept, sigma2 and tau: the default.
``Gibbs()``               Exact draws of the scores where the likelihood allows it; tau with
                          everything Gaussian integrated out.
``Paper()``               Section 4.1: random-walk Metropolis on the scores, conjugate sigma2, b,
                          B, then tau.
``Table()``               Independent draws from a table of theta, tau and sigma2, under the squared
                          likelihood: its default.
``Blocks((...))``         Any blocks of :mod:`bmsvm.inference.blocks`, in order.
========================  ===================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bmsvm._validation import check_positive, check_sweeps
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.blocks import (
    Block,
    collapsed_parameters,
    conjugate_parameters,
    conjugate_precision,
    exact_scores,
    hamiltonian,
    lengthscale,
    metropolis_scores,
    repeat,
    scale,
)
from bmsvm.inference.sweep import block_sweep
from bmsvm.kernels.functions import Parametric
from bmsvm.models.problem import Problem
from bmsvm.models.theta import is_sampled


@dataclass(frozen=True)
class Sampler:
    """Base of the samplers.

    Parameters
    ----------
    thinning
        Sweeps for each draw.
    """

    thinning: int = 1

    def __post_init__(self) -> None:
        check_sweeps("thinning", self.thinning)

    def algorithm(self, problem: Problem) -> Algorithm:
        """Return the algorithm for a problem, always the same object for the same model."""
        # Thinning is an argument of the compiled program, and so no part of it.
        unthinned = replace(self, thinning=1)
        return _algorithm(unthinned, problem.likelihood, problem.samples_kernel)

    def blocks(self, likelihood: str) -> tuple[Block, ...]:
        """Return the blocks of one sweep at a fixed theta."""
        raise NotImplementedError

    def theta_moves(self) -> Block:
        """Return the block that moves theta."""
        return lengthscale()

    def __str__(self) -> str:
        return type(self).__name__


@functools.cache
def _algorithm(sampler: Sampler, likelihood: str, samples_kernel: bool) -> Algorithm:
    """Build an algorithm once, so that programs compiled for it are found again."""
    sweep = sampler.blocks(likelihood)
    if samples_kernel and not isinstance(sampler, Blocks):
        sweep = (*sweep, sampler.theta_moves())
        # Theta and the scores are strongly dependent: one round moves theta little.
        if isinstance(sampler, HMC) and likelihood == "normalized":
            sweep = (repeat(sweep, 2),)
    return block_sweep(sweep, as_in_paper=isinstance(sampler, Paper))


@dataclass(frozen=True)
class HMC(Sampler):
    """Hamiltonian Monte Carlo for scores, intercept, sigma2 and tau together.

    Under ``normalized``, which leaves the overall scale nearly free, the scale is then moved on its
    own.
    """

    def blocks(self, likelihood: str) -> tuple[Block, ...]:
        """Return the blocks of one sweep at a fixed theta."""
        if likelihood in ("hinge", "squared"):
            return (hamiltonian(),)
        return hamiltonian(), scale(every=4)


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Exact scores where the likelihood allows it; tau collapsed over everything Gaussian."""

    def blocks(self, likelihood: str) -> tuple[Block, ...]:
        """Return the blocks of one sweep at a fixed theta."""
        scores = exact_scores() if likelihood in ("hinge", "squared") else metropolis_scores()
        return scores, collapsed_parameters()


@dataclass(frozen=True)
class Paper(Sampler):
    """The sweep of section 4.1.

    Parameters
    ----------
    thinning
        The paper's M, sweeps for each draw.
    step_size
        Standard deviation of the proposal of a score.
    printed_ratio
        Whether theta moves by the ratio printed in the paper, which does not leave the posterior
        invariant (docs/paper.md), rather than by the correct one.
    """

    thinning: int = 10
    step_size: float = 1.0
    printed_ratio: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("step_size", self.step_size)
        if not isinstance(self.printed_ratio, bool):
            raise ValueError(f"printed_ratio must be True or False; got {self.printed_ratio!r}")

    def blocks(self, likelihood: str) -> tuple[Block, ...]:
        """Return the blocks of one sweep at a fixed theta."""
        return metropolis_scores(self.step_size), conjugate_parameters(), conjugate_precision()

    def theta_moves(self) -> Block:
        """Return the block that moves theta."""
        return lengthscale(moves=("paper",) if self.printed_ratio else ("collapsed",))


def paper_sampler(printed_ratio: bool, settings: Mapping[str, Any]) -> Paper:
    """Return the sampler of the constructors ``paper``.

    Raises
    ------
    ValueError
        If the settings beside ``printed_ratio=True`` have another sampler, or a theta that does not
        move.
    """
    sampler = Paper(printed_ratio=printed_ratio)
    if not printed_ratio:
        return sampler
    if "sampler" in settings:
        raise ValueError(
            "printed_ratio must not be given with a sampler, which has its own: give "
            f"sampler=Paper(printed_ratio=True); got {settings['sampler']!r}"
        )
    theta = settings.get("lengthscale")
    moves = is_sampled(theta) or isinstance(settings.get("kernel"), Parametric)
    if theta is not None and not moves:
        raise ValueError(
            'printed_ratio=True needs a lengthscale that is sampled, "sample" or '
            f"bmsvm.Sampled(...); {theta!r} does not move"
        )
    return sampler


@dataclass(frozen=True)
class Table(Sampler):
    """Independent draws from the posterior as a table, :mod:`bmsvm.inference.table`.

    For ``sum_to_zero`` with ``squared``, and theta fixed or on a grid. It is no Markov chain, needs
    no warm-up and compiles nothing: :func:`bmsvm.run_chains` and the classifier run it, and
    ``numpyro.infer.MCMC`` does not.
    """

    def algorithm(self, problem: Problem) -> Algorithm:
        """Raise ``ValueError``: there is no chain to run."""
        raise ValueError(
            'sampler="table" is no Markov chain: use bmsvm.run_chains or BMSVMClassifier, or pass '
            "sampler=HMC()"
        )


@dataclass(frozen=True)
class Blocks(Sampler):
    """A sweep of given blocks.

    Parameters
    ----------
    thinning
        Sweeps for each draw.
    sweep
        The blocks, in order; those that move theta included, if it is sampled.
    """

    sweep: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sweep or not all(isinstance(block, Block) for block in self.sweep):
            raise ValueError(f"sweep must be a tuple of blocks; got {self.sweep!r}")

    def blocks(self, likelihood: str) -> tuple[Block, ...]:
        """Return the blocks."""
        return self.sweep


NAMED: dict[str, type[Sampler]] = {
    "hmc": HMC,
    "gibbs": Gibbs,
    "paper": Paper,
    "table": Table,
}


def as_sampler(
    sampler: Any,
    *,
    likelihood: str = "normalized",
    coupling: str = "sum_to_zero",
    off_grid: bool = False,
) -> Sampler:
    """Return the sampler that a name or an object stands for.

    ``"auto"`` is :class:`Table` for the squared likelihood, if the model allows it, and
    :class:`HMC` otherwise.
    """
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str) and sampler == "auto":
        tabled = likelihood == "squared" and coupling == "sum_to_zero" and not off_grid
        return Table() if tabled else HMC()
    if not isinstance(sampler, str) or sampler not in NAMED:
        raise ValueError(
            f"sampler must be one of 'auto', {', '.join(map(repr, NAMED))}, or a sampler such as "
            f"bmsvm.HMC(); got {sampler!r}"
        )
    return NAMED[sampler]()
