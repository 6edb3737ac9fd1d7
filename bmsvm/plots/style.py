"""What all pictures share: axes, colours, markers, and names that are only text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MOST_VECTORS",
    "PALE",
    "STRONG",
    "Style",
    "axes_or_new",
    "class_style",
    "ink",
    "mark_class",
    "text_of",
]

COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#808080"),
)
PALE, STRONG = "#56B4E9", "#D55E00"
"""For what lies behind and before: far apart in lightness as well."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p")
LINES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (8, 3)))

LONGEST_NAME = 24

MOST_VECTORS = 2000
"""Points beyond which a file of vectors gets a picture of them."""


class Style(NamedTuple):
    """How a class is drawn. Of coprime numbers of each, so that many classes differ in something.

    colour, marker, line
        As Matplotlib understands them.
    """

    colour: str
    marker: str
    line: Any


def class_style(number: int) -> Style:
    """Return the style of a class, or of a chain, by its number."""
    return Style(
        COLOURS[number % len(COLOURS)],
        MARKERS[number % len(MARKERS)],
        LINES[number % len(LINES)],
    )


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes that were given, or those of a new figure."""
    if ax is not None:
        if not hasattr(ax, "add_artist"):
            raise TypeError(f"ax must be Matplotlib axes, or None for new ones; got {ax!r}")
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("bmsvm.plots needs Matplotlib: pip install 'bmsvm[plots]'") from error
    return plt.subplots(layout="constrained")[1]


def ink() -> Any:
    """Colour of what belongs to no class: that of the text, in the style of the time."""
    import matplotlib

    return matplotlib.rcParams["text.color"]


def mark_class(
    ax: Axes, points: np.ndarray, number: int, name: object, *, edge: Any, size: float = 18
) -> None:
    """Draw points (n, 2) as those of a class, under its name."""
    style = class_style(number)
    ax.scatter(
        points[:, 0],
        points[:, 1],
        s=size,
        marker=style.marker,
        color=style.colour,
        edgecolors=edge,
        linewidths=0.4,
        label=text_of(name),
        rasterized=len(points) > MOST_VECTORS,
    )


def text_of(name: object) -> str:
    """Write a name from the data so that Matplotlib shows it as it is, cut where it is long.

    Dollars are no mathematics, a leading underscore hides nothing from a legend, and what cannot
    be printed is replaced.
    """
    text = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(name)
    )
    if len(text) > LONGEST_NAME:
        text = text[: LONGEST_NAME - 1] + "…"
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
