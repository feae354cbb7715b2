"""Reads folders of shared memory: every file, its size, age, owner and whether it is held."""

import contextlib
import os
import pwd
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvext.doctor.readers.folder import lock_is_held
from kvext.doctor.readers.mounts import read_mount
from kvext.doctor.readers.processes import HeldFiles, read_held_files
from kvext.doctor.snapshot import Holder, SharedFile

__all__ = ["read_shared_files"]

_CLAIM_SUFFIX = ".pool.new"
_ALLOCATION_UNIT = 512  # of st_blocks, whatever the file system


def read_shared_files(folders: Iterable[Path]) -> tuple[SharedFile, ...]:
    """The regular files that lie directly in these folders."""
    seen = {path: state for folder in folders for path, state in _regular_files(folder)}
    held = read_held_files(seen)
    in_memory = {path.parent: read_mount(path.parent).kind == "tmpfs" for path in seen}
    now_s = time.time()
    return tuple(
        SharedFile(
            path=path,
            held_bytes=state.st_blocks * _ALLOCATION_UNIT,
            age_s=now_s - state.st_mtime,
            owner=_user_name(state.st_uid),
            holder=_holder(path, state, held),
            in_memory=in_memory[path.parent],
        )
        for path, state in seen.items()
    )


def _regular_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):  # it vanished meanwhile
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(state.st_mode):
                yield Path(entry.path), state


def _holder(path: Path, state: os.stat_result, held: HeldFiles) -> Holder:
    if path.name.endswith(_CLAIM_SUFFIX):
        return _claim_holder(path)
    if path in held.held:
        return Holder.LIVING
    user = os.geteuid()
    if state.st_uid in held.unseen_users or user not in (0, state.st_uid):
        return Holder.UNKNOWN
    return Holder.NOBODY


def _claim_holder(path: Path) -> Holder:
    """A creator holds a lock on its claim, which shows across PID namespaces."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return Holder.UNKNOWN
    try:
        return Holder.LIVING if lock_is_held(fd) else Holder.NOBODY
    except OSError:
        return Holder.UNKNOWN
    finally:
        os.close(fd)


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
