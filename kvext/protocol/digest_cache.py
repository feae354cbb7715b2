"""File digests that were computed before, kept by what the file system says of the file.

An entry is believed only while device, inode, size, mtime and ctime are those it was written
for: changing a file's bytes changes its ctime, whatever is done to its mtime afterwards. A
damaged, foreign or unwritable cache costs a new reading of the weights, never an error.
"""

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

__all__ = ["DigestCache", "FileIdentity", "default_cache_folder"]

_SHA256_BYTES = 32
_SETTLED_AFTER_S = 2.0
"""Age of a file's last change from which a later change must show another ctime: the coarsest
timestamps of a file system in use (FAT)."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Which file this is, and which state of it, without reading it."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        """Take the five values from `os.stat` or `os.fstat`."""
        return cls(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    sha256: str

    def identity(self) -> FileIdentity:
        return FileIdentity(self.device, self.inode, self.size_bytes, self.mtime_ns, self.ctime_ns)


@dataclass(frozen=True, slots=True)
class DigestCache:
    """One small JSON file for every (device, inode) in `folder`."""

    folder: Path

    def knows(self, identity: FileIdentity) -> bool:
        """Whether some state of this file was met before, be it another one."""
        return self._read(identity) is not None

    def find(self, identity: FileIdentity) -> bytes | None:
        """The SHA-256 of the file in exactly this state, or None when it must be read."""
        entry = self._read(identity)
        if entry is None or entry.identity() != identity:
            return None
        try:
            digest = bytes.fromhex(entry.sha256)
        except ValueError:
            return None
        return digest if len(digest) == _SHA256_BYTES else None

    def remember(self, identity: FileIdentity, digest: bytes, read_at_s: float) -> None:
        """Keep a digest, unless the file changed so recently that a change could hide.

        Args:
            identity: The file's state before and after it was read.
            digest: SHA-256 of its bytes.
            read_at_s: Wall-clock time at which reading began, in seconds of the epoch; infinite
                when nothing was read.
        """
        if read_at_s - identity.ctime_ns / 1e9 < _SETTLED_AFTER_S:
            return
        entry = _Entry(
            identity.device,
            identity.inode,
            identity.size_bytes,
            identity.mtime_ns,
            identity.ctime_ns,
            digest.hex(),
        )
        with contextlib.suppress(OSError):
            self._replace(self._path(identity), msgspec.json.encode(entry))

    def _path(self, identity: FileIdentity) -> Path:
        return self.folder / f"{identity.device:x}-{identity.inode:x}.json"

    def _read(self, identity: FileIdentity) -> _Entry | None:
        try:
            with self._path(identity).open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                return msgspec.json.decode(file.read(4096), type=_Entry)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _replace(self, path: Path, content: bytes) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self.folder, prefix=".draft-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise


def default_cache_folder() -> Path:
    """`$XDG_CACHE_HOME/kvext/digests`, by default below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification has relative paths ignored.
    root = Path(base) if base.startswith("/") else Path("~/.cache").expanduser()
    return root / "kvext" / "digests"
