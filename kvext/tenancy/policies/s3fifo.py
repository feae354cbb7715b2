"""S3-FIFO: new blocks wait in a small queue and reach the main one if they are asked for again.

A block that comes back soon after it left the small queue enters the main one at once.

Source: Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction (SOSP 2023).
"""

from kvext.tenancy.policies.batched import Tick
from kvext.tenancy.policies.sized_queue import SizedQueue

__all__ = ["S3Fifo"]

_SMALL_SHARE = 10  # the small queue has a tenth
_MOST_USES = 3


class S3Fifo:
    """`PageRules` with the paper's three queues: S, M, G."""

    __slots__ = ("_capacity", "_ghosts", "_last_request", "_main", "_small", "_uses")

    def __init__(self, capacity: int) -> None:
        """Begin empty."""
        self._capacity = capacity
        self._small = SizedQueue()
        self._main = SizedQueue()
        self._ghosts = SizedQueue()
        self._uses: dict[int, int] = {}  # of cached blocks
        self._last_request: dict[int, int] = {}  # of cached blocks

    @property
    def size(self) -> int:
        """What the cache holds."""
        return self._small.size + self._main.size

    def touch(self, key: int, tick: Tick) -> None:
        """See `PageRules.touch`; no block moves."""
        self._uses[key] = min(self._uses[key] + 1, _MOST_USES)
        self._last_request[key] = tick.request

    def insert(self, key: int, size: int, tick: Tick) -> None:
        """See `PageRules.insert`."""
        queue = self._small
        if key in self._ghosts:
            self._ghosts.take(key)
            queue = self._main
        queue.push(key, size)
        self._uses[key] = 0
        self._last_request[key] = tick.request

    def evict_one(self, spared_request: int) -> int | None:
        """See `PageRules.evict_one`."""
        small_target = max(1, self._capacity // _SMALL_SHARE)
        if self._small.size >= small_target or not self._main:
            first, second = self._evict_small, self._evict_main
        else:
            first, second = self._evict_main, self._evict_small
        victim = first(spared_request)
        return second(spared_request) if victim is None else victim

    def remove(self, key: int) -> None:
        """See `Rules.remove`."""
        for queue in (self._small, self._main, self._ghosts):
            if key in queue:
                queue.take(key)
                self._uses.pop(key, None)
                self._last_request.pop(key, None)

    def retire(self, key: int) -> None:
        """See `Rules.retire`; it is not remembered: it did not leave by the small queue's end."""
        if key in self:
            self.remove(key)

    def set_capacity(self, capacity: int) -> None:
        """See `Rules.set_capacity`."""
        self._capacity = capacity
        self._trim_ghosts()

    def __contains__(self, key: int) -> bool:
        return key in self._small or key in self._main

    def _evict_small(self, spared_request: int) -> int | None:
        for key in list(self._small):
            if self._uses[key] > 0:
                self._main.push(key, self._small.take(key))
                self._uses[key] = 0
            elif self._last_request[key] == spared_request:
                self._small.renew(key)
            else:
                size = self._small.take(key)
                self._forget(key)
                self._ghosts.push(key, size)
                self._trim_ghosts()
                return key
        return None

    def _evict_main(self, spared_request: int) -> int | None:
        # A block loses one use each time round: the last time round all of them have none.
        for key in list(self._main) * (_MOST_USES + 1):
            if self._last_request[key] == spared_request:
                self._main.renew(key)
            elif self._uses[key] > 0:
                self._uses[key] -= 1
                self._main.renew(key)
            else:
                self._main.take(key)
                self._forget(key)
                return key
        return None

    def _forget(self, key: int) -> None:
        del self._uses[key]
        del self._last_request[key]

    def _trim_ghosts(self) -> None:
        while self._ghosts.size > self._capacity - self._capacity // _SMALL_SHARE:
            self._ghosts.take_oldest()
