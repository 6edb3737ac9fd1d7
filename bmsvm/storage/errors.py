"""What goes wrong with model files."""

from __future__ import annotations

__all__ = ["ModelFileError"]


class ModelFileError(ValueError):
    """A file that is not a model: foreign, truncated, damaged, or of a later version."""
