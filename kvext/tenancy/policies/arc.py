"""ARC: blocks used once and blocks used again share the cache; ghosts say who deserves more.

A miss that a larger share for the one kind would have prevented, because the block's ghost is
still known, moves the target towards that kind. A request makes room for all its missing blocks
before their ghosts move the target.

Source: Megiddo, Modha: ARC, a self-tuning, low overhead replacement cache (FAST 2003).
"""

from kvext.tenancy.policies.batched import Tick
from kvext.tenancy.policies.sized_queue import SizedQueue

__all__ = ["Arc"]


class Arc:
    """`PageRules` with the paper's four lists: T1, T2, B1, B2."""

    __slots__ = (
        "_capacity",
        "_frequent",
        "_frequent_ghosts",
        "_last_request",
        "_recent",
        "_recent_ghosts",
        "_recent_target",
    )

    def __init__(self, capacity: int) -> None:
        """Begin empty."""
        self._capacity = capacity
        self._recent = SizedQueue()
        self._frequent = SizedQueue()
        self._recent_ghosts = SizedQueue()
        self._frequent_ghosts = SizedQueue()
        self._recent_target = 0.0  # in units of the capacity
        self._last_request: dict[int, int] = {}  # of cached blocks

    @property
    def size(self) -> int:
        """What the cache holds."""
        return self._recent.size + self._frequent.size

    def touch(self, key: int, tick: Tick) -> None:
        """See `PageRules.touch`; the block counts as frequent from now on."""
        queue = self._recent if key in self._recent else self._frequent
        self._frequent.push(key, queue.take(key))
        self._last_request[key] = tick.request

    def insert(self, key: int, size: int, tick: Tick) -> None:
        """See `PageRules.insert`; a block with a ghost counts as frequent at once."""
        queue = self._recent
        if key in self._recent_ghosts:
            self._widen_recent(size)
            self._recent_ghosts.take(key)
            queue = self._frequent
        elif key in self._frequent_ghosts:
            self._narrow_recent(size)
            self._frequent_ghosts.take(key)
            queue = self._frequent
        queue.push(key, size)
        self._last_request[key] = tick.request
        self._trim_ghosts()

    def evict_one(self, spared_request: int) -> int | None:
        """See `PageRules.evict_one`."""
        kinds = [
            (self._recent, self._recent_ghosts),
            (self._frequent, self._frequent_ghosts),
        ]
        if self._recent.size <= self._recent_target and self._frequent:
            kinds.reverse()
        for queue, ghosts in kinds:
            for key in queue:
                if self._last_request[key] != spared_request:
                    ghosts.push(key, queue.take(key))
                    del self._last_request[key]
                    self._trim_ghosts()
                    return key
        return None

    def remove(self, key: int) -> None:
        """See `Rules.remove`."""
        for queue in (self._recent, self._frequent, self._recent_ghosts, self._frequent_ghosts):
            if key in queue:
                queue.take(key)
                self._last_request.pop(key, None)

    def retire(self, key: int) -> None:
        """See `Rules.retire`; what another policy evicts teaches nothing of the target."""
        if key in self:
            self.remove(key)

    def set_capacity(self, capacity: int) -> None:
        """See `Rules.set_capacity`."""
        self._capacity = capacity
        self._recent_target = min(self._recent_target, float(capacity))
        self._trim_ghosts()

    def __contains__(self, key: int) -> bool:
        return key in self._recent or key in self._frequent

    def _widen_recent(self, size: int) -> None:
        step = size * max(1.0, self._ghost_size(frequent=True) / self._ghost_size(frequent=False))
        self._recent_target = min(float(self._capacity), self._recent_target + step)

    def _narrow_recent(self, size: int) -> None:
        step = size * max(1.0, self._ghost_size(frequent=False) / self._ghost_size(frequent=True))
        self._recent_target = max(0.0, self._recent_target - step)

    def _ghost_size(self, *, frequent: bool) -> float:
        ghosts = self._frequent_ghosts if frequent else self._recent_ghosts
        return max(1.0, ghosts.size)

    def _trim_ghosts(self) -> None:
        while self._recent_ghosts and self._recent.size + self._recent_ghosts.size > self._capacity:
            self._recent_ghosts.take_oldest()
        while (
            self._frequent_ghosts
            and self.size + self._recent_ghosts.size + self._frequent_ghosts.size
            > 2 * self._capacity
        ):
            self._frequent_ghosts.take_oldest()
