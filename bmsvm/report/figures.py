"""Pictures inside a page: vectors that take the page's colours, by day and by night."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from bmsvm._html import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DARK", "LIGHT", "figure_html", "svg_of"]

LIGHT = {"ink": "#24292f", "paper": "#ffffff"}
DARK = {"ink": "#d5dae0", "paper": "#1b1f24"}
"""Colours of text and background."""

INK, PAPER = "#010203", "#fdfcfb"
"""Stand for these two while Matplotlib draws, and occur nowhere else."""

BY_NIGHT = {
    "#0072b2": "#4ba3e3",
    "#009e73": "#2cc295",
    "#d55e00": "#ff8a3d",
    "#808080": "#a8a8a8",
}
"""Colours of classes that are too dark for a dark page, and what takes their place there."""

STYLE: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.size": 11,
    "legend.edgecolor": INK,
    "legend.facecolor": PAPER,
    "legend.framealpha": 0.85,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "bmsvm",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def svg_of(
    draw: Callable[[Axes], Any], size: tuple[float, float], *, on_light: bool = False
) -> str:
    """Return what is drawn on axes as an SVG element, of a size in inches.

    Where it is drawn on a light ground of its own, the colours of classes stay what they are.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a report needs Matplotlib: pip install 'bmsvm[plots]'") from error
    buffer = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the reader's may have it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, STYLE))
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "var(--ink)").replace(PAPER, "var(--paper)")
    for number, colour in enumerate(() if on_light else BY_NIGHT):
        text = text.replace(colour, f"var(--c{number})")
    start = text.index(">") + 1
    dark = f"@media (prefers-color-scheme:dark){{{_colours(DARK, BY_NIGHT.values())}}}"
    return f"{text[:start]}<style>{_colours(LIGHT, BY_NIGHT)}{dark}</style>{text[start:]}"


def _colours(theme: dict[str, str], classes: Iterable[str]) -> str:
    """Return the colours of a theme as variables."""
    each = {**theme, **{f"c{number}": colour for number, colour in enumerate(classes)}}
    return f":root{{{';'.join(f'--{name}:{colour}' for name, colour in each.items())}}}"


def figure_html(
    draw: Callable[[Axes], Any],
    *,
    alt: str,
    caption: str,
    size: tuple[float, float] = (5.2, 3.7),
    on_light: bool = False,
) -> str:
    """Return a figure element with its picture inlined.

    Parameters
    ----------
    draw
        Called with the axes to draw on.
    alt
        What there is to be seen, for those who do not see it.
    caption
        Text below the picture.
    size
        Width and height in inches.
    on_light
        Whether the picture brings a light ground of its own.
    """
    data = base64.b64encode(svg_of(draw, size, on_light=on_light).encode("utf-8")).decode("ascii")
    width, height = (round(96 * side) for side in size)
    return (
        f'<figure><img src="data:image/svg+xml;base64,{data}" width="{width}" height="{height}" '
        f'alt="{escaped(alt)}"><figcaption>{escaped(caption)}</figcaption></figure>'
    )
