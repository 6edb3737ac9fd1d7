"""Axes, colours, markers and names, the same in all plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

__all__ = [
    "MOST_VECTORS",
    "PALE",
    "STRONG",
    "Axes",
    "Style",
    "axes_or_new",
    "class_style",
    "legend_above",
    "legend_beside",
    "log_ticks",
    "mark_class",
    "text_colour",
    "text_of",
]

COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#808080"),
)
PALE, STRONG = "#56B4E9", "#D55E00"
"""Colours of the background and of the foreground, which differ in lightness too."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p")
LINES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (8, 3)))

LONGEST_NAME = 24

LONGEST_LEGEND = 16
"""Largest number of entries of a legend in one column."""

MOST_VECTORS = 2000
"""Number of points above which a vector file holds them as an image."""


class Style(NamedTuple):
    """Colour, marker and line style of a class, as Matplotlib takes them."""

    colour: str
    marker: str
    line: Any


def class_style(number: int) -> Style:
    """Return the style of a class or of a chain.

    The numbers of colours, markers and line styles are coprime, so that many styles differ.
    """
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


def legend_above(ax: Axes, *args: Any) -> None:
    """Put the legend in one line above the axes, where it covers nothing."""
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    count = len(args[0]) if args else len(ax.get_legend_handles_labels()[1])
    ax.legend(*args, ncols=min(count, 4), fontsize="small", frameon=False, **place)


def legend_beside(ax: Axes) -> None:
    """Put a legend of many entries to the right of the axes, in columns."""
    count = len(ax.get_legend_handles_labels()[1])
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02)}
    columns = -(-count // LONGEST_LEGEND)
    spacing: dict[str, Any] = {"columnspacing": 0.8, "handletextpad": 0.2, "borderpad": 0.2}
    ax.legend(ncols=columns, fontsize="x-small", frameon=False, **place, **spacing)


def log_ticks(ax: Axes) -> None:
    """Label a logarithmic x axis with few plain numbers that do not overlap, on any range."""
    from matplotlib import ticker

    low, high = ax.get_xlim()
    decades = np.log10(high / low)
    if decades < 0.8:
        places: Any = ticker.MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    elif decades < 1.8:
        places = ticker.LogLocator(subs=(1, 2, 5))
    elif decades < 3:
        places = ticker.LogLocator(subs=(1, 3))
    else:
        places = ticker.LogLocator(numticks=6)
    ax.xaxis.set_major_locator(places)
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.6g}"))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())


def text_colour() -> Any:
    """Colour of text in the current style, for everything that belongs to no class."""
    import matplotlib

    return matplotlib.rcParams["text.color"]


def mark_class(ax: Axes, points: np.ndarray, number: int, name: object, *, edge: Any) -> None:
    """Draw points (n, 2) in the style of a class, labelled with its name."""
    style = class_style(number)
    ax.scatter(
        points[:, 0],
        points[:, 1],
        s=18,
        marker=style.marker,
        color=style.colour,
        edgecolors=edge,
        linewidths=0.4,
        label=text_of(name),
        rasterized=len(points) > MOST_VECTORS,
    )


def text_of(name: object) -> str:
    """Return a name from the data such that Matplotlib shows it literally, cut if it is long.

    Dollar signs are escaped, a leading underscore does not hide it from a legend, and characters
    that cannot be printed are replaced.
    """
    text = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(name)
    )
    if len(text) > LONGEST_NAME:
        text = text[: LONGEST_NAME - 1] + "…"
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
