"""Reads the pool's folder, and tries its locks for real."""

import fcntl
import os
import struct
import tempfile
from pathlib import Path

from kvext.doctor.readers.mounts import read_mount
from kvext.doctor.snapshot import Folder, LockTrial

__all__ = ["lock_is_held", "read_folder"]

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux


def read_folder(path: Path) -> Folder:
    """The folder as it is, with a lock tried in it on a file that vanishes again."""
    trial, fault = _try_locks(path)
    return Folder(
        path=path,
        exists=path.is_dir(),
        writable=os.access(path, os.W_OK | os.X_OK),
        mount=read_mount(path),
        locks=trial,
        lock_fault=fault,
    )


def lock_is_held(fd: int) -> bool:
    """Whether another open file description has an open-file-description lock on the file."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
    return int(struct.unpack_from("h", answer)[0]) != fcntl.F_UNLCK


def _try_locks(folder: Path) -> tuple[LockTrial, str]:
    try:
        fd, name = tempfile.mkstemp(dir=folder, prefix=".kvext-doctor-")
    except OSError:
        return LockTrial.NOT_TRIED, ""
    try:
        return (LockTrial.WORKS if _excludes(fd, name) else LockTrial.NOT_ENFORCED), ""
    except OSError as error:
        return LockTrial.REFUSED, str(error.strerror)
    finally:
        os.close(fd)
        Path(name).unlink(missing_ok=True)


def _excludes(fd: int, name: str) -> bool:
    """Whether a second opener is kept out while the first holds the lock, and only then."""
    holder = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.fcntl(holder, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
        kept_out = lock_is_held(fd)
    finally:
        # Closing is what death does.
        os.close(holder)
    return kept_out and not lock_is_held(fd)


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
