"""Commands as a container runtime starts them: own processes, own mounts, own limit of memory."""

import errno
import functools
import os
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvext.cxl.cgroup import group_folders

__all__ = ["contained", "memory_folder", "memory_group", "require_namespaces"]

_NAMESPACES = ("unshare", "--pid", "--mount", "--fork", "--mount-proc", "--propagation", "private")
_GONE_DEADLINE_S = 10.0
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")


def require_namespaces() -> None:
    """Skip the test where this user may not make namespaces and mounts."""
    if not _may_make_namespaces():
        pytest.skip("needs root, and the right to make namespaces and to mount")


@functools.cache
def _may_make_namespaces() -> bool:
    if os.geteuid() != 0:
        return False
    trial = [*_NAMESPACES, "mount", "--bind", "/proc", "/proc"]
    return subprocess.run(trial, check=False, capture_output=True).returncode == 0


def contained(
    command: Sequence[str], *, shared_memory: Path | None = None, group: Path | None = None
) -> list[str]:
    """The command in PID and mount namespaces of its own, as their first process.

    Args:
        command: Its arguments.
        shared_memory: The folder that it sees as /dev/shm; None leaves the host's.
        group: The control group that it is put into.
    """
    script = 'exec "$@"'
    if shared_memory is not None:
        script = f"mount --bind {shlex.quote(str(shared_memory))} /dev/shm && {script}"
    start = [*_NAMESPACES, "sh", "-c", script, "sh", *command]
    if group is None:
        return start
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *start]


@contextmanager
def memory_folder(folder: Path, size: str) -> Iterator[Path]:
    """A folder of memory of a size such as "64m", as one that containers share."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group, of either version, whose processes may hold so much memory together."""
    group = _top() / f"kvext-test-{uuid.uuid4().hex[:12]}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of memory: {error}")
    try:
        _set_limit(group, limit_bytes)
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Once the last of its processes is gone, which takes the kernel a moment after a kill."""
    end_s = time.monotonic() + _GONE_DEADLINE_S
    while True:
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end_s:
                raise
            time.sleep(0.01)
        else:
            return


def _top() -> Path:
    """The outermost folder of the memory controller."""
    folders = [folder for _, folder in group_folders(Path("/"), "memory")]
    with_limits = [folder for folder in folders if _limit_file(folder) is not None]
    if not with_limits:
        pytest.skip("needs a control group of memory")
    return with_limits[-1]


def _limit_file(folder: Path) -> Path | None:
    return next((folder / name for name in _LIMIT_FILES if (folder / name).exists()), None)


def _set_limit(group: Path, limit_bytes: int) -> None:
    file = _limit_file(group)
    if file is None:
        pytest.skip("needs a memory controller for groups of its own")
    file.write_text(str(limit_bytes))
