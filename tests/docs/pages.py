"""The project's Markdown pages, cut into what can be held against the code."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS", "ROOT", "CodeBlock", "calls_of_kvext", "code_blocks", "links", "pages", "table"]

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SHELLS = ("", "sh", "console")
_ENDS = ("|", "&&", ";", ">", "&")
"""What ends a call in a shell."""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One fenced block of a page."""

    page: Path
    language: str
    text: str


def pages() -> list[Path]:
    """Every page for readers: the site's, those at the root and those beside files to deploy."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])


def code_blocks(page: Path) -> Iterator[CodeBlock]:
    """A page's fenced blocks; directives are none."""
    for language, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        if not language.startswith("{"):
            yield CodeBlock(page, language, text)


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links, without its code blocks."""
    yield from _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def calls_of_kvext(page: Path) -> Iterator[tuple[str, ...]]:
    """The words of each `kvext ...` that a page has readers type, in blocks and in running text."""
    text = page.read_text(encoding="utf-8")
    shells = (block.text for block in code_blocks(page) if block.language in _SHELLS)
    lines = "\n".join(shells).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
    for line in [*lines, *inline]:
        yield from _calls_in(line.removeprefix("$ "))


def _calls_in(line: str) -> Iterator[tuple[str, ...]]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # output, or a line that goes on in the next
        return
    while words and "=" in words[0]:  # variables of the environment
        words = words[1:]
    if len(words) > 1 and words[0].rpartition("/")[2] == "kvext":
        end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
        yield tuple(words[1:end])


def table(page: Path, heading: str) -> set[str]:
    """Every code word in the first column of the tables under a heading."""
    text = page.read_text(encoding="utf-8")
    start = text.index(f"# {heading}\n")
    end = text.find("\n#", start)
    rows = re.findall(r"^\|([^|]+)\|", text[start:end], re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}
