"""Reads the pools of a folder as an observer; needs the native core."""

from pathlib import Path

from kvext.assembly import automatic_pool_bytes
from kvext.cxl import find_regions, region_path
from kvext.doctor.snapshot import Pools, PoolSeen
from kvext.errors import PoolError
from kvext.pool import Pool

__all__ = ["read_pools"]


def read_pools(folder: Path, name: str) -> Pools:
    """The pools in the folder; `name` is the one that is asked for."""
    found = tuple(_pool(path) for path in find_regions(folder))
    automatic_bytes = automatic_pool_bytes(folder) if folder.is_dir() else 0
    return Pools(region_path(folder, name), found, automatic_bytes)


def _pool(path: Path) -> PoolSeen:
    try:
        with Pool.attach(path) as observed:
            figures = observed.stat()
    except PoolError as error:
        return PoolSeen(path, _length(path), fault=str(error))
    pids = tuple((process.pid, process.pid_namespace) for process in figures.processes)
    return PoolSeen(
        path, figures.region_bytes, figures.num_committed, pids, bypassed=figures.bypassed
    )


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
