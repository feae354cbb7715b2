"""On which line of a TOML document a value stands, for errors about its meaning.

`tomllib` tells lines of syntax errors alone. This scans a document that `tomllib` has accepted,
hence it need not refuse anything.

Invariant: every key path of the parsed document has a line.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator

__all__ = ["KeyPath", "TomlLines"]

KeyPath = tuple[str | int, ...]
"""Names of tables and keys, positions in arrays: `("tenant", 1, "weight")`."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY_PART = re.compile(r'[ \t]*("(?:[^"\\]|\\.)*"|\'[^\']*\'|[A-Za-z0-9_-]+)[ \t]*(\.?)')
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class TomlLines:
    """Lines by key path."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._at = 0
        self._lines: dict[KeyPath, int] = {(): 1}
        self._counts: dict[KeyPath, int] = {}
        self._scan()

    def line(self, path: KeyPath) -> int:
        """The line of a value, or of the innermost table or array around it that is there."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def _scan(self) -> None:
        table: KeyPath = ()
        while self._skip_space() < len(self._text):
            if not self._text.startswith("[", self._at):
                self._pair(table)
                continue
            is_element = self._text.startswith("[[", self._at)
            start = self._at
            self._at += 2 if is_element else 1
            names = list(self._key())
            table = self._resolve(tuple(names[:-1]))
            table = (*table, names[-1])
            if is_element:
                position = self._counts.get(table, 0)
                self._counts[table] = position + 1
                table = (*table, position)
            else:
                table = self._resolve(tuple(names))
            self._note(table, start)
            self._at += 2 if is_element else 1

    def _resolve(self, names: KeyPath) -> KeyPath:
        """A header's path, in which the name of an array of tables means its last element."""
        path: KeyPath = ()
        for name in names:
            path = (*path, name)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        start = self._at
        path = table
        for name in self._key():
            path = (*path, name)
        self._note(path, start)
        self._at += 1  # the equals sign
        self._skip_space()
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._elements(path)
        elif opening == "{":
            self._pairs(path)
        else:
            pattern = _STRING if opening in ("'", '"') else _SCALAR
            match = pattern.match(self._text, self._at)
            self._at = match.end() if match else self._at + 1

    def _elements(self, path: KeyPath) -> None:
        self._at += 1
        position = 0
        while self._skip_space() < len(self._text) and self._text[self._at] != "]":
            self._note((*path, position), self._at)
            self._value((*path, position))
            self._skip_comma()
            position += 1
        self._at += 1

    def _pairs(self, path: KeyPath) -> None:
        self._at += 1
        while self._skip_space() < len(self._text) and self._text[self._at] != "}":
            self._pair(path)
            self._skip_comma()
        self._at += 1

    def _key(self) -> Iterator[str]:
        """The parts of a dotted key, which end before the equals sign or bracket."""
        more = "."
        while more and (match := _KEY_PART.match(self._text, self._at)):
            self._at = match.end()
            more = match[2]
            yield _unquoted(match[1])

    def _note(self, path: KeyPath, at: int) -> None:
        for depth in range(len(path), 0, -1):
            self._lines.setdefault(path[:depth], bisect_left(self._line_ends, at) + 1)

    def _skip_comma(self) -> None:
        if self._text.startswith(",", self._skip_space()):
            self._at += 1

    def _skip_space(self) -> int:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at


def _unquoted(part: str) -> str:
    if part.startswith('"'):
        try:
            return str(json.loads(part))
        except ValueError:  # TOML's \U, which JSON has not
            return part[1:-1]
    return part.strip("'")
