"""The order of an access that LRU-2, ARC and S3-FIFO share.

Those policies were made for single pages. A prompt is many at once: first what is cached is
touched, then room is made for what is missing, then that is taken in, always from tail to head,
so that the tail is the older. Blocks of the request itself, which an engine would hold pinned, go
only where nothing else is left, and then the tail goes first: a tail without its head is useless.
"""

from typing import NamedTuple, Protocol

from kvext.tenancy.policies.bounded import cached_prefix
from kvext.tenancy.policy import Access, Admission

__all__ = ["Batched", "PageRules", "Tick"]

_NOBODY = 0  # the first request has the number 1


class Tick(NamedTuple):
    """When a block was accessed. Within one request the tail is older than the head."""

    request: int
    height: int


class PageRules(Protocol):
    """How one policy treats a single block."""

    @property
    def size(self) -> int:
        """What the cache holds."""
        ...

    def touch(self, key: int, tick: Tick) -> None:
        """Note the access of a cached block."""
        ...

    def insert(self, key: int, size: int, tick: Tick) -> None:
        """Take in a block that is not cached."""
        ...

    def evict_one(self, spared_request: int) -> int | None:
        """Evict a block that this request did not touch; None if there is none."""
        ...

    def remove(self, key: int) -> None:
        """As `Rules.remove`."""
        ...

    def retire(self, key: int) -> None:
        """As `Rules.retire`."""
        ...

    def set_capacity(self, capacity: int) -> None:
        """As `Rules.set_capacity`."""
        ...

    def __contains__(self, key: int) -> bool:
        """Whether the block is cached."""
        ...


class Batched:
    """`Rules` for prompts out of rules for blocks."""

    __slots__ = ("_pages", "_request")

    def __init__(self, pages: PageRules) -> None:
        """Begin empty, as `pages` is."""
        self._pages = pages
        self._request = _NOBODY

    @property
    def size(self) -> int:
        """What the cache holds."""
        return self._pages.size

    def admit(self, access: Access, limit: int) -> Admission:
        """See `Rules.admit`."""
        self._request += 1
        pages = self._pages
        num_hits = cached_prefix(self, access.keys)
        tail_to_head = [
            (key, Tick(self._request, -depth)) for depth, key in enumerate(access.keys)
        ][::-1]
        missing_size = 0
        for key, tick in tail_to_head:
            if key in pages:
                pages.touch(key, tick)
            else:
                missing_size += access.block_size
        victims = self._evict_others(limit - missing_size)
        for key, tick in tail_to_head:
            if key not in pages:
                pages.insert(key, access.block_size, tick)
        victims += self._evict_others(limit)
        for key, _ in tail_to_head:
            if pages.size > limit and key in pages:
                pages.retire(key)
                victims.append(key)
        return Admission(num_hits, victims)

    def shrink(self, target: int, now_ms: int) -> list[int]:
        """See `Rules.shrink`; the time does not matter."""
        del now_ms
        return self._evict(target, _NOBODY)

    def remove(self, key: int) -> None:
        """See `Rules.remove`."""
        self._pages.remove(key)

    def retire(self, key: int) -> None:
        """See `Rules.retire`."""
        self._pages.retire(key)

    def set_capacity(self, capacity: int) -> None:
        """See `Rules.set_capacity`."""
        self._pages.set_capacity(capacity)

    def __contains__(self, key: int) -> bool:
        return key in self._pages

    def _evict_others(self, target: int) -> list[int]:
        return self._evict(target, self._request)

    def _evict(self, target: int, spared_request: int) -> list[int]:
        victims: list[int] = []
        while self._pages.size > target:
            victim = self._pages.evict_one(spared_request)
            if victim is None:
                break
            victims.append(victim)
        return victims
