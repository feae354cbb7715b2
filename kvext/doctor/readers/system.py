"""Reads kernel, cores and the cache's folder, and gathers all readings."""

import os
from pathlib import Path

from kvext.cxl import region_path
from kvext.cxl.cgroup import read_cgroup_memory
from kvext.doctor.readers.files import read_shared_files
from kvext.doctor.readers.folder import read_folder
from kvext.doctor.readers.memory import read_cpu_quota, read_memory
from kvext.doctor.readers.namespaces import read_attached, read_confinement
from kvext.doctor.readers.processes import pid_namespace, read_engines
from kvext.doctor.readers.software import read_software
from kvext.doctor.snapshot import Cache, Cores, Host, Pools, System
from kvext.protocol.digest_cache import default_cache_folder

__all__ = ["read_host"]

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where engines leave their files
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h."""


def read_host(folder: Path, name: str, asked_bytes: int | None = None) -> Host:
    """Read everything.

    Args:
        folder: Where pools lie.
        name: The pool that is asked for.
        asked_bytes: The size that it shall have; None for an automatic one.
    """
    software = read_software()
    pools = Pools(region_path(folder, name), asked_bytes=asked_bytes)
    if software.instruction_sets:
        from kvext.doctor.readers.pools import read_pools  # noqa: PLC0415 - needs the native core

        pools = read_pools(folder, name, asked_bytes)
    attached = read_attached(process for pool in pools.found for process in pool.pids)
    return Host(
        software=software,
        system=_system(),
        folder=read_folder(folder),
        files=read_shared_files(dict.fromkeys((folder.resolve(), _SHARED_MEMORY))),
        pools=pools,
        memory=read_memory(),
        cgroup=read_cgroup_memory(),
        cores=_cores(),
        cache=_cache(),
        confinement=read_confinement(),
        attached=attached,
        engines=read_engines({process.seen_as for process in attached}),
    )


def _system() -> System:
    kernel = os.uname()
    return System(
        kernel.sysname,
        kernel.release,
        kernel.machine,
        in_first_pid_namespace=pid_namespace("self") == _FIRST_PID_NAMESPACE,
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
