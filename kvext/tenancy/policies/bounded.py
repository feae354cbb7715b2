"""What all policies have in common in their Python form: a capacity and a clock.

A policy proper is a set of `Rules`: it says which blocks go. `BoundedCache` says how much must go
and when, which makes it an `EvictionPolicy`.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kvext.tenancy.policy import Access, Admission

__all__ = ["BoundedCache", "Rules", "cached_prefix"]

_NO_LIMIT = 2**64 - 1
_LATEST_MS = 2**62  # differences fit 64 bits


class Rules(Protocol):
    """How one policy chooses victims. All sizes are in the unit of the capacity."""

    @property
    def size(self) -> int:
        """What the cache holds."""
        ...

    def admit(self, access: Access, limit: int) -> Admission:
        """Take in a prompt of at least one block; then hold at most `limit`."""
        ...

    def shrink(self, target: int, now_ms: int) -> list[int]:
        """Name victims until the size is at most `target`."""
        ...

    def remove(self, key: int) -> None:
        """Forget the block, cached or not, and all that is remembered of it."""
        ...

    def retire(self, key: int) -> None:
        """Note that somebody else has evicted the block."""
        ...

    def set_capacity(self, capacity: int) -> None:
        """Know the new capacity; remember no more than befits it. Names no victims."""
        ...

    def __contains__(self, key: int) -> bool:
        """Whether the block is cached."""
        ...


class BoundedCache:
    """An `EvictionPolicy` made of rules, and what a duel needs of its members."""

    __slots__ = ("_capacity", "_follows", "_now_ms", "_rules")

    def __init__(self, rules: Rules, capacity: int) -> None:
        """Begin empty.

        Args:
            rules: Made for the same capacity.
            capacity: The most that the cache may hold.
        """
        self._rules = rules
        self._capacity = capacity
        self._follows = False
        self._now_ms = 0

    @property
    def capacity(self) -> int:
        """The most that the cache may hold."""
        return self._capacity

    @property
    def size(self) -> int:
        """What it holds now."""
        return self._rules.size

    def access(self, access: Access) -> Admission:
        """See `EvictionPolicy.access`."""
        if access.block_size < 1:
            raise ValueError(f"block_size is {access.block_size}; a block takes at least 1")
        if not self._now_ms <= access.now_ms <= _LATEST_MS:
            raise ValueError(
                f"now_ms is {access.now_ms}, which is not between the last access's "
                f"{self._now_ms} and 2 ** 62"
            )
        self._now_ms = access.now_ms
        if not access.keys:
            return Admission(0, ())
        return self._rules.admit(access, self._limit())

    def evict(self, size: int) -> Sequence[int]:
        """See `EvictionPolicy.evict`."""
        return self._rules.shrink(max(0, self.size - size), self._now_ms)

    def resize(self, capacity: int) -> Sequence[int]:
        """See `EvictionPolicy.resize`."""
        self.set_capacity(capacity)
        return self._rules.shrink(self._limit(), self._now_ms)

    def remove(self, keys: Iterable[int]) -> None:
        """See `EvictionPolicy.remove`."""
        for key in keys:
            self._rules.remove(key)

    def __contains__(self, key: int) -> bool:
        """Whether the cache holds this block."""
        return key in self._rules

    def set_capacity(self, capacity: int) -> None:
        """As `resize`, but leaves it to the caller to bring the size down."""
        self._capacity = capacity
        self._rules.set_capacity(capacity)

    def follow(self, *, follows: bool) -> None:
        """Whether another policy decides.

        A follower names no victims at its capacity; it hears of the other's by `retire`.
        """
        self._follows = follows

    def retire(self, keys: Iterable[int]) -> None:
        """Note victims of another policy. What the rules know of them stays."""
        for key in keys:
            self._rules.retire(key)

    def _limit(self) -> int:
        return _NO_LIMIT if self._follows else self._capacity


def cached_prefix(rules: Rules, keys: Sequence[int]) -> int:
    """Blocks of the longest prefix that is cached."""
    for depth, key in enumerate(keys):
        if key not in rules:
            return depth
    return len(keys)
