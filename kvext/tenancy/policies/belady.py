"""Belady's optimum with bypass, in Python: the definition of `kvext.tenancy.optimal`.

What is asked for again the soonest is kept; the request's own blocks compete with the rest and need
not be stored at all. Among blocks with the same next access the deeper one goes first.

How far it is an optimum: where each key always follows the same key, as keys of prefixes do, a
block's next access is never sooner than that of the block before it. Then whatever is kept is
whole prefixes, every kept block is a hit at its next access, and no strategy has more hits
(Belady: A study of replacement algorithms for a virtual-storage computer, 1966). Where keys
stand in prompts without such an order, a kept block may follow one that was not kept. It counts
all the same, so that no strategy has more hits then either, though perhaps none has as many; but
for prompts that repeat a key, which traces may not.
"""

from collections.abc import Sequence

from kvext.tenancy.policy import Access

__all__ = ["belady_hits"]


def belady_hits(accesses: Sequence[Access], capacity: int) -> list[int]:
    """Hits of each access; all blocks count as one unit.

    Args:
        accesses: The whole trace, in order.
        capacity: Blocks that the cache may hold.
    """
    next_accesses = _next_accesses(accesses)
    rank: dict[int, tuple[int, int, int]] = {}  # of held blocks; the greatest goes first
    hits = []
    for access, next_access in zip(accesses, next_accesses, strict=True):
        hits.append(sum(key in rank for key in access.keys))
        for depth, key in enumerate(access.keys):
            rank.pop(key, None)
            if key in next_access:
                rank[key] = (next_access[key], depth, key)
        while len(rank) > capacity:
            del rank[max(rank, key=lambda key: rank[key])]
    return hits


def _next_accesses(accesses: Sequence[Access]) -> list[dict[int, int]]:
    """For each access, which of its keys come again, and in which access."""
    later: dict[int, int] = {}
    out = []
    for number in range(len(accesses) - 1, -1, -1):
        keys = accesses[number].keys
        out.append({key: later[key] for key in keys if key in later})
        later.update(dict.fromkeys(keys, number))
    out.reverse()
    return out
