"""The only place that names concrete classes together: which pool, on which memory."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from kvext.config import Config, format_bytes
from kvext.cxl.shm import create_region, region_path
from kvext.errors import PoolExists
from kvext.pool import DEFAULT_LEASE_S, Pool

__all__ = ["automatic_pool_bytes", "create_pool", "open_pool", "pool_path"]

_logger = logging.getLogger(__name__)

_AUTO_DIVISOR = 2
_MIN_AUTO_BYTES = 64 << 20
_MIB = 1 << 20


def pool_path(config: Config) -> Path:
    """The file of the configured pool."""
    return region_path(Path(config.pool_folder), config.pool_name)


def automatic_pool_bytes(folder: Path) -> int:
    """Half of what a folder has free, in whole MiB and at least 64 MiB.

    The rest stays for other users of the folder, such as the engine's own shared memory.
    """
    space = os.statvfs(folder)
    half = space.f_bavail * space.f_frsize // _AUTO_DIVISOR
    return max(half // _MIB * _MIB, _MIN_AUTO_BYTES)


def create_pool(
    folder: Path,
    name: str,
    num_bytes: int,
    *,
    lease_s: float = DEFAULT_LEASE_S,
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Reserve the memory of a pool that does not exist yet.

    Args:
        folder: Where; it must exist.
        name: How engines ask for it.
        num_bytes: Size of the region; all of it is reserved at once.
        lease_s: How long an attached process may be silent before others take back what it holds.
        on_progress: Told bytes reserved so far and bytes in all.

    Returns:
        The region's file, for `Pool.attach`.

    Raises:
        PoolError: It exists, or the memory is not there; the message says what to do.
    """
    path = region_path(folder, name)
    create_region(
        path, num_bytes, lambda new: Pool.initialise(new, lease_s), on_progress=on_progress
    )
    return path


def open_pool(config: Config, record_bytes: int, label: str) -> Pool:
    """Attach an engine process to the configured pool, creating it if it is missing.

    Args:
        config: Names the pool and says how large a new one shall be.
        record_bytes: Bytes of one of this engine's blocks.
        label: How `kvext pool stat` names this process.

    Returns:
        The attached pool; close it to give its pins back.

    Raises:
        PoolError: It can be neither created nor attached; the message says what to do.
    """
    path = pool_path(config)
    if not path.exists():
        _create(config, path)
    return Pool.attach(path, extent_bytes=record_bytes, label=label, lock_wait_s=config.lock_wait_s)


def _create(config: Config, path: Path) -> None:
    region_bytes = config.pool_bytes
    if region_bytes is None:
        region_bytes = (
            automatic_pool_bytes(path.parent) if path.parent.exists() else _MIN_AUTO_BYTES
        )
    _logger.info("creating pool %s of %s", path, format_bytes(region_bytes))
    try:
        create_region(path, region_bytes, Pool.initialise)
    except PoolExists:
        _logger.debug("another process has created pool %s meanwhile", path)
