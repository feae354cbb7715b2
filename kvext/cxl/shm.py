"""Regions as files in `/dev/shm` or any other folder.

A region appears under its name only when all of its memory is reserved: a store into a sparse
file on a full `/dev/shm` would kill the engine with SIGBUS. What the control group would not allow
is refused before the kernel kills for it. Of several processes that create the
same region, one does the work and the others wait for it.
"""

import errno
import fcntl
import mmap
import os
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvext.cxl.cgroup import limit_on
from kvext.errors import (
    PoolExists,
    PoolFolderMissing,
    PoolFull,
    PoolLockTimeout,
    PoolMissing,
    PoolOverMemoryLimit,
    PoolPermission,
)

__all__ = [
    "REGION_FORMAT",
    "create_region",
    "find_regions",
    "region_name",
    "region_path",
    "remove_region",
]

REGION_FORMAT = 2
"""Version of the on-media format (`native/format.hpp`)."""

Progress = Callable[[int, int], None]
"""Called with bytes reserved so far and bytes in all."""

_FILE_NAME = re.compile(r"kvext-(.+?)(\.v\d+)?\.pool")
_STEP_BYTES = 64 << 20
_POLL_S = 0.01
_MADV_POPULATE_WRITE = 23  # not among the constants of `mmap` yet
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
_CREATION_LOCK_AT = 1 << 61
"""The byte that a creator locks. The file it creates becomes the region, in which living processes
lock other bytes (`native/format.hpp`): whoever waits for the creator must not wait for them."""


def region_path(folder: Path, name: str) -> Path:
    """The file of the pool called `name`.

    The format's version is in it: while a host moves from one kvext to the next, engines of both
    keep pools of their own.
    """
    return folder / f"kvext-{name}.v{REGION_FORMAT}.pool"


def find_regions(folder: Path) -> list[Path]:
    """The pools of a folder, of every format's version."""
    return sorted(path for path in folder.glob("kvext-*") if _FILE_NAME.fullmatch(path.name))


def region_name(path: Path) -> str:
    """The name of the pool in a file, whatever the format's version."""
    match = _FILE_NAME.fullmatch(path.name)
    return match[1] if match else path.name


def create_region(
    path: Path,
    region_bytes: int,
    initialise: Callable[[Path], None],
    *,
    on_progress: Progress | None = None,
    wait_s: float = 600.0,
) -> None:
    """Reserve memory for a region, write its header and let it appear at `path`.

    Args:
        path: Where the region shall lie; its folder must exist.
        region_bytes: Size of the file; all of it is reserved at once.
        initialise: Writes the header into the file it is given (`Pool.initialise`).
        on_progress: Told after each 64 MiB.
        wait_s: Deadline for another process that is creating the same region.

    Raises:
        PoolExists: It is there already, or another process made it meanwhile.
        PoolFull: The folder has too little memory; nothing is left behind.
        PoolOverMemoryLimit: The control group has; nothing is left behind.
        PoolPermission: The folder may not be written.
        PoolFolderMissing: The folder does not exist.
        PoolLockTimeout: Another process has been creating it for longer than `wait_s`.
    """
    claim = path.with_name(path.name + ".new")
    with _claimed(claim, path, wait_s) as fd:
        if path.exists():
            if _same_file(fd, claim):
                claim.unlink()
            raise PoolExists(str(path))
        try:
            _reserve(fd, path, region_bytes, on_progress)
            initialise(claim)
        except BaseException:
            claim.unlink(missing_ok=True)
            raise
        claim.rename(path)


def remove_region(path: Path) -> None:
    """Take the region away. Processes that have mapped it keep their mapping until they close.

    Raises:
        PoolMissing: There is none.
        PoolPermission: It may not be removed.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        raise PoolMissing(str(path)) from None
    except PermissionError as error:
        raise PoolPermission(str(path), str(error.strerror)) from None


@contextmanager
def _claimed(claim: Path, path: Path, wait_s: float) -> Iterator[int]:
    """Hold the right to create, by a lock that the kernel drops if we die."""
    deadline = time.monotonic() + wait_s
    while True:
        fd = _open(claim, path)
        try:
            while not _try_lock(fd):
                if path.exists():
                    raise PoolExists(str(path))
                if time.monotonic() > deadline:
                    raise PoolLockTimeout(str(path), wait_s)
                time.sleep(_POLL_S)
            # Whoever held the lock before us may have renamed or removed this very file.
            if path.exists() or _same_file(fd, claim):
                yield fd
                return
        finally:
            os.close(fd)


def _open(claim: Path, path: Path) -> int:
    try:
        return os.open(claim, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise PoolFolderMissing(str(path)) from None
    except OSError as error:
        raise PoolPermission(str(path), str(error.strerror)) from None


def _try_lock(fd: int) -> bool:
    one_byte = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _CREATION_LOCK_AT, 1, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, one_byte)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _same_file(fd: int, claim: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), claim.stat())
    except FileNotFoundError:
        return False


def _reserve(fd: int, path: Path, region_bytes: int, on_progress: Progress | None) -> None:
    os.ftruncate(fd, 0)  # a creator that died may have left a part
    space = os.statvfs(path.parent)
    free_bytes = space.f_bavail * space.f_frsize
    if free_bytes < region_bytes:
        raise PoolFull(str(path), region_bytes, free_bytes)
    for start, num_bytes in _steps(region_bytes):
        # Again at each step: others in the group go on growing.
        _check_limit(path, region_bytes, reserved_bytes=start)
        try:
            os.posix_fallocate(fd, start, num_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise PoolFull(str(path), region_bytes, free_bytes) from None
    _populate(fd, region_bytes, on_progress)


def _check_limit(path: Path, region_bytes: int, reserved_bytes: int) -> None:
    group = limit_on(path.parent)
    if group.limit_bytes is None or group.room_bytes is None:
        return
    if group.room_bytes < region_bytes - reserved_bytes:
        used_bytes = max(group.used_bytes - reserved_bytes, 0)
        raise PoolOverMemoryLimit(str(path), region_bytes, group.limit_bytes, used_bytes)


def _steps(region_bytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, region_bytes, _STEP_BYTES):
        yield start, min(_STEP_BYTES, region_bytes - start)


def _populate(fd: int, region_bytes: int, on_progress: Progress | None) -> None:
    """Touch every page now (0.3-0.8 GB/s): reserved pages are zeroed at the first touch."""
    with mmap.mmap(fd, region_bytes) as region:
        for start, num_bytes in _steps(region_bytes):
            try:
                region.madvise(_MADV_POPULATE_WRITE, start, num_bytes)
            except OSError:  # a kernel before 5.14
                region[start : start + num_bytes] = bytes(num_bytes)
            if on_progress is not None:
                on_progress(start + num_bytes, region_bytes)
