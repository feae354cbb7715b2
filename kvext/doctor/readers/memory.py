"""Reads memory, its limits, and the CPU quota, from /proc and either version of cgroups."""

import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvext.doctor.readers.mounts import read_mount_table
from kvext.doctor.snapshot import Cgroup, Memory

__all__ = ["read_cgroup_memory", "read_cpu_quota", "read_memory"]

_UNLIMITED_BYTES = 1 << 62
"""Version 1 writes "no limit" as the largest number of whole pages."""
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class _MemoryFiles:
    limit: str
    used: str
    reclaimable: str
    """The line of memory.stat that counts pages which go first."""


_FILES = {
    1: _MemoryFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: _MemoryFiles("memory.max", "memory.current", "inactive_file"),
}


def read_memory(root: Path = _ROOT) -> Memory:
    """What is available now, and what may be locked."""
    meminfo = _fields(root / "proc/meminfo")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    setting = _text(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled")
    return Memory(
        available_bytes=meminfo.get("MemAvailable:", 0) << 10,
        memlock_bytes=None if locked == resource.RLIM_INFINITY else locked,
        # The choices in a row, the chosen one in brackets.
        shmem_huge_pages=setting.partition("[")[2].partition("]")[0],
    )


def read_cgroup_memory(root: Path = _ROOT) -> Cgroup:
    """The tightest limit on the way from this process's group to the top, and what it counts."""
    levels: list[Cgroup] = []
    for version, folder in _group_folders(root, "memory"):
        files = _FILES[version]
        used = _number(folder / files.used)
        if used is None:  # the top of version 2, or a hierarchy without this controller
            continue
        limit = _number(folder / files.limit)
        spare = _fields(folder / "memory.stat").get(files.reclaimable, 0)
        if limit is not None and limit >= _UNLIMITED_BYTES:
            limit = None
        levels.append(Cgroup(version, limit, max(used - spare, 0)))
    limited = [level for level in levels if level.limit_bytes is not None]
    if limited:
        return min(limited, key=lambda level: (level.limit_bytes or 0) - level.used_bytes)
    return levels[0] if levels else Cgroup(0, None, 0)


def read_cpu_quota(root: Path = _ROOT) -> float | None:
    """Cores' worth of time that this process may use; None without a quota."""
    quotas: list[float] = []
    for version, folder in _group_folders(root, "cpu"):
        if version == 1:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        else:
            quota, _, period = _text(folder / "cpu.max").partition(" ")
        with contextlib.suppress(ValueError):  # "max", or nothing to read
            if int(quota) > 0:
                quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _group_folders(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Folders of this process's group and of the groups above it, innermost first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        version = 1 if controllers else 2
        if version == 1 and controller not in controllers.split(","):
            continue
        for mount in read_mount_table(root):
            wanted = "cgroup2" if version == 2 else "cgroup"  # noqa: PLR2004 - a version
            if mount.kind != wanted or (version == 1 and controller not in mount.options):
                continue
            top = root / mount.point.lstrip("/")
            # A container may see its own group as the mount's root, and its path from above.
            below = group.removeprefix(mount.root) if mount.root != "/" else group
            folder = top / below.strip("/")
            if not folder.is_dir():
                folder = top
            yield version, folder
            while folder != top:
                folder = folder.parent
                yield version, folder


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _fields(path: Path) -> dict[str, int]:
    """Lines of the form "NAME NUMBER ..."."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
