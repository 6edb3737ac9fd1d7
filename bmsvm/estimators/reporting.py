"""Estimators that report what they found."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["Reporting"]


class Reporting:
    """Mixin: ``report``."""

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        rows: Any = None,
        title: str | None = None,
    ) -> Any:
        """Write a report of the fitted model: one page of HTML that stands alone.

        It says what was run, whether the chains have converged, what was learned, which rows are
        predicted worst, and, given rows that were held out, how good the predictions are. It loads
        nothing and runs nothing; the file is replaced whole or not at all. Needs Matplotlib.

        Parameters
        ----------
        path
            Where to write, ``"report.html"`` say.
        X, y
            Held-out rows (m, p) and their labels (m,). Without them the training rows are looked
            at, which flatters the model.
        rows
            What the held-out rows are called, shape (m,). Default: the index of X, or 0, 1, ....
        title
            Heading of the page.

        Returns
        -------
        self
            The model.
        """
        from bmsvm.report import write_report  # which knows the estimators

        write_report(self, path, X, y, rows=rows, title=title)  # type: ignore[arg-type]
        return self
