"""LRU-2: the victim is the block whose last access but one is the longest ago.

Blocks with one access go first, oldest first. Accesses of evicted blocks are remembered for a
while: for eight times the capacity.

Source: O'Neil, O'Neil, Weikum: The LRU-K page replacement algorithm for database disk buffering
(SIGMOD 1993). Its correlated reference period and its retained information period in seconds are
left out.
"""

from dataclasses import dataclass

from kvext.tenancy.policies.batched import Tick
from kvext.tenancy.policies.sized_queue import SizedQueue

__all__ = ["Lru2"]

_GHOSTS_PER_CAPACITY = 8
_NEVER = Tick(0, 0)


@dataclass(frozen=True, slots=True)
class _Accesses:
    last_but_one: Tick
    last: Tick


class Lru2:
    """`PageRules` that remember the last two accesses of each block."""

    __slots__ = ("_accesses", "_cached", "_capacity", "_ghosts")

    def __init__(self, capacity: int) -> None:
        """Begin empty."""
        self._capacity = capacity
        self._cached = SizedQueue()
        self._ghosts = SizedQueue()
        self._accesses: dict[int, _Accesses] = {}

    @property
    def size(self) -> int:
        """What the cache holds."""
        return self._cached.size

    def touch(self, key: int, tick: Tick) -> None:
        """See `PageRules.touch`."""
        known = self._accesses.get(key)
        self._accesses[key] = _Accesses(known.last if known else _NEVER, tick)

    def insert(self, key: int, size: int, tick: Tick) -> None:
        """See `PageRules.insert`; what is known of an evicted block counts."""
        if key in self._ghosts:
            self._ghosts.take(key)
        self._cached.push(key, size)
        self.touch(key, tick)

    def evict_one(self, spared_request: int) -> int | None:
        """See `PageRules.evict_one`."""

        def age(key: int) -> tuple[Tick, Tick]:
            accesses = self._accesses[key]
            return accesses.last_but_one, accesses.last

        others = [key for key in self._cached if self._accesses[key].last.request != spared_request]
        if not others:
            return None
        victim = min(others, key=age)
        self.retire(victim)
        return victim

    def remove(self, key: int) -> None:
        """See `Rules.remove`."""
        for queue in (self._cached, self._ghosts):
            if key in queue:
                queue.take(key)
                del self._accesses[key]

    def retire(self, key: int) -> None:
        """See `Rules.retire`."""
        if key in self._cached:
            self._ghosts.push(key, self._cached.take(key))
            self._trim_ghosts()

    def set_capacity(self, capacity: int) -> None:
        """See `Rules.set_capacity`."""
        self._capacity = capacity
        self._trim_ghosts()

    def __contains__(self, key: int) -> bool:
        return key in self._cached

    def _trim_ghosts(self) -> None:
        while self._ghosts.size > _GHOSTS_PER_CAPACITY * self._capacity:
            key, _ = self._ghosts.take_oldest()
            del self._accesses[key]
