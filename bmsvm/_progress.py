"""Progress bars: shown in a terminal or a notebook once work takes longer than two seconds.

The environment variable ``TQDM_DISABLE=1`` turns them off.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tqdm.auto import tqdm

DELAY = 2.0
"""Seconds before a bar appears."""


def progress(total: int, name: str, *, initial: int = 0, unit: str = "it") -> Any:
    """Return a progress bar, a context manager with ``update``; a silent one in a script."""
    notebook = "ipykernel" in sys.modules
    watched = notebook or (sys.stderr is not None and sys.stderr.isatty())
    # In a notebook tqdm itself does not look at the variable.
    off = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    disable = off or not watched
    return tqdm(total=total, initial=initial, desc=name, unit=unit, delay=DELAY, disable=disable)
