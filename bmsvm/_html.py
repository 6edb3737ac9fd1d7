"""Text for HTML: whatever it says, it stays text."""

from __future__ import annotations

import html

__all__ = ["escaped", "named"]

LONGEST_NAME = 80
LONGEST_TEXT = 3 * LONGEST_NAME


def escaped(value: object, longest: int = LONGEST_TEXT) -> str:
    """Escape anything, and cut it where it is long."""
    text = str(value)
    if len(text) > longest:
        text = text[:longest] + "…"
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def named(value: object) -> str:
    """Write a name from the data, cut where it is long; its writing direction stays its own."""
    text = str(value)
    cut = text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…"
    return f"<bdi>{escaped(cut)}</bdi>"
