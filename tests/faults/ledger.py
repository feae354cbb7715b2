"""What workers have seen and promised, in a file that outlives them.

A worker marks a key after the pool has acknowledged it and clears the mark before it gives the
record up. Whatever kills it in between, a marked key is one that the pool must still have.
"""

import mmap
import struct
from enum import IntEnum, auto
from pathlib import Path
from typing import Self

from tests.faults.records import KEYS_A_ROW

__all__ = ["MAX_ROWS", "Ledger", "Tally"]

MAX_ROWS = 32


class Tally(IntEnum):
    """What a worker counts."""

    OPERATIONS = 0
    LOADS = auto()
    STORES = auto()
    WORST_US = auto()
    WORST_OPERATION = auto()
    STALE = auto()
    REJECTED = auto()
    FENCED = auto()
    LOCK_TIMEOUTS = auto()
    CYCLES = auto()


_TALLIES = struct.Struct("<Q")
_HEAD_BYTES = len(Tally) * _TALLIES.size
_ROW_BYTES = _HEAD_BYTES + KEYS_A_ROW


class Ledger:
    """One row a worker; the driver and all workers map the same file."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), MAX_ROWS * _ROW_BYTES)

    @classmethod
    def create(cls, path: Path) -> Self:
        """An empty ledger at that path."""
        path.write_bytes(bytes(MAX_ROWS * _ROW_BYTES))
        return cls(path)

    def tally(self, row: int, what: Tally) -> int:
        """One figure of a worker."""
        value: int = _TALLIES.unpack_from(self._map, row * _ROW_BYTES + what * _TALLIES.size)[0]
        return value

    def put(self, row: int, what: Tally, value: int) -> None:
        """Set a figure."""
        _TALLIES.pack_into(self._map, row * _ROW_BYTES + what * _TALLIES.size, value)

    def add(self, row: int, what: Tally, by: int = 1) -> None:
        """Count; only the row's own worker does."""
        self.put(row, what, self.tally(row, what) + by)

    def total(self, what: Tally) -> int:
        """A figure summed over all workers."""
        return sum(self.tally(row, what) for row in range(MAX_ROWS))

    def is_acknowledged(self, row: int, index: int) -> bool:
        """Whether the pool owes us this record."""
        return self._map[row * _ROW_BYTES + _HEAD_BYTES + index] != 0

    def mark(self, row: int, index: int, *, acknowledged: bool) -> None:
        """Note that the pool has acknowledged a record, or that it may drop it."""
        self._map[row * _ROW_BYTES + _HEAD_BYTES + index] = acknowledged

    def forget(self, row: int) -> None:
        """The pool may drop everything that this worker stored."""
        start = row * _ROW_BYTES + _HEAD_BYTES
        self._map[start : start + KEYS_A_ROW] = bytes(KEYS_A_ROW)

    def acknowledged(self, row: int) -> list[int]:
        """Indexes of the keys that the pool owes us."""
        return [index for index in range(KEYS_A_ROW) if self.is_acknowledged(row, index)]
