"""The agent's handle of its pool.

While engines are attached it is a member of the pool, as whoever holds a role or evicts must be.
While none are it only observes: it must keep nobody from removing an idle pool, nor an engine from
giving an empty one another shape. Invariant: it never decides what a pool's records look like.
"""

import os
from pathlib import Path

from kvext.errors import PoolMissing
from kvext.pool import Pool, PoolStat

__all__ = ["AGENT_LABEL", "Attachment", "num_engines"]

AGENT_LABEL = "agent "
"""How the labels of agents begin in a pool's process table; what is attached besides is engines."""


class Attachment:
    """Attached to the pool at a path, while there is one.

    Attributes:
        pool: The handle, or None while there is none; the admin port's threads read it, too.
        is_member: Whether it may evict and hold the role.
        num_engines: Processes attached that are no agents, as of the last `renew`.
    """

    def __init__(self, path: Path) -> None:
        """Begin detached."""
        self.path = path
        self.pool: Pool | None = None
        self.is_member = False
        self.num_engines = 0
        self._file: tuple[int, int] | None = None

    def renew(self, address: str) -> Pool:
        """The handle of the pool that lies at the path now.

        Args:
            address: Of the admin port, for the process table.

        Raises:
            PoolError: There is none, or it cannot be used.
        """
        try:
            seen = _identity(self.path.stat())
        except FileNotFoundError:
            self.close()  # the memory is free only when nobody maps it
            raise PoolMissing(str(self.path)) from None
        if self._file != seen:  # another pool has taken its place
            self.close()
        pool = self.pool or self._observe(seen)
        self.num_engines = num_engines(pool.stat())
        shall_be_member = self.num_engines > 0 and pool.extent_bytes > 0
        if shall_be_member is self.is_member:
            return pool
        return self._join(pool, address) if shall_be_member else self._leave(seen)

    def close(self) -> None:
        """Detach; a second call does nothing."""
        pool, self.pool = self.pool, None
        self.is_member, self._file, self.num_engines = False, None, 0
        if pool is not None:
            pool.close()

    def _observe(self, seen: tuple[int, int]) -> Pool:
        self.pool = Pool.attach(self.path)
        self._file = seen
        return self.pool

    def _join(self, observer: Pool, address: str) -> Pool:
        # Records as large as the extents are: whatever the engines have decided stays.
        label = f"{AGENT_LABEL}{address}"
        member = Pool.attach(self.path, extent_bytes=observer.extent_bytes, label=label)
        self.pool, self.is_member = member, True
        observer.close()
        return member

    def _leave(self, seen: tuple[int, int]) -> Pool:
        self.close()
        return self._observe(seen)


def num_engines(figures: PoolStat) -> int:
    """Processes of a pool that are no agents."""
    return sum(not process.label.startswith(AGENT_LABEL) for process in figures.processes)


def _identity(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_dev, seen.st_ino
