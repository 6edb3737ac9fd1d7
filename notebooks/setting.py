"""How large the notebooks are: with BMSVM_SMALL=1 set they only show that they run."""

import os
from typing import TypeVar

T = TypeVar("T")

SMALL = os.environ.get("BMSVM_SMALL", "0") not in ("", "0")


def size(full: T, small: T) -> T:
    """Return the first, or in the small setting the second."""
    return small if SMALL else full
