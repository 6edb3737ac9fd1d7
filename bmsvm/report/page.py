"""The page around the sections: one file, no script, nothing to load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bmsvm._html import escaped
from bmsvm.report.figures import DARK, LIGHT

__all__ = ["figures", "page", "section", "table"]

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser may do with the page: show it."""

CSS = f"""
:root {{ color-scheme: light dark; --ink: {LIGHT["ink"]}; --paper: {LIGHT["paper"]};
  --soft: #57606a; --line: #d0d7de; --good: #1a7f37; --bad: #b42318; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: {DARK["ink"]}; --paper: {DARK["paper"]};
  --soft: #9aa4af; --line: #3a424b; --good: #4cc46a; --bad: #ff8a7a; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
main {{ max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.2rem; margin: 2.4rem 0 .5rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }}
p {{ max-width: 44rem; margin: .5rem 0; overflow-wrap: anywhere; }}
.verdict {{ font-size: 1.1rem; border-left: .3rem solid var(--bad); padding: .4rem 0 .4rem .8rem; }}
.verdict.good {{ border-color: var(--good); }}
.verdict strong {{ color: var(--bad); }}
.verdict.good strong {{ color: var(--good); }}
.soft {{ color: var(--soft); }}
.scroll {{ overflow-x: auto; max-width: 100%; }}
.tall {{ max-height: 32rem; overflow-y: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem; }}
th, td {{ text-align: left; padding: .3rem 1rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; max-width: 26rem; }}
.number {{ text-align: right; white-space: nowrap; }}
thead th {{ color: var(--soft); font-weight: 600; white-space: nowrap; }}
thead + tbody td {{ white-space: nowrap; max-width: none; }}
tbody th {{ min-width: 6rem; }}
.figures {{ display: grid; gap: 1.2rem 2rem; margin-top: .8rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }}
figure {{ margin: 0; min-width: 0; }}
img {{ max-width: 100%; height: auto; display: block; }}
figcaption {{ color: var(--soft); font-size: .9rem; margin-top: .2rem; }}
details summary {{ cursor: pointer; }}
@media (max-width: 40rem) {{ main {{ padding: 1rem .8rem 3rem; }} h1 {{ font-size: 1.4rem; }}
  th, td {{ padding-right: .7rem; }} }}
@media print {{ .tall {{ max-height: none; }} h2, figure {{ break-inside: avoid; }} }}
"""


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole document. The title is text, the body HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<link rel="icon" href="data:,">'
        f"<title>{escaped(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a section of parts in HTML under a heading."""
    return f"<section><h2>{escaped(title)}</h2>{''.join(parts)}</section>"


def figures(*drawn: str) -> str:
    """Return figures beside each other, as many as there is room for."""
    return f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()
) -> str:
    """Return a table, which scrolls where it is wider than the page or very long.

    Parameters
    ----------
    head
        Headings, as text; none for a table of names and values.
    rows
        Cells in HTML; the first of a row is its heading.
    numbers
        Columns that hold numbers.
    """
    right = set(numbers)

    def cell(tag: str, column: int, content: str, scope: str = "") -> str:
        kind = ' class="number"' if column in right else ""
        return f"<{tag}{kind}{scope}>{content}</{tag}>"

    top = "".join(cell("th", i, escaped(name), ' scope="col"') for i, name in enumerate(head))
    body = "".join(
        "<tr>"
        + cell("th", 0, row[0], ' scope="row"')
        + "".join(cell("td", i, content) for i, content in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    heading = f"<thead><tr>{top}</tr></thead>" if top else ""
    whole = f"<table>{heading}<tbody>{body}</tbody></table>"
    return f'<div class="scroll tall" tabindex="0">{whole}</div>'
