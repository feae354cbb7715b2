"""How far does a hit reach in an engine with several KV groups? Pure arithmetic on blocks.

A hit that ends at a block is right only if every group has what the engine reads from there on: a
group of full attention all blocks, a group with a sliding window those that hold the last
`window - 1` tokens. What lies before them is never read again, so nobody needs to have it.
"""

from collections.abc import Sequence

from kvext.connector.rules import CacheGroup

__all__ = ["longest_reach", "needed_blocks"]

_ABSENT = 0


def needed_blocks(group: CacheGroup, first: int, stop: int) -> range:
    """The blocks of a group that a hit needs and that the engine does not have.

    Args:
        group: The group.
        first: Blocks of the engine's own hit.
        stop: Where the hit ends, in blocks.
    """
    if group.window_tokens is None:
        return range(first, stop)
    block_tokens = group.shape.block_tokens
    left_tokens = max(0, stop * block_tokens - group.window_tokens + 1)
    return range(min(max(first, left_tokens // block_tokens), stop), stop)


def longest_reach(
    groups: Sequence[CacheGroup], present: Sequence[bytes], first: int, stop: int
) -> int:
    """Where the longest hit ends, in blocks.

    Args:
        groups: All groups of the engine.
        present: By group, one byte for each block from `first` on: 0 if it is not stored.
        first: Blocks of the engine's own hit.
        stop: The end that a hit may have at most.

    Returns:
        `first` if there is no hit.
    """
    reach = stop
    while reach > first:
        before = reach
        for group, held in zip(groups, present, strict=True):
            reach = _reach_of(group, held, first, reach)
        if reach == before:
            break
    return reach


def _reach_of(group: CacheGroup, held: bytes, first: int, stop: int) -> int:
    """The same for one group."""
    while stop > first:
        needed = needed_blocks(group, first, stop)
        gap = held.rfind(_ABSENT, needed.start - first, stop - first)
        if gap < 0:
            break
        stop = first + gap  # every end behind the gap, up to this one, needs the missing block
    return stop
