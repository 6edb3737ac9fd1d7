"""Figures as SVG images that follow the colour scheme of the reader, light or dark."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from bmsvm.plots.style import Axes

__all__ = ["DARK", "LIGHT", "Figure", "figure", "svg_of"]

LIGHT = {"ink": "#24292f", "paper": "#ffffff"}
DARK = {"ink": "#d5dae0", "paper": "#1b1f24"}
"""Colours of text and background."""

INK, PAPER = "#010203", "#fdfcfb"
"""Placeholders of text and background while Matplotlib draws; not used for anything else."""

ON_DARK = {
    "#0072b2": "#4ba3e3",
    "#009e73": "#2cc295",
    "#d55e00": "#ff8a3d",
    "#808080": "#a8a8a8",
}
"""Colours of classes that are too dark for a dark page, and their replacements there."""

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
    """Return a picture as an SVG element.

    Parameters
    ----------
    draw
        Called with the axes to draw on.
    size
        Width and height in inches.
    on_light
        Whether the picture has a light background of its own, so that the colours of classes stay
        the same in the dark scheme.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise ImportError("a report needs Matplotlib: pip install 'bmsvm[report]'") from error
    buffer = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Glyph .* missing from font"
        )  # the reader's font may have it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, STYLE))
        canvas = Canvas(figsize=size, layout="constrained")
        draw(canvas.subplots())
        canvas.savefig(buffer, format="svg", metadata=NO_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "var(--ink)").replace(PAPER, "var(--paper)")
    for number, colour in enumerate(() if on_light else ON_DARK):
        text = text.replace(colour, f"var(--c{number})")
    start = text.index(">") + 1
    dark = f"@media (prefers-color-scheme:dark){{{_colours(DARK, ON_DARK.values())}}}"
    return f"{text[:start]}<style>{_colours(LIGHT, ON_DARK)}{dark}</style>{text[start:]}"


def _colours(theme: dict[str, str], classes: Iterable[str]) -> str:
    """Return the colours of a scheme as CSS variables."""
    each = {**theme, **{f"c{number}": colour for number, colour in enumerate(classes)}}
    return f":root{{{';'.join(f'--{name}:{colour}' for name, colour in each.items())}}}"


class Figure(NamedTuple):
    """A picture of a page: a data URL, its size in pixels, and its caption."""

    source: str
    width: int
    height: int
    caption: str


def figure(
    draw: Callable[[Axes], Any],
    caption: str,
    *,
    size: tuple[float, float] = (5.2, 3.7),
    on_light: bool = False,
) -> Figure:
    """Draw a figure of a size in inches; see :func:`svg_of`."""
    data = base64.b64encode(svg_of(draw, size, on_light=on_light).encode("utf-8")).decode("ascii")
    width, height = (round(96 * side) for side in size)
    return Figure(f"data:image/svg+xml;base64,{data}", width, height, caption)
