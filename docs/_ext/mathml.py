"""Formulas as MathML, made when the pages are built: nothing is loaded to show them."""

import latex2mathml.converter
from docutils import nodes


def _formula(node: nodes.Element, display: str) -> str:
    return latex2mathml.converter.convert(node.astext(), display=display)


def visit_inline(self, node: nodes.Element) -> None:
    """Write a formula in a line of text."""
    self.body.append(_formula(node, "inline"))
    raise nodes.SkipNode


def visit_block(self, node: nodes.Element) -> None:
    """Write a formula of its own, with its number if it has one."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node.get("number"):
        number = self.builder.env.domains["math"].get_equation_number_for(node["label"])
        self.body.append(f'<span class="eqno">({number})</span>')
    self.body.append(_formula(node, "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
