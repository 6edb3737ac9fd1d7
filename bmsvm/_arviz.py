"""ArviZ, imported in one place and when it is first used: its import takes half a second.

ArviZ 0.23 warns of its 1.0 when it is imported. The package works with both, so its users need not
read this warning. The filter ends with the import; filters of the user stay as they are. The import
may run in a second thread, where ``warnings.catch_warnings`` could undo filters of the first.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from types import ModuleType
from typing import Any, cast


@functools.cache
def load_arviz() -> ModuleType:
    """Import ArviZ, and return it."""
    said = re.compile(r"\s*ArviZ is undergoing a major refactor", re.I)
    ours = ("ignore", said, FutureWarning, None, 0)  # as warnings.filterwarnings makes it
    there: Any = warnings.filters
    there.insert(0, ours)
    import arviz

    for filters in (there, cast(Any, warnings.filters)):  # the first thread may have copied them
        with contextlib.suppress(ValueError):
            filters.remove(ours)
    return arviz


class _Lazy:
    """Stands for the module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load_arviz(), name)


arviz = _Lazy()
