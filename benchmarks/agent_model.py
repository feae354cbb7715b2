"""The slots of a pool as a model, in the time of a trace.

Slots tell time in tenths of a second, so that a trace of an hour takes a real pool an hour. The
model does with a slot's fields what the core does, the CLOCK and the stack of free extents
included. What decides who goes is the agent's own code.
"""

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvext.agent.counters import Counters
from kvext.agent.health import Health
from kvext.agent.reclaim import Reclaimer
from kvext.agent.settings import AgentSettings
from kvext.pool import RecordTable
from kvext.tenancy.policy import Access

__all__ = ["Outcome", "Replay"]

CHUNK_BLOCKS, CHUNK_MS = 16, 500
"""A prompt's missing blocks are stored as they are computed: 16k tokens a second."""
TICK_MS, LOOK_MS = 50, 1000
_MOST_HITS, _MOST_CHANCES = 255, 3
_PATIENT_STEPS = 2048


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one replay gave.

    Attributes:
        hits_percent: Blocks in the longest prefix found, of all blocks.
        writer_evictions: Records that a writer had to evict for itself.
        reclaimed: Records that the agent evicted ahead.
    """

    hits_percent: float
    writer_evictions: int
    reclaimed: int


class ModelPool:
    """What the agent's `Reclaimer` uses of a `Pool`, and what engines do to it."""

    def __init__(self, num_extents: int) -> None:
        """Begin empty."""
        self.num_extents = num_extents
        self.writer_evictions = 0
        self.now_tenths = 0
        self._at: dict[int, int] = {}
        self._free = list(range(num_extents))[::-1]
        self._hand = 0
        self._used = np.zeros(num_extents, np.bool_)
        self._keys = np.zeros(num_extents, np.uint64)
        self._last, self._previous = np.zeros((2, num_extents), np.uint32)
        self._hits = np.zeros(num_extents, np.uint8)
        self._chances = bytearray(num_extents)

    @property
    def num_free(self) -> int:
        """As of a pool."""
        return len(self._free)

    def match(self, keys: Sequence[int]) -> int:
        """Touch the longest prefix; its length."""
        for depth, key in enumerate(keys):
            extent = self._at.get(key)
            if extent is None:
                return depth
            self._touch(extent)
        return len(keys)

    def store(self, keys: Sequence[int]) -> None:
        """Store what is missing, touch what is there."""
        for key in keys:
            extent = self._at.get(key)
            if extent is not None:
                self._touch(extent)
                continue
            if not self._free:
                self._evict_one()
            self._fill(self._free.pop(), key)

    def records(self) -> RecordTable:
        """As of a pool."""
        at = np.flatnonzero(self._used)
        refs = np.zeros(len(at), [("slot", "<u4"), ("extent", "<u4"), ("generation", "<u8")])
        refs["extent"] = at
        keys = np.zeros((len(at), 4), np.uint64)
        keys[:, 0] = self._keys[at]
        nothing = array("H", bytes(2 * len(at)))
        return RecordTable(
            refs=refs.tobytes(),
            keys=keys.tobytes(),
            lengths=array("I", bytes(4 * len(at))),
            last_access=array("I", self._last[at].tobytes()),
            previous_access=array("I", self._previous[at].tobytes()),
            hits=array("B", self._hits[at].tobytes()),
            namespaces=nothing,
            owners=nothing,
        )

    def evict(self, refs: bytes) -> int:
        """As of a pool; nothing is pinned."""
        extents = np.frombuffer(refs, "<u4").reshape(-1, 4)[:, 1].tolist()
        for extent in extents:
            self._release(extent)
        return len(extents)

    def _fill(self, extent: int, key: int) -> None:
        self._at[key] = extent
        self._used[extent] = True
        self._keys[extent] = key
        self._last[extent], self._previous[extent] = self.now_tenths, 0
        self._hits[extent] = self._chances[extent] = 0

    def _touch(self, extent: int) -> None:
        if self._last[extent] != self.now_tenths:
            self._previous[extent], self._last[extent] = self._last[extent], self.now_tenths
        if self._hits[extent] < _MOST_HITS:
            self._hits[extent] += 1
        self._chances[extent] = min(_MOST_CHANCES, self._chances[extent] + 1)

    def _release(self, extent: int) -> None:
        del self._at[int(self._keys[extent])]
        self._used[extent] = False
        self._free.append(extent)

    def _evict_one(self) -> None:
        patient = min(_PATIENT_STEPS, 4 * self.num_extents)
        for step in range(patient + 1):
            extent, self._hand = self._hand, (self._hand + 1) % self.num_extents
            if step < patient and self._chances[extent]:
                self._chances[extent] -= 1
                continue
            self._release(extent)
            self.writer_evictions += 1
            return


class Replay:
    """One trace through one pool: engines that ask and store, and perhaps an agent."""

    def __init__(self, num_extents: int, policy: str | None) -> None:
        """Begin with an empty pool.

        Args:
            num_extents: What it holds.
            policy: The agent's; None for no agent.
        """
        self._pool = ModelPool(num_extents)
        self._counters = Counters()
        self._now_ms = 0
        self._tick_ms = self._look_ms = 0
        self._stores: list[tuple[int, int, Sequence[int]]] = []
        self._reclaimer: Reclaimer | None = None
        if policy is not None:
            settings = AgentSettings(policy=policy)
            health = Health(self._now_s, 1e9)
            self._reclaimer = Reclaimer(
                settings.watermarks, settings.make_ranking, self._counters, health, self._now_s
            )

    def run(self, accesses: Sequence[Access]) -> Outcome:
        """All requests of a trace, in the order of their time."""
        num_hits = num_blocks = 0
        for number, access in enumerate(accesses):
            self._advance(access.now_ms)
            found = self._pool.match(access.keys)
            num_hits += found
            num_blocks += len(access.keys)
            missing = access.keys[found:]
            if missing:
                heapq.heappush(self._stores, (access.now_ms + CHUNK_MS, number, missing))
        hits_percent = round(100 * num_hits / num_blocks, 2)
        return Outcome(hits_percent, self._pool.writer_evictions, self._counters.reclaimed_records)

    def _now_s(self) -> float:
        return self._now_ms / 1000

    def _advance(self, until_ms: int) -> None:
        """What happens before a moment: chunks are stored, the agent looks."""
        while True:
            store_ms = self._stores[0][0] if self._stores else until_ms + 1
            at_ms = min(store_ms, self._tick_ms if self._reclaimer else until_ms + 1)
            if at_ms > until_ms:
                break
            self._set_time(at_ms)
            if at_ms == store_ms:
                self._store_chunk()
            else:
                self._tick()
        self._set_time(until_ms)

    def _set_time(self, now_ms: int) -> None:
        self._now_ms, self._pool.now_tenths = now_ms, now_ms // 100

    def _store_chunk(self) -> None:
        at_ms, number, keys = heapq.heappop(self._stores)
        self._pool.store(keys[:CHUNK_BLOCKS])
        if len(keys) > CHUNK_BLOCKS:
            heapq.heappush(self._stores, (at_ms + CHUNK_MS, number, keys[CHUNK_BLOCKS:]))

    def _tick(self) -> None:
        assert self._reclaimer is not None
        self._tick_ms = self._now_ms + TICK_MS
        if self._reclaimer.is_short(self._pool):
            self._reclaimer.reclaim(self._pool)
        elif self._now_ms >= self._look_ms:
            self._reclaimer.look(self._pool)
            self._look_ms = self._now_ms + LOOK_MS
