"""Links from pages to files of the repository, which readers of the repository follow.

In the built pages, which do not have them, such links are shown as text. A link to something that
does not exist is a warning.
"""

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

ROOT = Path(__file__).parents[2]
LOGGER = logging.getLogger(__name__)


class RepositoryLinks(SphinxTransform):
    """Unlink what lies outside the documentation, once it is known to be there."""

    default_priority = 5

    def apply(self, **kwargs) -> None:
        """Go through the links of one page."""
        here = Path(self.env.doc2path(self.env.docname)).parent
        kinds = (addnodes.pending_xref, addnodes.download_reference, nodes.reference)
        for node in list(self.document.findall(lambda each: isinstance(each, kinds))):
            target = node.get("reftarget") or node.get("refuri") or ""
            if not target.startswith("../"):
                continue
            path = (here / target.split("#")[0]).resolve()
            if not path.exists() or not path.is_relative_to(ROOT):
                LOGGER.warning("link to %s, which does not exist", target, location=node)
            node.replace_self(node.children)


def setup(app):
    """Register the transform."""
    app.add_transform(RepositoryLinks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
