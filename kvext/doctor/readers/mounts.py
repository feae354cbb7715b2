"""Reads the file system that a folder lies on."""

import os
from pathlib import Path

from kvext.cxl.mounts import mount_of, read_mount_table
from kvext.doctor.snapshot import Mount

__all__ = ["read_mount"]


def read_mount(folder: Path) -> Mount:
    """The file system below a folder, or below the nearest parent that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    folder = folder.resolve()
    entry = mount_of(folder, read_mount_table())
    space = os.statvfs(folder)
    return Mount(
        point=entry.point,
        kind=entry.kind,
        options=entry.options,
        size_bytes=space.f_blocks * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
    )
