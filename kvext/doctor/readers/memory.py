"""Reads the host's memory of every kind, and the CPU quota of either version of cgroups."""

import contextlib
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from kvext.cxl.cgroup import group_folders
from kvext.cxl.kernel_files import read_fields, read_number, read_text
from kvext.doctor.snapshot import DaxDevice, HugePages, Memory, NumaNode

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
        huge_pages=tuple(_huge_pages(root / "sys/kernel/mm/hugepages")),
        nodes=tuple(_nodes(root / "sys/devices/system/node")),
        dax_devices=tuple(_dax_devices(root / "sys/bus/dax/devices")),
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


def _huge_pages(folder: Path) -> Iterator[HugePages]:
    for entry in sorted(folder.glob("hugepages-*kB")):
        page_bytes = int(entry.name.removeprefix("hugepages-").removesuffix("kB")) << 10
        reserved, free = (read_number(entry / f"{name}_hugepages") for name in ("nr", "free"))
        yield HugePages(page_bytes, reserved or 0, free or 0)


def _nodes(folder: Path) -> Iterator[NumaNode]:
    for entry in sorted(folder.glob("node[0-9]*"), key=lambda entry: int(entry.name[4:])):
        total = re.search(r"MemTotal:\s*(\d+) kB", read_text(entry / "meminfo"))
        yield NumaNode(
            number=int(entry.name[4:]),
            has_cores=bool(read_text(entry / "cpulist")),
            memory_bytes=int(total[1]) << 10 if total else 0,
        )


def _dax_devices(folder: Path) -> Iterator[DaxDevice]:
    for entry in sorted(folder.glob("dax*")):
        driver = entry / "driver"
        name = driver.resolve().name if driver.exists() else ""
        yield DaxDevice(entry.name, read_number(entry / "size") or 0, name)
