"""Reads kernel, cores and the cache's folder, and gathers all readings."""

import os
from pathlib import Path

from kvext.cxl import region_path
from kvext.cxl.cgroup import read_cgroup_memory
from kvext.doctor.readers.files import read_shared_files
from kvext.doctor.readers.folder import read_folder
from kvext.doctor.readers.memory import read_cpu_quota, read_memory
from kvext.doctor.readers.processes import pid_namespace, read_engines
from kvext.doctor.readers.software import read_software
from kvext.doctor.snapshot import Cache, Cores, Host, Pools, System
from kvext.protocol.digest_cache import default_cache_folder

__all__ = ["read_host"]

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where engines leave their files
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h."""


def read_host(folder: Path, name: str) -> Host:
    """Read everything, for pools in `folder` and the one called `name`."""
    software = read_software()
    pools = _pools(folder, name, core_loads=bool(software.instruction_sets))
    here = pid_namespace("self")
    attached = {pid for pool in pools.found for pid, space in pool.pids if space == here}
    return Host(
        software=software,
        system=_system(here),
        folder=read_folder(folder),
        files=read_shared_files(dict.fromkeys((folder.resolve(), _SHARED_MEMORY))),
        pools=pools,
        memory=read_memory(),
        cgroup=read_cgroup_memory(),
        cores=_cores(),
        cache=_cache(),
        engines=read_engines(attached),
    )


def _pools(folder: Path, name: str, *, core_loads: bool) -> Pools:
    if not core_loads:
        return Pools(region_path(folder, name))
    from kvext.doctor.readers.pools import read_pools  # noqa: PLC0415 - needs the native core

    return read_pools(folder, name)


def _system(here: int) -> System:
    kernel = os.uname()
    return System(
        kernel.sysname,
        kernel.release,
        kernel.machine,
        in_first_pid_namespace=here == _FIRST_PID_NAMESPACE,
    )


def _cores() -> Cores:
    return Cores(
        allowed=frozenset(os.sched_getaffinity(0)),
        num_online=os.cpu_count() or 1,
        quota=read_cpu_quota(),
        load=os.getloadavg()[0],
    )


def _cache() -> Cache:
    path = default_cache_folder().parent
    nearest = path
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    return Cache(path, nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK))
