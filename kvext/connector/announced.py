"""Blocks that this engine has told the world it can reach, and which of them are gone since.

A tier that other processes share does not tell when it drops a block. So a slice of the table is
looked up again after each step, which finds every loss within `capacity / slice` steps at a
small, constant price. What no longer fits into the table is reported as gone: somebody who
does not know of a block only misses a chance.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["AnnouncedBlocks"]

_NameT = TypeVar("_NameT")


class AnnouncedBlocks(Generic[_NameT]):
    """Keys of announced blocks with the names that they were announced under."""

    __slots__ = ("_capacity", "_cursor", "_index", "_keys", "_lookup", "_names", "_slice")

    def __init__(
        self, lookup: Callable[[bytes], bytes], capacity: int = 65_536, slice_blocks: int = 128
    ) -> None:
        """Begin with nothing announced.

        Args:
            lookup: Given some keys, answers one byte each: 1 if the tier has the block.
            capacity: Blocks remembered at most.
            slice_blocks: Blocks looked up again at a time.
        """
        self._lookup = lookup
        self._capacity = capacity
        self._slice = slice_blocks
        self._keys: list[bytes] = []
        self._names: list[_NameT] = []
        self._index: dict[bytes, int] = {}
        self._cursor = 0

    def __len__(self) -> int:
        """Blocks that count as reachable."""
        return len(self._keys)

    def __contains__(self, key: bytes) -> bool:
        """Whether a block has been announced."""
        return key in self._index

    def add(self, key: bytes, name: _NameT) -> _NameT | None:
        """Note a block as announced.

        Args:
            key: The block's key, not announced yet.
            name: What it is announced as.

        Returns:
            The name of a block that had to make room, or None.
        """
        displaced = None
        if len(self._keys) >= self._capacity:
            displaced = self._remove(self._cursor % len(self._keys))
        self._index[key] = len(self._keys)
        self._keys.append(key)
        self._names.append(name)
        return displaced

    def sweep(self) -> list[_NameT]:
        """Look up the next slice; returns the names of the blocks that are gone."""
        if not self._keys:
            return []
        if self._cursor >= len(self._keys):
            self._cursor = 0
        keys = self._keys[self._cursor : self._cursor + self._slice]
        found = self._lookup(b"".join(keys))
        if 0 not in found:
            self._cursor += len(keys)
            return []
        lost = [key for key, is_there in zip(keys, found, strict=True) if not is_there]
        return [self._remove(self._index[key]) for key in lost]

    def _remove(self, index: int) -> _NameT:
        """Take one out; the last one takes its place."""
        name, key = self._names[index], self._keys[index]
        last_key, last_name = self._keys.pop(), self._names.pop()
        del self._index[key]
        if last_key != key:
            self._keys[index], self._names[index] = last_key, last_name
            self._index[last_key] = index
        return name
