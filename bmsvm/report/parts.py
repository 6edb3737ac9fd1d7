"""Parts of a report: sections of cards, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bmsvm.report.figures import Figure

LONGEST_NAME = 80
"""Longest name in a table; the rest is cut."""

DRAWN_ROWS = 1000


class Card(NamedTuple):
    """A number that is shown large, its name, and what there is to say about it."""

    name: str
    value: str
    notes: Sequence[str] = ()


class Table(NamedTuple):
    """A table: its heading, its rows, and the columns that hold numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


class Section(NamedTuple):
    """A part of the page: a heading, cards, paragraphs, a table, figures, a folded table."""

    title: str
    cards: Sequence[Card] = ()
    texts: Sequence[str] = ()
    table: Table | None = None
    figures: Sequence[Figure] = ()
    details: Table | None = None


def some(count: int) -> np.ndarray:
    """Return the indices of at most DRAWN_ROWS rows, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, DRAWN_ROWS)).astype(int))
