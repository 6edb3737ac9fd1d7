"""Settings of the documentation: ``make docs`` builds it, warnings being errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from inventories import found_inventories

import bmsvm

project = "bmsvm"
author = "bmsvm developers"
copyright = "bmsvm developers"
version = release = bmsvm.__version__

extensions = [
    "myst_nb",  # includes myst_parser
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
    "notebook_pages",
    "repository_links",
]
exclude_patterns = ["_build", "README.md"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are shown with the outputs they have
nb_ipywidgets_js = {}  # nothing is loaded from elsewhere

intersphinx_mapping = found_inventories(
    {
        "arviz": "https://python.arviz.org/en/stable/",
        "jax": "https://docs.jax.dev/en/latest/",
        "numpy": "https://numpy.org/doc/stable/",
        "numpyro": "https://num.pyro.ai/en/stable/",
        "python": "https://docs.python.org/3/",
        "scipy": "https://docs.scipy.org/doc/scipy/",
        "sklearn": "https://scikit-learn.org/stable/",
        "xarray": "https://docs.xarray.dev/en/stable/",
    },
    Path(__file__).parent / "_build" / "inventories",
)

viewcode_follow_imported_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
autodoc_use_type_comments = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"bmsvm {release}"
html_static_path = ["_static"]
html_css_files = ["bmsvm.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
