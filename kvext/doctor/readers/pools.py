"""Reads the pools of a folder as an observer; needs the native core."""

import os
import stat
from pathlib import Path

from kvext.assembly import automatic_pool_bytes
from kvext.cxl import find_regions, region_path
from kvext.doctor.readers.folder import lock_is_held
from kvext.doctor.snapshot import FileAccess, Pools, PoolSeen
from kvext.errors import PoolError, PoolVersionMismatch
from kvext.pool import Pool

__all__ = ["read_pools"]


def read_pools(folder: Path, name: str, asked_bytes: int | None = None) -> Pools:
    """The pools in the folder; `name` is the one that is asked for, `asked_bytes` its size."""
    found = tuple(_pool(path) for path in find_regions(folder))
    automatic_bytes = automatic_pool_bytes(folder) if folder.is_dir() else 0
    return Pools(region_path(folder, name), found, automatic_bytes, asked_bytes)


def _pool(path: Path) -> PoolSeen:
    try:
        with Pool.attach(path) as observed:
            figures = observed.stat()
    except PoolError as error:
        return PoolSeen(
            path,
            _length(path),
            fault=str(error),
            access=_access(path),
            of_other_format=isinstance(error, PoolVersionMismatch),
            locked=_is_locked(path),
        )
    pids = tuple((process.pid, process.pid_namespace) for process in figures.processes)
    return PoolSeen(
        path,
        figures.region_bytes,
        figures.num_committed,
        pids,
        bypassed=figures.bypassed,
        access=_access(path),
    )


def _access(path: Path) -> FileAccess | None:
    try:
        state = path.stat()
    except OSError:
        return None
    usable = os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    return FileAccess(state.st_uid, stat.S_IMODE(state.st_mode), usable)


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return lock_is_held(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
