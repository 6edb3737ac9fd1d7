"""Notebooks of the repository as pages, with the outputs they have.

They are copied to ``docs/notebooks``, which is not kept. Links between them and the pages, written
for readers of the repository, are turned into links between pages.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = "notebooks"
"""Folder of the pages."""


def copy_notebooks(app) -> None:
    """Copy the notebooks among the pages."""
    target = Path(app.srcdir) / PAGES
    target.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        shutil.copyfile(path, target / path.name)


def link_pages(app, docname: str, source: list[str]) -> None:
    """Change links to notebooks in pages, and links to pages in notebooks."""
    if docname.startswith(f"{PAGES}/"):
        source[0] = source[0].replace("](../docs/", "](../")
    else:
        source[0] = re.sub(rf"\]\(\.\./{PAGES}/(\w+\.ipynb)\)", rf"]({PAGES}/\1)", source[0])


def setup(app):
    """Register both."""
    app.connect("builder-inited", copy_notebooks)
    app.connect("source-read", link_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
