"""Notebooks as text (percent format): read into cells, in the full or in the small setting.

A line of a source may end in ``# small: VALUE``. The notebook has the line without this comment; in
the small setting, which only checks that the notebook runs, it assigns VALUE instead.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Cell", "cells_of"]

START = re.compile(r'^# %%(?P<markdown> \[markdown\])?(?: tags=\["(?P<tag>[\w-]+)"\])?$')
SMALL = re.compile(r"^(?P<line>\s*[\w ,]+ = .*?)  # small: (?P<value>.+)$")


class Cell(NamedTuple):
    """A cell: its kind, "code" or "markdown", its content and its tag, such as "hide-input"."""

    kind: str
    content: str
    tag: str | None = None


def cells_of(text: str, *, small: bool = False) -> list[Cell]:
    """Return the cells of a source."""
    cells: list[tuple[str, list[str], str | None]] = []
    for line in text.splitlines():
        if start := START.match(line):
            cells.append(("markdown" if start["markdown"] else "code", [], start["tag"]))
        elif cells:  # what is above the first cell is the header of Jupytext
            cells[-1][1].append(line)
    content = {
        "markdown": _uncommented,
        "code": lambda lines: [_set(each, small) for each in lines],
    }
    return [
        Cell(kind, "\n".join(content[kind](lines)).strip("\n"), tag) for kind, lines, tag in cells
    ]


def _uncommented(lines: list[str]) -> list[str]:
    return [re.sub(r"^# ?", "", line) for line in lines]


def _set(line: str, small: bool) -> str:
    """Return a line of code as it is in one of the settings."""
    found = SMALL.match(line)
    if not found:
        return line
    return f"{found['line'].split(' = ')[0]} = {found['value']}" if small else found["line"]
