"""The vocabulary is free of third parties: whoever speaks it needs Python and msgspec only."""

import ast
import sys
from pathlib import Path

import kvext

PACKAGE = Path(kvext.__file__).parent
ALLOWED = {*sys.stdlib_module_names, "kvext", "msgspec"}


def imported_top_levels(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def test_protocol_and_errors_import_only_the_standard_library_and_msgspec() -> None:
    sources = [*(PACKAGE / "errors").rglob("*.py"), *(PACKAGE / "protocol").rglob("*.py")]
    assert len(sources) > 1
    assert {path.name: imported_top_levels(path) - ALLOWED for path in sources} == {
        path.name: set() for path in sources
    }
