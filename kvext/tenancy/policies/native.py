"""The native form of the policies: same interface, same decisions, some hundred times as fast."""

from array import array
from collections.abc import Iterable, Sequence

from kvext.tenancy.policies import _native
from kvext.tenancy.policy import Access, Admission

__all__ = ["NativePolicy"]


class NativePolicy:
    """An `EvictionPolicy` whose decisions the native core makes."""

    __slots__ = ("_core",)

    def __init__(self, core: _native.Policy) -> None:
        """Wrap what `_native.make` made."""
        self._core = core

    @property
    def capacity(self) -> int:
        """The most that the cache may hold."""
        return self._core.capacity

    @property
    def size(self) -> int:
        """What it holds now."""
        return self._core.size

    def access(self, access: Access) -> Admission:
        """See `EvictionPolicy.access`."""
        num_hits, victims = self._core.access(
            access.now_ms,
            packed(access.keys),
            access.input_tokens,
            access.output_tokens,
            access.partial_tail,
            access.block_size,
            access.first_cost_s,
            access.cost_step_s,
            access.session,
            access.return_ms,
        )
        return Admission(num_hits, unpacked(victims))

    def evict(self, size: int) -> Sequence[int]:
        """See `EvictionPolicy.evict`."""
        return unpacked(self._core.evict(size))

    def resize(self, capacity: int) -> Sequence[int]:
        """See `EvictionPolicy.resize`."""
        return unpacked(self._core.resize(capacity))

    def remove(self, keys: Iterable[int]) -> None:
        """See `EvictionPolicy.remove`."""
        for key in keys:
            self._core.remove(key)

    def __contains__(self, key: int) -> bool:
        """Whether the cache holds this block."""
        return self._core.contains(key)


def packed(keys: Sequence[int]) -> "array[int]":
    """Keys as 64-bit words that the core reads in place."""
    return keys if isinstance(keys, array) and keys.typecode == "Q" else array("Q", keys)


def unpacked(words: bytes) -> Sequence[int]:
    """Keys that the core returned."""
    return memoryview(words).cast("Q") if words else ()
