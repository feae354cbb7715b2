"""Reads the host's memory, and the CPU quota of either version of cgroups."""

import contextlib
import resource
from pathlib import Path

from kvext.cxl.cgroup import group_folders
from kvext.cxl.kernel_files import read_fields, read_text
from kvext.doctor.snapshot import Memory

__all__ = ["read_cpu_quota", "read_memory"]

_ROOT = Path("/")


def read_memory(root: Path = _ROOT) -> Memory:
    """What is available now, and what may be locked."""
    meminfo = read_fields(root / "proc/meminfo")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    setting = read_text(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled")
    return Memory(
        available_bytes=meminfo.get("MemAvailable:", 0) << 10,
        memlock_bytes=None if locked == resource.RLIM_INFINITY else locked,
        # The choices in a row, the chosen one in brackets.
        shmem_huge_pages=setting.partition("[")[2].partition("]")[0],
    )


def read_cpu_quota(root: Path = _ROOT) -> float | None:
    """Cores' worth of time that this process may use; None without a quota."""
    quotas: list[float] = []
    for version, folder in group_folders(root, "cpu"):
        if version == 1:
            quota = read_text(folder / "cpu.cfs_quota_us")
            period = read_text(folder / "cpu.cfs_period_us")
        else:
            quota, _, period = read_text(folder / "cpu.max").partition(" ")
        with contextlib.suppress(ValueError):  # "max", or nothing to read
            if int(quota) > 0:
                quotas.append(int(quota) / int(period))
    return min(quotas, default=None)
