"""HTML representation of fitted models in notebooks."""

from __future__ import annotations

import html
from typing import Any

from sklearn.utils import estimator_html_repr

from bmsvm.summary import Summary, shown, summarise_model

MOST_CLASSES = 20
LONGEST_NAME = 80


class NotebookRepr:
    """Mixin: a fitted model shows a summary above scikit-learn's diagram of its parameters."""

    def _repr_html_inner(self) -> str:
        diagram = estimator_html_repr(self)
        if not hasattr(self, "posterior_"):
            return diagram
        return summary_html(summarise_model(self), type(self).__name__) + diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:  # not with scikit-learn's display="text"
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def summary_html(summary: Summary, title: str) -> str:
    """Return a summary as HTML, without scripts or links; all text is escaped."""
    mark = "✓" if summary.passed else "✗"
    classes = ", ".join(
        f"<bdi>{_escaped(name, LONGEST_NAME)}</bdi> {count}"
        for name, count in summary.classes[:MOST_CLASSES]
    )
    more = ", …" if len(summary.classes) > MOST_CLASSES else ""
    cells = {name: _escaped(value) for name, value in summary.facts.items()}
    rows = "".join(
        f"<tr><th scope='row' style='text-align:left'>{name}</th>"
        f"<td style='text-align:left'>{value}</td></tr>"
        for name, value in {**cells, "Training rows": classes + more}.items()
    )
    return (
        f"<div class='bmsvm'><p><strong>{_escaped(title)}</strong> {mark} "
        f"{_escaped(summary.verdict)}</p><table>{rows}</table></div>"
    )


def _escaped(value: object, longest: int = 240) -> str:
    return html.escape(shown(value, longest))
