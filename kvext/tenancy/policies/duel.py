"""The insurance: three policies that know the same cache, and for each of them a shadow.

A shadow is a cache of metadata alone that its policy governs by itself. The policy whose shadow
hits most names the victims of the real cache; the others follow.

The learner leads until another has been better for a while: where they are equal, it stays. A large
cache's shadows see only a sample of the conversations, and are as much smaller.
"""

import math

from kvext.tenancy.policies.batched import Batched
from kvext.tenancy.policies.bounded import BoundedCache
from kvext.tenancy.policies.hazard import Hazard
from kvext.tenancy.policies.logit import LogitModel
from kvext.tenancy.policies.lru import Lru
from kvext.tenancy.policies.lru2 import Lru2
from kvext.tenancy.policies.sized_queue import SizedQueue
from kvext.tenancy.policies.splitmix import mixed
from kvext.tenancy.policy import Access, Admission

__all__ = ["Duel"]

_USUAL_SHADOW = 1 << 13
# By how much a shadow must be ahead of the leader's: a share of the accesses, and more than chance
# would give it.
_MARGIN = 0.002
_DEVIATIONS = 2


class _Lead:
    """How far a member is ahead of the leader, in hits that fade."""

    __slots__ = ("hits", "variance")

    def __init__(self) -> None:
        self.hits = 0.0
        self.variance = 0.0

    def note(self, lead: float, fades: float) -> None:
        self.hits = self.hits * fades + lead
        self.variance = self.variance * fades * fades + lead * lead

    def is_certain(self, memory_blocks: float) -> bool:
        chance = _DEVIATIONS * math.sqrt(self.variance)
        return self.hits > _MARGIN * memory_blocks + chance


class Duel:
    """`Rules` of hazard-logit, LRU or LRU-2, whichever does best."""

    __slots__ = (
        "_actors",
        "_block_size",
        "_by_seconds",
        "_capacity",
        "_ends",
        "_largest_shadow",
        "_leader",
        "_leads",
        "_shadows",
    )

    def __init__(
        self,
        capacity: int,
        *,
        seed: int,
        by_seconds: bool,
        largest_shadow: int = _USUAL_SHADOW,
    ) -> None:
        """Begin empty, with the learner as the leader.

        Args:
            capacity: As for `Hazard`, as are `seed` and `by_seconds`.
            seed: Of the learner's samples.
            by_seconds: What the learner's hits are worth.
            largest_shadow: Blocks above which the shadows see a sample alone.
        """
        self._capacity = capacity
        self._by_seconds = by_seconds
        self._largest_shadow = largest_shadow
        self._block_size = 0  # of the first access; 0 before
        self._actors = _members(capacity, seed, by_seconds=by_seconds)
        self._shadows = _members(capacity // self._one_of(), seed, by_seconds=by_seconds)
        self._leader = 0
        self._leads = [_Lead() for _ in self._actors]
        self._ends = SizedQueue()  # last blocks of the sampled conversations
        for follower in self._followers():
            follower.follow(follows=True)

    @property
    def size(self) -> int:
        """What the cache holds."""
        return self._actors[self._leader].size

    def admit(self, access: Access, limit: int) -> Admission:
        """See `Rules.admit`. The members know the limit: it is their capacity."""
        del limit
        if not self._block_size:
            # What the capacity means in blocks shows with the first of them.
            self._block_size = access.block_size
            self.set_capacity(self._capacity)
        if self._is_sampled(access):
            self._judge(access)
        admission = self._actors[self._leader].access(access)
        for follower in self._followers():
            follower.access(access)
            follower.retire(admission.victims)
        return admission

    def shrink(self, target: int, now_ms: int) -> list[int]:
        """See `Rules.shrink`. The members know the time."""
        del now_ms
        victims = self._actors[self._leader].evict(max(0, self.size - target))
        for follower in self._followers():
            follower.retire(victims)
        return list(victims)

    def remove(self, key: int) -> None:
        """See `Rules.remove`."""
        for member in self._actors + self._shadows:
            member.remove([key])

    def retire(self, key: int) -> None:
        """See `Rules.retire`."""
        self.remove(key)

    def set_capacity(self, capacity: int) -> None:
        """See `Rules.set_capacity`."""
        self._capacity = capacity
        for shadow in self._shadows:
            shadow.resize(capacity // self._one_of())
        for actor in self._actors:
            actor.set_capacity(capacity)

    def __contains__(self, key: int) -> bool:
        return key in self._actors[self._leader]

    def _followers(self) -> list[BoundedCache]:
        return [actor for member, actor in enumerate(self._actors) if member != self._leader]

    def _one_of(self) -> int:
        """One conversation of how many the shadows see: a power of two."""
        one_of = 1
        while self._in_blocks(self._capacity) // one_of > self._largest_shadow:
            one_of *= 2
        return one_of

    def _in_blocks(self, size: int) -> int:
        return size // max(self._block_size, 1)

    def _is_sampled(self, access: Access) -> bool:
        """Whether the shadows shall see the request.

        Whole conversations are in the sample or not: a request is if its prompt holds what was
        new at the end of one that is.
        """
        one_of = self._one_of()
        if one_of == 1:
            return True
        is_sampled = mixed(access.keys[-1]) % one_of == 0 or any(
            key in self._ends for key in access.keys
        )
        full_keys = access.keys[:-1] if access.partial_tail else access.keys
        if is_sampled and len(full_keys) > 0 and full_keys[-1] not in self:
            self._remember_end(full_keys[-1])
        return is_sampled

    def _remember_end(self, key: int) -> None:
        if key not in self._ends:
            self._ends.push(key, 1)
        while self._ends.size > self._largest_shadow:
            self._ends.take_oldest()

    def _judge(self, access: Access) -> None:
        hits = [self._value(access, shadow.access(access).num_hits) for shadow in self._shadows]
        # A few turnovers of the cache: long enough to tell policies apart, short enough to follow.
        memory_blocks = 4.0 * self._in_blocks(self._shadows[0].capacity) + 10000
        fades = math.exp(-len(access.keys) / memory_blocks)
        for member, lead in enumerate(self._leads):
            lead.note(hits[member] - hits[self._leader], fades)
        for member, lead in enumerate(self._leads):
            if lead.is_certain(memory_blocks):
                self._make_leader(member)
                return

    def _value(self, access: Access, num_blocks: int) -> float:
        """Of the first blocks of a prompt, in blocks of average cost."""
        whole = _cost_s(access, len(access.keys))
        if not self._by_seconds or not whole > 0:
            return float(num_blocks)
        return _cost_s(access, num_blocks) / whole * len(access.keys)

    def _make_leader(self, member: int) -> None:
        self._actors[self._leader].follow(follows=True)
        self._leader = member
        self._actors[member].follow(follows=False)
        self._leads = [_Lead() for _ in self._actors]


def _cost_s(access: Access, num_blocks: int) -> float:
    return num_blocks * access.first_cost_s + num_blocks * (num_blocks - 1) / 2 * access.cost_step_s


def _members(capacity: int, seed: int, *, by_seconds: bool) -> list[BoundedCache]:
    learner = Hazard(LogitModel(), capacity, seed=seed, by_seconds=by_seconds)
    return [
        BoundedCache(learner, capacity),
        BoundedCache(Lru(), capacity),
        BoundedCache(Batched(Lru2(capacity)), capacity),
    ]
