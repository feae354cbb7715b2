"""How the documentation is built: `make docs`, or `sphinx-build docs build/docs`."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import kvext

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "kvext"
author = "the kvext authors"
version = release = kvext.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "kvext_reference"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "_static", "figures"]
nitpicky = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "kvext"
html_static_path = ["_static"]
html_css_files = ["kvext.css"]
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Let the pages in Chinese say so to browsers and screen readers."""
    app.connect("html-page-context", _set_language)


def _set_language(
    _app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    if page.startswith("zh/"):
        context["language"] = "zh-CN"


# One page documents Python objects (pool-api); types from elsewhere have no page here.
nitpick_ignore_regex = [("py:(class|exc|obj)", ".*")]
autodoc_member_order = "bysource"
