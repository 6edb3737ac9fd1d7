"""Finished cells on disk: one JSON file each, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from bmsvm.checkpoint import replacing

__all__ = ["Named", "read_cell", "write_cell", "write_text"]


class Named(Protocol):
    """Part of an experiment that is run on its own: a named tuple with a name for its file."""

    @property
    def name(self) -> str:
        """Name of its file."""

    def _asdict(self) -> dict[str, Any]: ...


def _path(output: Path, cell: Named) -> Path:
    return output / "cells" / f"{cell.name}.json"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def write_cell(output: Path, cell: Named, numbers: dict[str, Any]) -> None:
    """Write a finished cell."""
    text = json.dumps({**cell._asdict(), **numbers}, indent=1)
    write_text(_path(output, cell), text + "\n")


def read_cell(
    output: Path, cell: Named, settings: dict[str, Any], needs: str = "error"
) -> dict[str, Any] | None:
    """Read a finished cell, which has a number called ``needs``; None where there is none.

    Raises
    ------
    ValueError
        If the file is damaged, or of a run with other settings.
    """
    path = _path(output, cell)
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        complete = isinstance(found, dict) and {needs, "settings"} <= set(found)
    except (ValueError, UnicodeDecodeError):
        complete = False
    if not complete:
        raise ValueError(f"{path} is no finished cell: remove it, and it will be run again")
    if found["settings"] != settings:
        raise ValueError(
            f"{path} was run with {found['settings']}, and this run has {settings}: give another "
            "--output"
        )
    return found
