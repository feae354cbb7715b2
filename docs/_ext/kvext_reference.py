"""Sphinx directives whose content is read off the code when the pages are built.

`kvext-options`, `kvext-commands`, `kvext-errors`, `kvext-eviction TABLE`, `kvext-engines TABLE` and
`kvext-agent TABLE` stand in a page where their Markdown belongs.
"""

from collections.abc import Callable
from typing import ClassVar

import agent_text
import engines_text
import eviction_text
import reference_text
from docutils.nodes import (  # type: ignore[import-untyped] # its stubs are not worth a dependency
    Element,
    Node,
)
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata
from typing_extensions import override

__all__ = ["setup"]


class _Generated(SphinxDirective):
    """Renders the Markdown that a function returns in its place."""

    make_text: ClassVar[Callable[..., str]]

    @override
    def run(self) -> list[Node]:
        # The text depends on code that Sphinx does not watch.
        self.env.note_reread()
        text = type(self).make_text(*self.arguments)
        parent = Element()
        self.state.nested_parse(text.splitlines(), self.content_offset, parent, match_titles=True)
        return list(parent.children)


class _Options(_Generated):
    make_text = staticmethod(reference_text.options_text)


class _Commands(_Generated):
    make_text = staticmethod(reference_text.commands_text)


class _Errors(_Generated):
    make_text = staticmethod(reference_text.errors_text)


class _Eviction(_Generated):
    required_arguments = 1
    make_text = staticmethod(eviction_text.table_text)


class _Engines(_Generated):
    required_arguments = 1
    make_text = staticmethod(engines_text.table_text)


class _Agent(_Generated):
    required_arguments = 1
    make_text = staticmethod(agent_text.table_text)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.add_directive("kvext-options", _Options)
    app.add_directive("kvext-commands", _Commands)
    app.add_directive("kvext-errors", _Errors)
    app.add_directive("kvext-eviction", _Eviction)
    app.add_directive("kvext-engines", _Engines)
    app.add_directive("kvext-agent", _Agent)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
