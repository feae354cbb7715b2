"""Where a block lies in an engine with several KV groups: one number for group and block.

A plan's job names blocks of all groups of a request; a worker takes them apart again.
"""

from collections.abc import Iterator, Sequence

__all__ = ["place_in_group", "runs_by_group"]


def place_in_group(num_blocks: int, group: int, block_id: int) -> int:
    """Name a block of a group.

    Args:
        num_blocks: Blocks of the engine; every group's ids are below this.
        group: The group's number.
        block_id: The engine's id.
    """
    return group * num_blocks + block_id


def runs_by_group(num_blocks: int, places: Sequence[int]) -> Iterator[tuple[int, range, list[int]]]:
    """Take places apart.

    Args:
        num_blocks: As in `place_in_group`.
        places: Names of blocks, group after group.

    Yields:
        A group, the indices of its places, and the engine's ids of its blocks.
    """
    start = 0
    while start < len(places):
        group = places[start] // num_blocks
        stop = start + 1
        while stop < len(places) and places[stop] // num_blocks == group:
            stop += 1
        base = group * num_blocks
        yield group, range(start, stop), [place - base for place in places[start:stop]]
        start = stop
