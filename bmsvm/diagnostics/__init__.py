"""Fitted models for ArviZ, with the classes, rows and features named."""

from bmsvm.diagnostics.arviz import to_arviz

__all__ = ["to_arviz"]
