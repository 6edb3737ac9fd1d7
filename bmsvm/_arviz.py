"""ArviZ, imported in one place and when it is first used: its import takes half a second.

ArviZ 0.23 warns of its 1.0 when it is imported. The package works with both, so its users need not
read this warning. The filter ends with the import; filters of the user stay as they are. The import
may run in a second thread, where ``warnings.catch_warnings`` could undo filters of the first.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from types import ModuleType
from typing import Any


@functools.cache
def load_arviz() -> ModuleType:
    """Import ArviZ, and return it."""
    warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
    ours = warnings.filters[0]
    import arviz

    with contextlib.suppress(ValueError):  # the first thread may have changed the list
        warnings.filters.remove(ours)  # type: ignore[attr-defined]
    return arviz


class _Lazy:
    """Stands for the module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load_arviz(), name)


arviz = _Lazy()
