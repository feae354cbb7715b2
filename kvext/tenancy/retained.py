"""Orders among blocks that retention speaks of: the lowest, those set aside, those with a deadline.

All are heaps whose stale entries are skipped when they come up, so that each change costs O(log n).
"""

import math
from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kvext.tenancy.retention import DEFAULT_PRIORITY, DEFAULT_STANDING, Standing

__all__ = ["Deadlines", "LowBlocks", "SetAside", "Touch"]

_FEW = 64
"""Stale entries that are not worth a clean-up."""


class Touch(NamedTuple):
    """The last access of a block. A block is never touched without those before it.

    Attributes:
        number: Of the access, counted from the first.
        height: Minus the position in the prompt: of one access the deepest block leaves first.
        size: Of the block.
    """

    number: int
    height: int
    size: int


class LowBlocks:
    """Blocks below the default priority: the lowest, longest untouched and deepest go first."""

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._live: dict[int, tuple[int, Touch, int]] = {}
        self._heap: list[tuple[int, Touch, int]] = []

    def put(self, key: int, priority: int, touch: Touch) -> None:
        """Add a block, or touch it again."""
        entry = (priority, touch, key)
        self._live[key] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._live) + _FEW:
            self._heap = list(self._live.values())
            heapify(self._heap)

    def discard(self, key: int) -> None:
        """Forget a block."""
        self._live.pop(key, None)

    def take(
        self,
        now_ms: int,
        standings: Mapping[int, Standing],
        highest: int,
        spared: Iterable[int],
    ) -> Generator[int, None, None]:
        """Take out the blocks up to a priority in their order, as far as they are asked for.

        Args:
            now_ms: The time.
            standings: Of all blocks; one whose low priority is over is no longer low.
            highest: The highest priority to take.
            spared: Not to be taken; stay.
        """
        spared = spared if isinstance(spared, Container) else set(spared)
        kept = []
        try:
            while self._heap and self._heap[0][0] <= highest:
                entry = heappop(self._heap)
                key = entry[2]
                if self._live.get(key) != entry:
                    continue
                if standings.get(key, DEFAULT_STANDING).priority(now_ms) >= DEFAULT_PRIORITY:
                    del self._live[key]
                elif key in spared:
                    kept.append(entry)
                else:
                    del self._live[key]
                    yield key
        finally:
            for entry in kept:
                heappush(self._heap, entry)


class SetAside:
    """Blocks of high priority that the policy gave up."""

    __slots__ = ("_ends", "_live", "_order", "size")

    def __init__(self) -> None:
        self._live: dict[int, Touch] = {}
        self._order: list[tuple[int, Touch, int]] = []
        self._ends: list[tuple[float, int]] = []
        self.size = 0

    def __contains__(self, key: int) -> bool:
        return key in self._live

    def put(self, key: int, touch: Touch, standing: Standing, now_ms: int) -> None:
        """Set a block aside."""
        self._live[key] = touch
        self.size += touch.size
        heappush(self._order, (standing.priority(now_ms), touch, key))
        heappush(self._ends, (standing.until_ms, key))
        if len(self._order) > 2 * len(self._live) + _FEW:
            self._order = [entry for entry in set(self._order) if self._is_live(entry)]
            heapify(self._order)
        if len(self._ends) > 2 * len(self._live) + _FEW:
            self._ends = [end for end in set(self._ends) if end[1] in self._live]
            heapify(self._ends)

    def discard(self, key: int) -> None:
        """Take a block back; others are ignored."""
        touch = self._live.pop(key, None)
        if touch is not None:
            self.size -= touch.size

    def take_over(self, now_ms: int, standings: Mapping[int, Standing]) -> Iterator[int]:
        """Take out the blocks whose priority is over, as far as they are asked for."""
        while self._ends and self._ends[0][0] <= now_ms:
            _, key = heappop(self._ends)
            if key in self._live and standings[key].until_ms <= now_ms:
                self.discard(key)
                yield key

    def take_lowest(self, now_ms: int, standings: Mapping[int, Standing]) -> int:
        """Take out the lowest, longest untouched and deepest block; there must be one."""
        while True:
            entry = heappop(self._order)
            if not self._is_live(entry):
                continue
            priority, touch, key = entry
            current = standings[key].priority(now_ms)
            if current < priority:  # one of its claims is over
                heappush(self._order, (current, touch, key))
                continue
            self.discard(key)
            return key

    def _is_live(self, entry: tuple[int, Touch, int]) -> bool:
        return self._live.get(entry[2]) == entry[1]


class Deadlines:
    """When blocks have to leave."""

    __slots__ = ("_at_ms", "_heap")

    def __init__(self) -> None:
        self._at_ms: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._at_ms)

    def extend(self, key: int, deadline_ms: int | None, *, is_new: bool) -> None:
        """Book an access to a block: it lives as long as any of its accesses lets it."""
        before = self._at_ms.get(key)
        if not is_new and before is None:
            return  # it may live for good
        if deadline_ms is None:
            self._at_ms.pop(key, None)
        elif before is None or deadline_ms > before:
            self._at_ms[key] = deadline_ms
            heappush(self._heap, (deadline_ms, key))
            if len(self._heap) > 2 * len(self._at_ms) + _FEW:
                self._heap = [(at_ms, key) for key, at_ms in self._at_ms.items()]
                heapify(self._heap)

    def discard(self, key: int) -> None:
        """Forget a block."""
        self._at_ms.pop(key, None)

    @property
    def next_ms(self) -> float:
        """No block has to leave before; infinite if none has to."""
        return self._heap[0][0] if self._heap else math.inf

    def take_due(self, now_ms: int) -> list[int]:
        """Take out the blocks whose time is over."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, key = heappop(self._heap)
            if self._at_ms.get(key) == at_ms:
                del self._at_ms[key]
                due.append(key)
        return due
