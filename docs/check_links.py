"""Check that built pages link to what is there: ``python docs/check_links.py docs/_build/html``.

Links within the pages only: each file and each place in it. Nothing is fetched; but pages that
would load something from elsewhere are named too.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """Links of a page, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect identifiers and links."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            if name in ("href", "src"):
                self.links.append((tag, name, value))


def broken_links(root: Path) -> list[str]:
    """Return what is wrong, a line for each link."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in root.rglob("*.html")}
    if not pages:
        return [f"{root}: no pages"]
    wrong = []
    for path, page in pages.items():
        for tag, name, link in page.links:
            parts = urlsplit(link)
            where = f"{path.relative_to(root)}: {link}"
            if parts.scheme or parts.netloc:
                # A canonical address or the like is only named; a style or a script is fetched.
                if (tag, name) in LOADED and parts.scheme != "data":
                    wrong.append(f"{where} is loaded from elsewhere")
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                wrong.append(f"{where} does not exist")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].places
            ):
                wrong.append(f"{where}: no such place in the page")
    return wrong


if __name__ == "__main__":
    found = broken_links(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "every link leads somewhere")
    sys.exit(bool(found))
