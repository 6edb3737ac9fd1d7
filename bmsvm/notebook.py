"""Models in notebooks: what was found, above scikit-learn's own picture of the settings.

The HTML stands alone: no script, nothing to fetch. Colours are those of the surrounding text, so
that it reads in light and in dark; every name that came with the data is escaped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import estimator_html_repr

from bmsvm._html import escaped, named
from bmsvm.summary import Lengthscale, Summary, Worst, summarise_model

__all__ = ["NotebookRepr", "summary_html"]

GOOD, BAD = "#2e9e5b", "#d9534f"
"""Of a lightness that stands out from white and from black."""

RULE = "border-bottom:1px solid rgba(128,128,128,.35)"
CELL = f"style='text-align:left;padding:.15em 1em .15em 0;{RULE}'"
NUMBER = f"style='text-align:right;padding:.15em 0 .15em 1em;{RULE}'"


class NotebookRepr:
    """Mixin: a fitted model shows its chains and classes; another one scikit-learn's diagram."""

    def _repr_html_inner(self) -> str:
        diagram = estimator_html_repr(self)
        if not hasattr(self, "posterior_"):
            return diagram
        return summary_html(summarise_model(self), type(self).__name__, diagram)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:  # scikit-learn can be told to show text only
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def summary_html(summary: Summary, title: str, diagram: str = "") -> str:
    """Render a summary.

    Parameters
    ----------
    summary
        The model in numbers.
    title
        Name of the estimator.
    diagram
        HTML to fold away below.
    """
    colour = GOOD if summary.converged else BAD
    rows = [
        ("Model", escaped(", ".join(f"{key} {value}" for key, value in summary.model.items()))),
        ("Data", escaped(f"{summary.num_rows} rows, {summary.num_features} features")),
        ("Chains", escaped(summary.sampling)),
        ("R-hat", _worst(summary.r_hat, "largest", ".3f")),
        ("Effective sample size", _worst(summary.ess, "smallest", ".0f")),
    ]
    if summary.lengthscale_text is not None:
        picture = _histogram(summary.lengthscale)
        rows.append(("Lengthscale", escaped(summary.lengthscale_text) + picture))
    facts = "".join(
        f"<tr><th scope='row' {CELL}>{name}</th><td {CELL}>{value}</td></tr>"
        for name, value in rows
    )
    folded = f"<details><summary>Settings</summary>{diagram}</details>" if diagram else ""
    return (
        "<div class='bmsvm' style='color:inherit;background:transparent;max-width:60em'>"
        f"<p style='margin:.3em 0'><strong>{escaped(title)}</strong> "
        f"<span style='color:{colour}'>●</span> {escaped(summary.verdict)}</p>"
        f"<table style='border-collapse:collapse;color:inherit;background:transparent'>{facts}"
        f"</table>{_classes(summary)}{folded}</div>"
    )


def _worst(worst: Worst | None, which: str, form: str) -> str:
    if worst is None:
        return "unknown: too few draws"
    return f"{format(worst.value, form)}, the {which}, of {named(worst.name)}"


def _classes(summary: Summary) -> str:
    rows = "".join(
        f"<tr><td {CELL}>{named(name)}</td><td {NUMBER}>{count}</td>"
        f"<td {NUMBER}>{count / summary.num_rows:.1%}</td></tr>"
        for name, count in summary.classes
    )
    return (
        "<div style='max-height:20em;overflow:auto'>"
        "<table style='border-collapse:collapse;color:inherit;background:transparent'>"
        f"<tr><th scope='col' {CELL}>Class</th><th scope='col' {NUMBER}>Rows</th>"
        f"<th scope='col' {NUMBER}>Share</th></tr>{rows}</table></div>"
    )


def _histogram(lengthscale: Lengthscale | np.ndarray | None) -> str:
    """Draw the posterior over the values that theta visited, the least on the left."""
    if not isinstance(lengthscale, Lengthscale):
        return ""
    visited = np.flatnonzero(lengthscale.shares)
    shares = lengthscale.shares[visited[0] : visited[-1] + 1]
    height = 24
    bars = "".join(
        f"<rect x='{4 * i}' y='{height - h:.1f}' width='3' height='{h:.1f}'></rect>"
        for i, h in enumerate(height * shares / shares.max())
    )
    width = 4 * len(shares)
    return (
        f"<br><svg role='img' aria-label='posterior of the lengthscale' width='{width}' "
        f"height='{height}' viewBox='0 0 {width} {height}' fill='currentColor' opacity='.7'>"
        f"{bars}</svg>"
    )
