"""One tenant's part of a cache: an eviction policy under what requests ask for by retention.

Blocks below the default priority leave before the policy is asked. A block above it that the
policy gives up is set aside; it leaves once its priority is over, or nothing lower is left. Only
tenants whose requests use retention pay for it: the others' accesses go straight to the policy.

Invariant: `size` is at most `capacity` after each call, and whatever left was named once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from kvext.tenancy.policy import Access, Admission, EvictionPolicy
from kvext.tenancy.retained import Deadlines, LowBlocks, SetAside, Touch
from kvext.tenancy.retention import DEFAULT_PRIORITY, DEFAULT_STANDING, Retention, Standing

__all__ = ["TenantCache"]

_NO_RETENTION = Retention()


class TenantCache:
    """What one tenant holds."""

    __slots__ = (
        "_aside",
        "_block_tokens",
        "_capacity",
        "_deadlines",
        "_low",
        "_num_accesses",
        "_policy",
        "_standings",
        "_touches",
    )

    def __init__(self, policy: EvictionPolicy, *, block_tokens: int) -> None:
        """Begin empty.

        Args:
            policy: Decides among blocks of the default priority; its capacity is the tenant's.
            block_tokens: Tokens of a block, for ranges of tokens.
        """
        self._policy = policy
        self._block_tokens = block_tokens
        self._capacity = policy.capacity
        # Only of held blocks that are not of the default priority:
        self._standings: dict[int, Standing] = {}
        self._touches: dict[int, Touch] = {}
        self._num_accesses = 0
        self._low = LowBlocks()
        self._aside = SetAside()
        self._deadlines = Deadlines()

    @property
    def capacity(self) -> int:
        """The most that it may hold."""
        return self._capacity

    @property
    def size(self) -> int:
        """What it holds now."""
        return self._policy.size + self._aside.size

    def __contains__(self, key: int) -> bool:
        """Whether it holds this block."""
        return key in self._policy or key in self._aside

    @property
    def next_expiry_ms(self) -> float:
        """`expire` names nothing before this time."""
        return self._deadlines.next_ms

    def access(self, access: Access, retention: Retention | None = None) -> Admission:
        """As `EvictionPolicy.access`, under the request's retention."""
        if retention is None:
            if not self._standings and not self._deadlines:
                return self._policy.access(access)
            retention = _NO_RETENTION
        gone = list(self.expire(access.now_ms))
        num_hits = self._num_hits(access.keys)
        if retention.store:
            self._store(access, retention, gone)
        else:
            self._touch(access, num_hits, retention)
        return Admission(num_hits, gone)

    def expire(self, now_ms: int) -> Sequence[int]:
        """Name the blocks whose time is over."""
        dead = self._deadlines.take_due(now_ms)
        self.remove(dead)
        return dead

    def resize(self, capacity: int, now_ms: int) -> Sequence[int]:
        """Change the capacity; name the victims if it shrank below the size."""
        self._capacity = capacity
        gone: list[int] = []
        if not self._standings:
            victims = self._policy.resize(capacity)
            if not self._deadlines:
                return victims
            self._let_go(victims, now_ms, gone)
        else:
            self._fit(now_ms, gone)
        return gone

    def remove(self, keys: Iterable[int]) -> None:
        """Forget blocks that left for other reasons; unknown ones are ignored."""
        keys = list(keys)
        self._policy.remove(keys)
        for key in keys:
            self._aside.discard(key)
            self._forget(key)

    def priority(self, key: int, now_ms: int) -> int:
        """The priority of a held block now."""
        return self._standings.get(key, DEFAULT_STANDING).priority(now_ms)

    def _num_hits(self, keys: Sequence[int]) -> int:
        for at, key in enumerate(keys):
            if key not in self:
                return at
        return len(keys)

    def _touch(self, access: Access, num_hits: int, retention: Retention) -> None:
        """Note an access that may store nothing."""
        found = access.keys[:num_hits]
        known = [key for key in found if key in self._policy]
        if known:
            self._policy.access(replace(access, keys=known, partial_tail=False))
        if retention.ttl_s is not None:
            deadline_ms = access.now_ms + int(retention.ttl_s * 1000)
            for key in found:
                self._deadlines.extend(key, deadline_ms, is_new=False)

    def _store(self, access: Access, retention: Retention, gone: list[int]) -> None:
        now_ms, dead = access.now_ms, set(gone)
        if not dead.isdisjoint(access.keys):
            # What was named as gone is gone, and nothing behind it is of use until it is back.
            num_alive = next(at for at, key in enumerate(access.keys) if key in dead)
            rest = access.keys[num_alive:]
            gone.extend(key for key in dict.fromkeys(rest) if key not in self and key not in dead)
            access = replace(access, keys=access.keys[:num_alive], partial_tail=False)
        keys = access.keys
        new = {key for key in keys if key not in self}
        low_from = self._claim(access, retention, new)
        missing = len(new) + sum(key in self._aside for key in keys)
        for key in keys:
            self._aside.discard(key)  # goes back to the policy
        self._follow_capacity(now_ms, gone)
        too_many = missing * access.block_size - (self._policy.capacity - self._policy.size)
        if too_many > 0:
            too_many = self._evict_low(
                too_many, now_ms, gone, spared=set(keys), than=keys[low_from:]
            )
        num_kept = len(keys)
        if too_many > 0:
            # Blocks below the default do not displace those at it: they are not stored at all.
            num_kept = max(low_from, num_kept - -(-too_many // access.block_size))
            dropped = [key for key in keys[num_kept:] if key in new]
            self._let_go(dropped, now_ms, gone)
            access = replace(access, keys=keys[:num_kept], partial_tail=False)
        self._follow_capacity(now_ms, gone)
        self._let_go(self._policy.access(access).victims, now_ms, gone)
        self._fit(now_ms, gone)
        self._note(keys, retention, new, now_ms)

    def _claim(self, access: Access, retention: Retention, new: set[int]) -> int:
        """Give each block its standing; returns from where on all of them are low."""
        keys = access.keys
        standings = retention.standings(
            len(keys),
            input_tokens=access.input_tokens,
            block_tokens=self._block_tokens,
            now_ms=access.now_ms,
        )
        self._num_accesses += 1
        low_from = len(keys)
        for at in range(len(keys) - 1, -1, -1):
            key, standing = keys[at], standings[at]
            if key not in new:
                standing = self._standings.get(key, DEFAULT_STANDING).join(standing)
            if standing.claims:
                self._standings[key] = standing
                self._touches[key] = Touch(self._num_accesses, -at, access.block_size)
            else:
                self._standings.pop(key, None)
                self._touches.pop(key, None)
            if low_from == at + 1 and standing.priority(access.now_ms) < DEFAULT_PRIORITY:
                low_from = at
        return low_from

    def _note(self, keys: Sequence[int], retention: Retention, new: set[int], now_ms: int) -> None:
        """Book what the access left behind."""
        deadline_ms = None if retention.ttl_s is None else now_ms + int(retention.ttl_s * 1000)
        for key in keys:
            standing = self._standings.get(key, DEFAULT_STANDING)
            if (deadline_ms is not None or self._deadlines) and key in self:
                self._deadlines.extend(key, deadline_ms, is_new=key in new)
            if standing.is_low and key in self._policy:
                self._low.put(key, standing.priority(now_ms), self._touches[key])

    def _let_go(self, victims: Iterable[int], now_ms: int, gone: list[int]) -> None:
        """Set aside what the policy gave up but is of high priority; the rest is gone."""
        for key in victims:
            standing = self._standings.get(key, DEFAULT_STANDING)
            if standing.priority(now_ms) > DEFAULT_PRIORITY:
                self._aside.put(key, self._touches[key], standing, now_ms)
            else:
                self._forget(key)
                gone.append(key)

    def _fit(self, now_ms: int, gone: list[int]) -> None:
        """Bring the size to the capacity: low blocks first, those of high priority last."""
        if self.size > self._capacity:
            self._evict_low(self.size - self._capacity, now_ms, gone)
        self._follow_capacity(now_ms, gone)
        while self.size > self._capacity:
            key = self._aside.take_lowest(now_ms, self._standings)
            self._forget(key)
            gone.append(key)
        self._follow_capacity(now_ms, gone)

    def _follow_capacity(self, now_ms: int, gone: list[int]) -> None:
        """Leave to the policy what is not set aside; it may make it smaller still."""
        while self._policy.capacity != (due := max(0, self._capacity - self._aside.size)):
            self._let_go(self._policy.resize(due), now_ms, gone)

    def _evict_low(
        self,
        size: int,
        now_ms: int,
        gone: list[int],
        *,
        spared: Iterable[int] = (),
        than: Sequence[int] = (),
    ) -> int:
        """Evict what is set aside for no more reason, then blocks below the default.

        Returns what is still to go.
        """
        highest = self.priority(than[0], now_ms) if than else DEFAULT_PRIORITY
        over = self._aside.take_over(now_ms, self._standings)
        low = self._low.take(now_ms, self._standings, highest, spared)
        before = self.size
        while size > before - self.size and (key := next(chain(over, low), None)) is not None:
            self._policy.remove([key])
            self._forget(key)
            gone.append(key)
        low.close()  # puts back what was spared
        return size - (before - self.size)

    def _forget(self, key: int) -> None:
        self._standings.pop(key, None)
        self._touches.pop(key, None)
        self._low.discard(key)
        self._deadlines.discard(key)
