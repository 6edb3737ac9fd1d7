"""The cells of the table: which row, on which data, with which lengthscale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bmsvm._validation import check_choice
from bmsvm.experiments.protocol import DATA, LEAVE_ONE_OUT, PAPER_THETA
from bmsvm.experiments.stack import Schedule

__all__ = ["ROWS", "THETAS", "Cell", "Row", "cells_of", "schedule_of"]


class Row(NamedTuple):
    """A row of the table.

    title
        What to call it.
    kind
        ``"completed"`` for the two readings of the printed algorithm, ``"own"`` for the models as
        this package samples them, ``"classifier"`` for what it does if nothing is said,
        ``"machine"``.
    variant
        How the missing scores are filled in; the likelihood; what the classifier is told; or the
        name of the machine.
    decides_by
        Class by the least probability of *not* being in it, ``"exclusion"``, eq. (20); by the
        largest ``"probability"``, eq. (21); or by the largest ``"score"``.
    """

    title: str
    kind: str
    variant: str
    decides_by: str


ROWS = {
    "bmsvm": Row("BMSVM, (13)-(19) as printed", "completed", "drawn", "exclusion"),
    "all_rows": Row("BMSVM, all rows (not stationary)", "completed", "sum", "exclusion"),
    "sum_to_zero": Row("sum to zero, hinge", "own", "hinge", "exclusion"),
    "normalized": Row("sum to zero, normalized", "own", "normalized", "probability"),
    "default": Row("BMSVMClassifier()", "classifier", "default", "probability"),
    "evidence": Row("BMSVMClassifier, theta by evidence", "classifier", "evidence", "probability"),
    "per_feature": Row(
        "BMSVMClassifier, theta per feature", "classifier", "per_feature", "probability"
    ),
    "msvm": Row("MSVM", "machine", "MSVMClassifier", "score"),
    "ovr": Row("OVR", "machine", "OneVsRestSVC", "score"),
    "altmsvm": Row("AltMSVM", "machine", "AltMSVM", "score"),
}

FOUND = {
    name: "evidence" if name in ("evidence", "per_feature") else "cv"
    for name, row in ROWS.items()
    if row.kind in ("classifier", "machine")
}
"""How theta is found in the rows where it is."""

NOT_OF_THE_PAPER = ("evidence", "per_feature")
"""Rows that are left out with ``theta="paper"`` unless they are asked for."""

SMOOTHED = ("sum_to_zero", "normalized")
"""Rows whose leave-one-out with sampled theta comes of one run, by importance sampling."""


class Cell(NamedTuple):
    """A number of the table: names of the row and of the data, and where theta comes from.

    theta
        ``"fixed"``, at the paper's value; ``"sampled"``; or found: by folds, ``"cv"``, or by the
        ``"evidence"``.
    """

    row: str
    data: str
    theta: str

    @property
    def name(self) -> str:
        """Name of the cell, and of its file."""
        return f"{self.row}-{self.data}-{self.theta}"

    @property
    def leaves_one_out(self) -> bool:
        """Whether each row is predicted from all others."""
        return self.data in LEAVE_ONE_OUT

    @property
    def smoothed(self) -> bool:
        """Whether leave-one-out comes of one run, by importance sampling."""
        return self.row in SMOOTHED and self.leaves_one_out and self.theta == "sampled"


THETAS = ("all", "paper", "sampled")
"""Which lengthscales of posteriors: the paper's and sampled ones; where it was sampled in the paper
only there; or sampled everywhere."""

PAPER_SCHEDULE = Schedule(pilot=0, warmup=5000, draws=500, thinning=10)
"""M1 = 10,000 sweeps, the first M2 = 5,000 dropped, every M = 10th kept."""

OWN_SCHEDULE = Schedule(pilot=150, warmup=50, draws=200, thinning=2)
OWN_SPLIT_SCHEDULE = Schedule(pilot=0, warmup=200, draws=150, thinning=2)
"""Of the package's own sampler, which needs fewer sweeps; four chains in a split."""

THETA_SCHEDULE = Schedule(pilot=0, warmup=300, draws=150, thinning=4)
"""Of splits in which it samples theta too."""

SMOOTHED_SCHEDULE = Schedule(pilot=0, warmup=1000, draws=500, thinning=1)
"""Of each chain from which leave-one-out is had by importance sampling."""

QUICK_SCHEDULE = Schedule(pilot=200, warmup=200, draws=100, thinning=1)


def schedule_of(cell: Cell, *, quick: bool = False, paper_sweeps: bool = False) -> Schedule:
    """How long the chains of a cell run."""
    if quick:
        return QUICK_SCHEDULE
    if ROWS[cell.row].kind == "completed":
        return PAPER_SCHEDULE
    own = OWN_SCHEDULE if cell.leaves_one_out else OWN_SPLIT_SCHEDULE
    if cell.theta == "sampled":
        own = SMOOTHED_SCHEDULE if cell.smoothed else THETA_SCHEDULE
    if paper_sweeps:
        return PAPER_SCHEDULE._replace(pilot=own.pilot)
    return own


def cells_of(
    rows: Sequence[str] | None = None, data: Sequence[str] | None = None, theta: str = "all"
) -> list[Cell]:
    """Cells of some rows, data and lengthscales, all by default, in the order of the table."""
    check_choice("theta", theta, THETAS)
    for name in rows or ():
        check_choice("rows", name, ROWS)
    for name in data or ():
        check_choice("data", name, DATA)
    if rows is None:
        rows = [row for row in ROWS if theta != "paper" or row not in NOT_OF_THE_PAPER]
    cells = []
    for which in dict.fromkeys(data or DATA):
        for row in dict.fromkeys(rows):
            if row in FOUND:
                cells.append(Cell(row, which, FOUND[row]))
                continue
            if which in PAPER_THETA and theta != "sampled":
                cells.append(Cell(row, which, "fixed"))
            if which not in PAPER_THETA or theta != "paper":
                cells.append(Cell(row, which, "sampled"))
    return cells
