"""The mount table: what a folder lies on, and where the control groups are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["IN_MEMORY", "MountEntry", "mount_of", "read_mount_table"]

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems whose pages are memory that nothing but their removal gives back."""

_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True)
class MountEntry:
    """One line of /proc/self/mountinfo (proc_pid_mountinfo(5))."""

    root: str
    """The folder of the file system that is seen at the mount point."""
    point: str
    kind: str
    options: tuple[str, ...]


_UNKNOWN = MountEntry("/", "/", "unknown", ())


def read_mount_table(root: Path = Path("/")) -> list[MountEntry]:
    """All mounts that this process sees, in the order in which they were made."""
    try:
        text = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return list(_entries(text))


def mount_of(folder: Path, table: Sequence[MountEntry]) -> MountEntry:
    """The mount that an absolute path without symbolic links lies on."""
    covering = [entry for entry in table if folder.is_relative_to(entry.point)]
    # Of several at one point the last hides the others, and `max` takes the first it meets.
    return max(reversed(covering), key=lambda entry: len(entry.point), default=_UNKNOWN)


def _entries(text: str) -> Iterator[MountEntry]:
    for line in text.splitlines():
        before, _, behind = line.partition(" - ")
        fields, (kind, _, super_options) = before.split(" "), behind.split(" ", 2)
        options = dict.fromkeys((*fields[5].split(","), *super_options.split(",")))
        yield MountEntry(_plain(fields[3]), _plain(fields[4]), kind, tuple(options))


def _plain(text: str) -> str:
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return text
