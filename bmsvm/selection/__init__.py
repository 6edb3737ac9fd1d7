"""The lengthscale, and the prior of tau, chosen from the data before sampling."""

from typing import Any

from bmsvm.selection.base import Method, Selection
from bmsvm.selection.modes import ModeCV, ModeSelection
from bmsvm.selection.squares_cv import SquaresCV

__all__ = [
    "Method",
    "ModeCV",
    "ModeSelection",
    "Selection",
    "SquaresCV",
    "as_method",
]

NAMED: dict[str, type[Method]] = {"mode-cv": ModeCV, "squares-cv": SquaresCV}
"""Shorthand for the methods that choose a lengthscale, with default options."""


def as_method(lengthscale: Any) -> Method | None:
    """Return the method that a name or an object stands for.

    None if the lengthscale is a number, an array or sampled.
    """
    if isinstance(lengthscale, Method):
        return lengthscale
    if not isinstance(lengthscale, str) or lengthscale == "sample":
        return None
    if lengthscale not in NAMED:
        raise ValueError(
            "lengthscale must be a positive number, one per feature, 'auto', 'sample', "
            f"{', '.join(map(repr, NAMED))}, or an object such as bmsvm.ModeCV() or "
            f"bmsvm.Sampled(); got {lengthscale!r}"
        )
    return NAMED[lengthscale]()
