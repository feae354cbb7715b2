"""Each value of a TOML document is found on its line."""

import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.simulation.toml_lines import KeyPath, TomlLines

_DOCUMENT = '''\
# a comment = 1
capacity = 5
dotted.inner."quoted key" = [1, # one
  2, {deep = [
    "]}", 3]}, # three
]
text = """
capacity = 7
[[tenant]]
""""
literal = \'\'\'
'# [x]\'\'\'

[table.sub]
a = 1979-05-27 07:32:00  # a date with a space
[[tenant]]
name = 'first'
  [tenant.generator]
  kind = "unique"
[[tenant]]
name = "sec\\"ond = 3"
limits = { floor = 1, "ceil=ing" = 2 }
[[tenant.part]]
x = 1
[[tenant.part]]
x = 2
'''


def test_values_of_all_kinds_are_found_on_their_lines() -> None:
    lines = TomlLines(_DOCUMENT)
    expected: dict[KeyPath, int] = {
        ("capacity",): 2,
        ("dotted",): 3,
        ("dotted", "inner", "quoted key"): 3,
        ("dotted", "inner", "quoted key", 1): 4,
        ("dotted", "inner", "quoted key", 2, "deep", 0): 5,
        ("text",): 7,
        ("literal",): 11,
        ("table",): 14,
        ("table", "sub", "a"): 15,
        ("tenant",): 16,
        ("tenant", 0): 16,
        ("tenant", 0, "name"): 17,
        ("tenant", 0, "generator"): 18,
        ("tenant", 0, "generator", "kind"): 19,
        ("tenant", 1): 20,
        ("tenant", 1, "name"): 21,
        ("tenant", 1, "limits", "ceil=ing"): 22,
        ("tenant", 1, "part", 0, "x"): 24,
        ("tenant", 1, "part", 1): 25,
        ("tenant", 1, "part", 1, "x"): 26,
    }
    assert {path: lines.line(path) for path in expected} == expected


def test_missing_value_is_looked_for_in_the_table_around_it() -> None:
    lines = TomlLines(_DOCUMENT)
    assert lines.line(("tenant", 1, "weight")) == 20
    assert lines.line(("tenant", 0, "generator", "rate", 3)) == 18
    assert lines.line(("nothing",)) == 1


def _paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths(inner, (*path, name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _paths(inner, (*path, position))


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {_inline(one)}' for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + "".join(f"{_inline(one)}, # ]\n" for one in value) + "]"
    return str(value)


_NAMES = st.text("ab]#=. '", min_size=1, max_size=4)
_VALUES = st.recursive(
    st.sampled_from(["1", "true", '"#"', "'['", '"""\n]"""', "1.5e3", "'''\n\"'''"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)
_TABLES = st.dictionaries(_NAMES, _VALUES, max_size=3)


@settings(deadline=None)  # the machine may be busy
@given(_TABLES, st.lists(_TABLES, max_size=3))
def test_every_value_of_a_document_has_a_line_of_its_own_top_level_key(
    top: dict[str, object], tables: list[dict[str, object]]
) -> None:
    text = "".join(f'"{name}" = {_inline(value)}\n' for name, value in top.items())
    text += "".join(
        "[[table]]\n" + "".join(f'"{name}" = {_inline(value)}\n' for name, value in table.items())
        for table in tables
    )
    lines = TomlLines(text)
    source = text.split("\n")
    last = 1
    for path in _paths(tomllib.loads(text)):
        line = lines.line(path)
        assert line >= last or path == ()
        last = line
        if path and isinstance(path[-1], str) and path != ("table",):
            assert path[-1] in source[line - 1]
