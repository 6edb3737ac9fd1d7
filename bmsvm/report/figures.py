"""Figures of a report as SVG images inside the page."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from bmsvm.plots.style import Axes

STYLE: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "bmsvm",  # the same figure has the same identifiers
}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


class Figure(NamedTuple):
    """A picture of a page: a data URL, its size in pixels, and its caption."""

    source: str
    width: int
    height: int
    caption: str


def figure(
    draw: Callable[[Axes], Any], caption: str, *, size: tuple[float, float] = (5.2, 3.7)
) -> Figure:
    """Draw a figure of a size in inches by a function of its axes."""
    data = base64.b64encode(svg_of(draw, size).encode("utf-8")).decode("ascii")
    width, height = (round(96 * side) for side in size)
    return Figure(f"data:image/svg+xml;base64,{data}", width, height, caption)


def svg_of(draw: Callable[[Axes], Any], size: tuple[float, float]) -> str:
    """Return a picture as an SVG element, independent of the current style of Matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise ImportError("a report needs Matplotlib: pip install 'bmsvm[report]'") from error
    buffer = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the reader's may have it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        canvas = Canvas(figsize=size, layout="constrained")
        draw(canvas.subplots())
        canvas.savefig(buffer, format="svg", metadata=NO_METADATA)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
