"""What a tenant would hit in caches of other sizes: shadows, which hold metadata alone.

Each tenant has one shadow as large as its entitlement, the measure of fairness, and a few of other
sizes, which say what more or less space would be worth. Of a large cache they see a sample of the
conversations and are as much smaller, so that their cost does not grow with the cache.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvext.tenancy.policy import Access, EvictionPolicy
from kvext.tenancy.tuning import Tuning

__all__ = ["ConversationSample", "Fading", "Point", "Shadows"]

_ODD = 0x9E3779B97F4A7C15
_MOST_ENDS = 1 << 16
_MOST_USES = 4
_LEAST_MEMORY_BLOCKS = 10_000
_SPENT_IN = 0.25
"""Part of the memory in which a surplus is spent."""
_SAMPLE_ERROR = 0.03
"""What a sample shows beyond what is fair may be chance up to this."""
_TOLERANCE = 0.02


class ConversationSample:
    """Chooses one of so many conversations, and all requests of a chosen one.

    A request goes on with a conversation if its prompt holds the last full block of a prompt of
    it. A block that many prompts go on from is a beginning that conversations share, and says
    nothing.
    """

    __slots__ = ("_ends", "_one_of")

    def __init__(self, one_of: int) -> None:
        """Begin without conversations.

        Args:
            one_of: How many conversations there are for each in the sample.
        """
        self._one_of = one_of
        self._ends: OrderedDict[int, int] = OrderedDict()
        """By the key of an end: how often prompts went on from it, and negative if chosen."""

    @property
    def one_of(self) -> int:
        """Conversations for each in the sample."""
        return self._one_of

    def takes(self, access: Access) -> bool:
        """Whether the request is in the sample; to be asked once for each, in order."""
        if self._one_of == 1:
            return True
        keys, ends = access.keys, self._ends
        if not keys:
            return False
        chosen = (keys[-1] * _ODD >> 32) % 2**32 % self._one_of == 0
        for key in reversed(keys):
            uses = ends.get(key, 0)
            if 0 < abs(uses) <= _MOST_USES:
                chosen = uses < 0
                ends[key] = uses - 1 if chosen else uses + 1
                break
        full = len(keys) - access.partial_tail
        if full and keys[full - 1] not in ends:
            ends[keys[full - 1]] = -1 if chosen else 1
            if len(ends) > _MOST_ENDS:
                ends.popitem(last=False)
        return chosen


class Fading:
    """A mean rate over a course that is behind, in which older things count exponentially less.

    The course may be measured in anything that only grows, as time or accesses.
    """

    __slots__ = ("_begun", "_memory", "_seen", "_sum")

    def __init__(self, memory: float, begun: float = 0.0) -> None:
        """Begin with nothing.

        Args:
            memory: Distance at which a thing counts 1/e.
            begun: Where on the course.
        """
        self._memory = memory
        self._begun = self._seen = begun
        self._sum = 0.0

    def add(self, amount: float, at: float) -> None:
        """Count an amount at a place on the course."""
        if at != self._seen:
            self._sum *= math.exp((self._seen - at) / self._memory)
            self._seen = at
        self._sum += amount

    def rate(self, at: float) -> float:
        """Amount per unit of the course up to this place; 0 at its beginning."""
        if at <= self._begun:
            return 0.0
        return self.total(at) / (self._memory * -math.expm1((self._begun - at) / self._memory))

    def total(self, at: float) -> float:
        """What is left of all amounts at this place."""
        return self._sum * math.exp((self._seen - at) / self._memory)


@dataclass(frozen=True, slots=True)
class Point:
    """What a cache of some size would save.

    Attributes:
        size: Of the cache.
        saved: Seconds of computing (without costs: hits) per second.
    """

    size: int
    saved: float


class Shadows:
    """Shadows of one tenant."""

    __slots__ = (
        "_alone",
        "_asked",
        "_caches",
        "_fair_memory",
        "_mirror",
        "_part",
        "_sample",
        "_saved",
        "_seen_blocks",
        "_shared",
        "_sizes",
        "any_hit",
        "num_blocks",
    )

    def __init__(
        self,
        sizes: Sequence[int],
        make: Callable[[int], EvictionPolicy],
        *,
        tuning: Tuning,
        now_ms: int,
    ) -> None:
        """Begin empty.

        Args:
            sizes: Of the caches that they stand for, the first is the entitlement.
            make: Gives a policy of a capacity.
            tuning: How many conversations to see, and for how long to remember.
            now_ms: The time.
        """
        one_of = 1
        while sizes[0] / one_of > tuning.shadow_blocks:
            one_of *= 2
        self._sizes = tuple(sizes)
        self._sample = ConversationSample(one_of)
        self._part = 1 / one_of
        self._caches = [make(max(1, int(size * self._part))) for size in sizes]
        # Served requests of a sample cannot be held against a smaller cache's: a shadow can.
        self._mirror = make(1) if one_of > 1 else None
        memory = tuning.memory_turnovers * sizes[0] / one_of + _LEAST_MEMORY_BLOCKS
        self._saved = [Fading(memory) for _ in sizes]
        self._fair_memory = tuning.fair_turnovers * sizes[0] / one_of + 10 * _LEAST_MEMORY_BLOCKS
        self._shared = Fading(self._fair_memory)
        self._alone = Fading(self._fair_memory)
        self._asked = Fading(tuning.memory_s * 1000, now_ms)
        self._seen_blocks = 0
        self.any_hit = False
        """Whether any of them ever had a hit."""
        self.num_blocks = 0
        """Block accesses of the tenant."""

    @property
    def num_shadowed(self) -> int:
        """Block accesses in shadows."""
        return self._seen_blocks * (len(self._caches) + (self._mirror is not None))

    @property
    def turnovers(self) -> float:
        """Block accesses in the sample for each block of the first shadow."""
        return self._seen_blocks / self._caches[0].capacity

    def rate(self, now_ms: int) -> float:
        """Block accesses of the tenant per second, of late."""
        return self._asked.rate(now_ms) * 1000

    def resize(self, sizes: Sequence[int]) -> None:
        """Let them stand for caches of other sizes; as many."""
        self._sizes = tuple(sizes)
        self._scale(self._part)

    def fit(self, held: int) -> None:
        """Make the shadows as much smaller as the sample turned out to be.

        Args:
            held: What the tenant may hold in the shared cache, for the shadow of that.
        """
        if self._mirror is None:
            return
        if self.turnovers >= 1:
            part = self._seen_blocks / self.num_blocks
            if abs(part - self._part) > _TOLERANCE * self._part:
                self._scale(part)
        size = max(1, int(held * self._part))
        if size != self._mirror.capacity:
            self._mirror.resize(size)

    def _scale(self, part: float) -> None:
        self._part = part
        for cache, size in zip(self._caches, self._sizes, strict=True):
            cache.resize(max(1, int(size * part)))

    def see(self, access: Access, num_hits: int) -> None:
        """Replay a request that was served with so many hits, if it is in the sample."""
        num_blocks = len(access.keys)
        self.num_blocks += num_blocks
        self._asked.add(num_blocks, access.now_ms)
        if not self._sample.takes(access):
            return
        self._seen_blocks += num_blocks
        at = self._seen_blocks
        if self._mirror is not None:
            num_hits = self._mirror.access(access).num_hits
        if num_hits:
            self._shared.add(_saved(access, num_hits), at)
        for cache, saved in zip(self._caches, self._saved, strict=True):
            would_hit = cache.access(access).num_hits
            if would_hit:
                self.any_hit = True
                saved.add(_saved(access, would_hit), at)
                if saved is self._saved[0]:
                    self._alone.add(_saved(access, would_hit), at)

    def shared(self) -> float:
        """What the cache that the tenant shares saves, per block access."""
        return self._shared.rate(self._seen_blocks)

    def alone(self) -> float:
        """What a cache of the tenant's own as large as its entitlement would."""
        return self._alone.rate(self._seen_blocks)

    def enough(self, fair: float, now_ms: int) -> float:
        """What must be saved per second to be fair: less, if more was before.

        Args:
            fair: Part of what would be saved alone that is fair.
            now_ms: The time.
        """
        at = self._seen_blocks
        if self._sample.one_of > 1:
            fair += _SAMPLE_ERROR
        surplus = self._shared.total(at) - fair * self._alone.total(at)
        rate = self._saved[0].rate(at) - max(0.0, surplus) / (_SPENT_IN * self._fair_memory)
        return max(0.0, rate) * self.rate(now_ms)

    def curve(self, now_ms: int) -> list[Point]:
        """What caches of the shadows' sizes would save per second, from (0, 0) on; never falls."""
        per_second = self.rate(now_ms)
        points = [Point(0, 0.0)]
        for size, saved in sorted(zip(self._sizes, self._saved, strict=True), key=_size):
            rate = max(points[-1].saved, saved.rate(self._seen_blocks) * per_second)
            points.append(Point(size, rate))
        return points


def _size(pair: tuple[int, Fading]) -> int:
    return pair[0]


def _saved(access: Access, num_hits: int) -> float:
    """Seconds that hits save; without costs, hits."""
    if not num_hits or not access.first_cost_s:
        return num_hits
    return num_hits * (access.first_cost_s + (num_hits - 1) / 2 * access.cost_step_s)
