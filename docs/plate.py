"""Draw the model as a directed graph with plates: ``python docs/plate.py``.

Figure 1 of the paper, redrawn, with the plates that it leaves to the reader. Circles are random,
the shaded one is observed, dots are constants, and the double circle follows from its parents.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

TARGET = Path(__file__).parent / "images" / "plate.svg"
RADIUS, DOT = 24.0, 4.0
INK = "#24292f"


class Node(NamedTuple):
    """A variable: where it stands, what it is called, and of which kind it is."""

    x: float
    y: float
    text: str
    kind: str = "random"


NODES = {
    "a_s": Node(60, 40, "a_σ, b_σ", "constant"),
    "a_t": Node(230, 40, "a_τ, b_τ", "constant"),
    "eta": Node(400, 40, "η", "constant"),
    "a_k": Node(555, 40, "a_θ, b_θ", "constant"),
    "s": Node(60, 130, "σ²"),
    "t": Node(230, 130, "τ"),
    "b0": Node(400, 215, "b_0j"),
    "b": Node(230, 215, "β_j"),
    "theta": Node(555, 130, "θ"),
    "x": Node(675, 330, "x_i", "constant"),
    "k": Node(555, 330, "k_i", "determined"),
    "z": Node(315, 330, "z_ij"),
    "y": Node(315, 440, "y_i", "observed"),
}
EDGES = (
    *(("a_s", "s"), ("a_t", "t"), ("eta", "b0"), ("a_k", "theta"), ("s", "b"), ("t", "b")),
    *(("s", "b0"), ("s", "z"), ("b", "z"), ("b0", "z"), ("theta", "k"), ("x", "k"), ("k", "z")),
    *(("z", "y"), ("k", "b")),
)
PLATES = (
    (175, 180, 280, 195, "j = 1, …, c"),
    (255, 285, 460, 200, "i = 1, …, n"),
)
SIZE = (740, 505)


def label(text: str) -> str:
    """Return text with what follows an underscore set lower."""
    parts = []
    for word in text.split(", "):
        base, _, below = word.partition("_")
        lowered = f'<tspan dy="5" font-size="13">{below}</tspan><tspan dy="-5">&#8203;</tspan>'
        parts.append(f'<tspan font-style="italic">{base}</tspan>{lowered if below else ""}')
    return ", ".join(parts)


def radius(node: Node) -> float:
    """Return how far from the centre of a node its arrows end."""
    return DOT + 3 if node.kind == "constant" else RADIUS


def arrow(start: Node, end: Node) -> str:
    """Return an arrow from the edge of one node to that of another."""
    dx, dy = end.x - start.x, end.y - start.y
    length = math.hypot(dx, dy)
    ux, uy = dx / length, dy / length
    first = (start.x + radius(start) * ux, start.y + radius(start) * uy)
    last = (end.x - (radius(end) + 2) * ux, end.y - (radius(end) + 2) * uy)
    return (
        f'<line x1="{first[0]:.1f}" y1="{first[1]:.1f}" x2="{last[0]:.1f}" y2="{last[1]:.1f}" '
        'marker-end="url(#head)"/>'
    )


def shape(node: Node) -> str:
    """Return a node with its name."""
    text = f'text-anchor="middle" font-size="19" fill="{INK}" stroke="none"'
    if node.kind == "constant":
        side = f'x="{node.x:g}" y="{node.y - 14:g}"'
        dot = f'<circle cx="{node.x:g}" cy="{node.y:g}" r="{DOT:g}" fill="{INK}"/>'
        return f"{dot}<text {side} {text}>{label(node.text)}</text>"
    fill = "#d0d7de" if node.kind == "observed" else "#ffffff"
    circle = f'<circle cx="{node.x:g}" cy="{node.y:g}" r="{RADIUS:g}" fill="{fill}"/>'
    if node.kind == "determined":
        circle += f'<circle cx="{node.x:g}" cy="{node.y:g}" r="{RADIUS - 4:g}" fill="none"/>'
    return f'{circle}<text x="{node.x:g}" y="{node.y + 6:g}" {text}>{label(node.text)}</text>'


def plate(x: float, y: float, width: float, height: float, text: str) -> str:
    """Return a plate, its count in the lower right corner."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" '
        f'stroke-opacity=".55"/><text x="{x + width - 10}" y="{y + height - 9}" font-size="15" '
        f'text-anchor="end" fill="{INK}" stroke="none">{text}</text>'
    )


def svg() -> str:
    """Return the picture."""
    arrows = "".join(arrow(NODES[start], NODES[end]) for start, end in EDGES)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE[0]} {SIZE[1]}" '
        f'width="{SIZE[0]}" height="{SIZE[1]}" role="img" aria-labelledby="title" '
        "font-family=\"Georgia, 'Times New Roman', serif\">\n"
        '<title id="title">The hierarchical model as a directed graph with plates</title>\n'
        '<defs><marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0 10 5 0 10z" fill="{INK}"/></marker></defs>\n'
        f'<g stroke="{INK}" stroke-width="1.4">\n'
        + "\n".join([*(plate(*each) for each in PLATES), arrows, *map(shape, NODES.values())])
        + "\n</g>\n</svg>\n"
    )


if __name__ == "__main__":
    TARGET.write_text(svg(), encoding="utf-8")
