"""Reads what the kernel writes in /proc and /sys; a file that is not there reads as empty."""

from pathlib import Path

__all__ = ["read_fields", "read_number", "read_text"]


def read_text(path: Path) -> str:
    """A file's text without white space around it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """A file's one number; None if there is none, as where a limit says "max"."""
    text = read_text(path)
    return int(text) if text.isdigit() else None


def read_fields(path: Path) -> dict[str, int]:
    """Lines of the form "NAME NUMBER ..."."""
    lines = (line.split() for line in read_text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
