"""The agent's handle of its pool, renewed when another pool has taken the file's place."""

import os
from pathlib import Path

from kvext.errors import PoolMissing
from kvext.pool import Pool

__all__ = ["Attachment"]


class Attachment:
    """Attached to the pool at a path, while there is one.

    Attributes:
        pool: The handle, or None while there is none; the admin port's threads read it, too.
    """

    def __init__(self, path: Path) -> None:
        """Begin detached."""
        self.path = path
        self.pool: Pool | None = None
        self._file: tuple[int, int] | None = None

    def renew(self, label: str) -> Pool:
        """The handle of the pool that lies at the path now.

        Args:
            label: How `kvext pool stat` names this process.

        Raises:
            PoolError: There is none, or it cannot be used.
        """
        try:
            seen = self.path.stat()
        except FileNotFoundError:
            self.close()  # the memory is free only when nobody maps it
            raise PoolMissing(str(self.path)) from None
        if self.pool is None or self._file != _identity(seen):
            self.close()
            self._file = _identity(seen)
            self.pool = Pool.attach(self.path, label=label)
        return self.pool

    def close(self) -> None:
        """Detach; a second call does nothing."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.close()


def _identity(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_dev, seen.st_ino
