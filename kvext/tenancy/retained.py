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

    __slots__ = ("_live", "_order", "_over", "_steps", "size")

    def __init__(self) -> None:
        self._live: dict[int, Touch] = {}
        self._order: list[tuple[int, Touch, int]] = []
        self._steps: list[tuple[float, int]] = []
        self._over: dict[int, None] = {}
        self.size = 0

    def __contains__(self, key: int) -> bool:
        return key in self._live

    def put(self, key: int, touch: Touch, standing: Standing, now_ms: int) -> None:
        """Set a block aside."""
        self._live[key] = touch
        self.size += touch.size
        self._enter(key, standing, now_ms)
        if len(self._order) > 2 * len(self._live) + _FEW:
            self._order = [entry for entry in set(self._order) if self._is_live(entry)]
            heapify(self._order)
        if len(self._steps) > 2 * len(self._live) + _FEW:
            self._steps = [step for step in set(self._steps) if step[1] in self._live]
            heapify(self._steps)

    def discard(self, key: int) -> None:
        """Take a block back; others are ignored."""
        touch = self._live.pop(key, None)
        if touch is not None:
            self.size -= touch.size
            self._over.pop(key, None)

    def take_over(self, now_ms: int, standings: Mapping[int, Standing]) -> Iterator[int]:
        """Take out the blocks whose priority is over, as far as they are asked for."""
        self._step(now_ms, standings)
        while self._over:
            key = next(iter(self._over))
            self.discard(key)
            yield key

    def take_lowest(self, now_ms: int, standings: Mapping[int, Standing]) -> int:
        """Take out the lowest, longest untouched and deepest block; there must be one."""
        self._step(now_ms, standings)
        while True:
            entry = heappop(self._order)
            priority, _, key = entry
            # Other entries are of an earlier time, or of before a claim was over.
            if self._is_live(entry) and priority == standings[key].priority(now_ms):
                self.discard(key)
                return key

    def _enter(self, key: int, standing: Standing, now_ms: int) -> None:
        heappush(self._order, (standing.priority(now_ms), self._live[key], key))
        change_ms = standing.next_change_ms(now_ms)
        if change_ms < math.inf:
            heappush(self._steps, (change_ms, key))

    def _step(self, now_ms: int, standings: Mapping[int, Standing]) -> None:
        """Enter blocks anew of which a claim is over."""
        while self._steps and self._steps[0][0] <= now_ms:
            _, key = heappop(self._steps)
            if key in self._live:
                self._enter(key, standings[key], now_ms)
                if standings[key].until_ms <= now_ms:
                    self._over[key] = None

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
