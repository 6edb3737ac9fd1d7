"""ArviZ, imported in one place and when it is first used: its import takes half a second.

ArviZ 0.23 warns of its 1.0 when it is imported. The package works with both, so that its users need
not read this. The filter ends with the import; filters of the user stay as they are.
"""

from __future__ import annotations

import functools
import warnings
from types import ModuleType
from typing import Any


@functools.cache
def _imported() -> ModuleType:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
        import arviz
    return arviz


class _Lazy:
    """Stands for the module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(), name)


arviz = _Lazy()
