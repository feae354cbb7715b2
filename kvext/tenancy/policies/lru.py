"""Least recently used. A prompt is touched from tail to head, as vLLM does: its tail goes first."""

from kvext.tenancy.policies.bounded import cached_prefix
from kvext.tenancy.policies.sized_queue import SizedQueue
from kvext.tenancy.policy import Access, Admission

__all__ = ["Lru"]


class Lru:
    """`Rules` that remember the order of last accesses, of cached blocks alone."""

    __slots__ = ("_by_last_access",)

    def __init__(self) -> None:
        """Begin empty."""
        self._by_last_access = SizedQueue()

    @property
    def size(self) -> int:
        """What the cache holds."""
        return self._by_last_access.size

    def admit(self, access: Access, limit: int) -> Admission:
        """See `Rules.admit`."""
        num_hits = cached_prefix(self, access.keys)
        for key in reversed(access.keys):
            if key in self:
                self._by_last_access.renew(key)
            else:
                self._by_last_access.push(key, access.block_size)
        return Admission(num_hits, self.shrink(limit, access.now_ms))

    def shrink(self, target: int, now_ms: int) -> list[int]:
        """See `Rules.shrink`; the time does not matter."""
        del now_ms
        victims = []
        while self.size > target:
            key, _ = self._by_last_access.take_oldest()
            victims.append(key)
        return victims

    def remove(self, key: int) -> None:
        """See `Rules.remove`."""
        if key in self:
            self._by_last_access.take(key)

    def retire(self, key: int) -> None:
        """See `Rules.retire`; nothing is remembered of evicted blocks."""
        self.remove(key)

    def set_capacity(self, capacity: int) -> None:
        """See `Rules.set_capacity`; there is no history to trim."""

    def __contains__(self, key: int) -> bool:
        return key in self._by_last_access
