"""The memory that control groups of either version leave this process.

Pages of shared memory are charged to the group of the process that touches them first, and making
a region touches all of it: a group with less room than the region has its maker killed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvext.cxl.kernel_files import read_fields, read_number, read_text
from kvext.cxl.mounts import IN_MEMORY, mount_of, read_mount_table

__all__ = ["Cgroup", "group_folders", "limit_on", "read_cgroup_memory"]

_UNLIMITED_BYTES = 1 << 62
"""Version 1 writes "no limit" as the largest number of whole pages."""
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The tightest memory limit above this process; `version` 0 means no memory controller."""

    version: int
    limit_bytes: int | None
    used_bytes: int
    """What stays under pressure: without pages of files on disks, which the kernel drops first."""

    @property
    def room_bytes(self) -> int | None:
        """What may still be taken; None without a limit."""
        return None if self.limit_bytes is None else max(self.limit_bytes - self.used_bytes, 0)


@dataclass(frozen=True, slots=True)
class _MemoryFiles:
    limit: str
    used: str
    reclaimable: tuple[str, ...]
    """Lines of memory.stat. Pages of tmpfs are not among them: they count as anonymous there."""


_FILES = {
    1: _MemoryFiles(
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
    2: _MemoryFiles(
        "memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")
    ),
}


def read_cgroup_memory(root: Path = _ROOT) -> Cgroup:
    """The tightest limit on the way from this process's group to the top, and what it counts."""
    levels: list[Cgroup] = []
    for version, folder in group_folders(root, "memory"):
        files = _FILES[version]
        used = read_number(folder / files.used)
        if used is None:  # the top of version 2, or a hierarchy without this controller
            continue
        limit = read_number(folder / files.limit)
        counts = read_fields(folder / "memory.stat")
        spare = sum(counts.get(name, 0) for name in files.reclaimable)
        if limit is not None and limit >= _UNLIMITED_BYTES:
            limit = None
        levels.append(Cgroup(version, limit, max(used - spare, 0)))
    limited = [level for level in levels if level.limit_bytes is not None]
    if limited:
        return min(limited, key=lambda level: level.room_bytes or 0)
    return levels[0] if levels else Cgroup(0, None, 0)


def limit_on(folder: Path) -> Cgroup:
    """What limits a region that this process makes in a folder.

    Args:
        folder: An existing folder. On a disk nothing is limited: the kernel writes pages back.
    """
    kind = mount_of(folder.resolve(), read_mount_table()).kind
    return read_cgroup_memory() if kind in IN_MEMORY else Cgroup(0, None, 0)


def group_folders(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Folders of this process's group and of the groups above it, innermost first.

    Args:
        root: Where `/proc` and the control groups are mounted; "/" but in tests.
        controller: "memory" or "cpu".

    Yields:
        The version of control groups, and a folder.
    """
    for line in read_text(root / "proc/self/cgroup").splitlines():
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
