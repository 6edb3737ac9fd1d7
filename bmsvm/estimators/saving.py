"""Estimators that save themselves."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["Savable"]


class Savable:
    """Mixin: ``save``."""

    def save(self, path: str | os.PathLike[str]) -> Any:
        """Save the fitted model, chains and all, to a file that :func:`bmsvm.load` reads.

        The file is netCDF and runs no code when it is loaded. It is replaced whole or not at all.

        Parameters
        ----------
        path
            Where to write, ``"model.nc"`` say.

        Returns
        -------
        self
            The model.
        """
        from bmsvm.persistence import save  # which knows the estimators

        save(self, path)  # type: ignore[arg-type]
        return self
