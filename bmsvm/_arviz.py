"""ArviZ, imported in one place.

ArviZ 0.23 warns of its 1.0 when it is imported. The package works with both, so that its users need
not read this. The filter ends with the import; filters of the user stay as they are.
"""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
    import arviz

__all__ = ["arviz"]
