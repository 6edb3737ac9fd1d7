"""Inventories of other projects' documentation, for links to it (intersphinx).

An inventory that cannot be fetched is left out, so that pages are built without a network too: what
would have been a link to that project is then plain text, and no warning.
"""

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

__all__ = ["found_inventories"]


def _fetched(address: str, target: Path, timeout: float) -> bool:
    """Whether an inventory is on disk, fetched if it was not."""
    if target.exists():
        return True
    try:
        with urlopen(address, timeout=timeout) as answer:
            content = answer.read()
    except (URLError, OSError, ValueError):
        return False
    if not content.startswith(b"# Sphinx inventory"):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return True


def found_inventories(
    projects: dict[str, str], folder: Path, timeout: float = 5.0
) -> dict[str, tuple[str, str]]:
    """Return ``intersphinx_mapping`` for the projects whose inventories are there.

    Parameters
    ----------
    projects
        Address of the documentation of each project, ending in a slash.
    folder
        Where inventories are kept between builds.
    timeout
        Seconds to wait for the first; once one has not answered, one second for each other.
    """
    found = {}
    for name, address in projects.items():
        target = folder / f"{name}.inv"
        if not _fetched(f"{address}objects.inv", target, timeout):
            timeout = min(timeout, 1.0)
            continue
        found[name] = (address, str(target))
    return found
