"""The bound: what a policy that knows the future would hit (Belady with bypass), offline."""

from array import array
from collections.abc import Sequence

from kvext.tenancy.policies import _native
from kvext.tenancy.policy import Access

__all__ = ["optimal_hits"]


def optimal_hits(accesses: Sequence[Access], capacity: int) -> Sequence[int]:
    """Hits of each access under the optimum; all blocks count as one unit.

    Args:
        accesses: The whole trace, in order.
        capacity: Blocks that the cache may hold.
    """
    keys = array("Q")
    for access in accesses:
        keys.extend(access.keys)
    lengths = array("I", [len(access.keys) for access in accesses])
    return memoryview(_native.optimal_hits(keys, lengths, capacity)).cast("I")
