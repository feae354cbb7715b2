"""The only place that names concrete classes together: which pool, on which memory."""

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from kvext.config import Config, format_bytes
from kvext.cxl.cgroup import limit_on
from kvext.cxl.shm import create_region, region_path
from kvext.errors import PoolExists
from kvext.pool import DEFAULT_LEASE_S, Pool
from kvext.protocol.key import KEY_BYTES
from kvext.tenancy.policy import Access
from kvext.tenancy.store_admission import StoreAdmission

__all__ = ["automatic_pool_bytes", "create_pool", "make_store_judge", "open_pool", "pool_path"]

_logger = logging.getLogger(__name__)

_AUTO_DIVISOR = 2
_MIN_AUTO_BYTES = 64 << 20
_MIB = 1 << 20
_SPAN_TOKENS = 256
"""Tokens that store admission judges together."""
_FREE_PART = 32
"""With less than one block of so many free, what is stored pushes something out."""


def pool_path(config: Config) -> Path:
    """The file of the configured pool."""
    return region_path(Path(config.pool_folder), config.pool_name)


def automatic_pool_bytes(folder: Path) -> int:
    """Half of what a folder has free, in whole MiB and at least 64 MiB.

    The rest stays for other users of the folder, such as the engine's own shared memory. Where
    this process's control group allows less than the folder, it is half of that.
    """
    space = os.statvfs(folder)
    free_bytes = space.f_bavail * space.f_frsize
    room_bytes = limit_on(folder).room_bytes
    half = min(free_bytes, free_bytes if room_bytes is None else room_bytes) // _AUTO_DIVISOR
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


def make_store_judge(config: Config, pool: Pool, block_tokens: int) -> "SpanJudge | None":
    """What decides which blocks are worth storing, or None if all are.

    Args:
        config: Says whether to judge.
        pool: Where they would be stored.
        block_tokens: Tokens a block.
    """
    if not config.store_admission:
        return None
    num_blocks = max(1, _SPAN_TOKENS // block_tokens)
    return SpanJudge(pool, StoreAdmission(max(1, pool.num_extents // num_blocks)), num_blocks)


class SpanJudge:
    """Asks `StoreAdmission` about spans of blocks rather than blocks.

    A prompt of 32,768 tokens may have 2,048 blocks, which is too much to look at one by one where
    an engine plans its steps; it has 128 spans. A beginning shorter than a span is always stored.
    """

    def __init__(self, pool: Pool, admission: StoreAdmission, num_blocks: int) -> None:
        """Take what judging needs.

        Args:
            pool: Is under pressure once it is nearly full.
            admission: Knows what came back; counts in spans.
            num_blocks: Blocks a span.
        """
        self._pool = pool
        self._admission = admission
        self._num_blocks = num_blocks

    def num_wanted(self, keys: bytes, domain: str) -> int:
        """How many leading blocks of a request to store; see `StoreJudge`."""
        span_bytes = self._num_blocks * KEY_BYTES
        # The key of a span's last block stands for all blocks up to it.
        spans = [
            int.from_bytes(keys[at - KEY_BYTES : at - KEY_BYTES + 8], "little")
            for at in range(span_bytes, len(keys) + 1, span_bytes)
        ]
        if not spans:
            return sys.maxsize
        is_nearly_full = self._pool.num_free * _FREE_PART < self._pool.num_extents
        access = Access(0, spans, input_tokens=0)
        num_wanted = self._admission.num_wanted(
            access, tenant=domain, under_pressure=is_nearly_full
        )
        return sys.maxsize if num_wanted == len(spans) else num_wanted * self._num_blocks


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
