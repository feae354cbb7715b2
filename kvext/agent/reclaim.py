"""Makes room ahead of need: looks at the pool, has the ranking choose, evicts.

A ranking that raises is put aside for a while. Until it works again the least recently used
records go, which needs nothing but the slots.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from kvext.agent.counters import Counters
from kvext.agent.health import Health
from kvext.agent.ranking import Ranking
from kvext.agent.records import Records, Refs, back_to_front
from kvext.agent.watermarks import Watermarks
from kvext.pool import RecordTable

__all__ = ["Reclaimable", "Reclaimer"]

_T = TypeVar("_T")

RETRY_RANKING_S = 30.0


class Reclaimable(Protocol):
    """What is used of a `Pool`."""

    @property
    def num_extents(self) -> int:
        """Records that fit; 0 while no engine has decided what one looks like."""
        ...

    @property
    def num_free(self) -> int:
        """Records that can be stored without evicting one."""
        ...

    def records(self) -> RecordTable:
        """All committed records."""
        ...

    def evict(self, refs: bytes) -> int:
        """Drop the named records that are there and not pinned; their number."""
        ...


class Reclaimer:
    """Keeps the free space of one pool between the watermarks."""

    def __init__(
        self,
        watermarks: Watermarks,
        make_ranking: Callable[[int], Ranking],
        counters: Counters,
        health: Health,
        clock: Callable[[], float],
    ) -> None:
        """Begin without a ranking: the pool's size is not known yet.

        Args:
            watermarks: How much shall be free.
            make_ranking: Makes a ranking for so many extents.
            counters: Take the counts.
            health: Told whether the ranking works, as the step "policy".
            clock: Monotonic time in seconds.
        """
        self._watermarks = watermarks
        self._make_ranking = make_ranking
        self._counters = counters
        self._health = health
        self._clock = clock
        self._ranking: Ranking | None = None
        self._num_extents = 0
        self._num_refused = 0
        self._retry_at_s = 0.0

    def is_short(self, pool: Reclaimable) -> bool:
        """Whether less is free than shall be; two reads of shared memory."""
        return self._watermarks.num_to_reclaim(pool.num_free, pool.num_extents) > 0

    def look(self, pool: Reclaimable) -> None:
        """Tell the ranking what was accessed since the last look."""
        self._snapshot(pool)

    def reclaim(self, pool: Reclaimable) -> int:
        """Evict up to the high watermark if the free space is below the low one.

        Returns:
            How many records went; fewer than wanted if others are pinned.
        """
        wanted = self._watermarks.num_to_reclaim(pool.num_free, pool.num_extents)
        return self.make_room(pool, wanted)

    def make_room(self, pool: Reclaimable, num_records: int) -> int:
        """Evict so many records, whatever is free."""
        if num_records < 1 or not pool.num_extents:
            return 0
        records = self._snapshot(pool)
        # Whatever was pinned the last time is most likely chosen again, and pinned still.
        refs = self._choose(records, num_records + self._num_refused)
        num_gone = pool.evict(back_to_front(refs).tobytes())
        self._num_refused = len(refs) - num_gone
        self._counters.reclaims += 1
        self._counters.reclaimed_records += num_gone
        if self._ranking is None:
            self._counters.reclaimed_without_policy += num_gone
        return num_gone

    def _snapshot(self, pool: Reclaimable) -> Records:
        records = Records.of(pool.records())
        self._counters.looks += 1
        self._observe(records, pool.num_extents)
        return records

    def _observe(self, records: Records, num_extents: int) -> None:
        if self._ranking is None or num_extents != self._num_extents:
            if self._clock() < self._retry_at_s:
                return
            self._ranking = self._guarded(lambda: self._make_ranking(num_extents))
            self._num_extents = num_extents
        ranking = self._ranking
        if ranking is not None:
            self._guarded(lambda: ranking.observe(records))

    def _choose(self, records: Records, num_records: int) -> Refs:
        ranking, chosen = self._ranking, None
        if ranking is not None:
            chosen = self._guarded(lambda: ranking.choose(records, num_records))
        return records.oldest_first(num_records) if chosen is None else chosen

    def _guarded(self, ask: Callable[[], _T]) -> _T | None:
        """Ask the ranking; put it aside if it raises."""
        answer, worked = self._health.attempt("policy", ask)
        if not worked:
            self._ranking = None
            self._retry_at_s = self._clock() + RETRY_RANKING_S
        return answer
