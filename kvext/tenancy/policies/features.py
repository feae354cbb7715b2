"""What a hazard model knows of a run of blocks at their last access.

Small numbers that name buckets, mostly powers of two.
"""

from enum import IntEnum

__all__ = ["Feature", "Features", "children_bucket", "crossed", "gap_bucket", "log_bucket"]

Features = tuple[int, ...]
"""One bucket for each `Feature`, in their order."""

_MOST_LOG = 20
_FEW_CHILDREN = 2
_MANY_CHILDREN = 8


class Feature(IntEnum):
    """The features, in their order."""

    COUNT = 0
    """Accesses of the block, to 5."""
    TURN = 1
    """Which request of the conversation this is, to 20."""
    PROMPT = 2
    """Blocks of the prompt."""
    OUTPUT = 3
    """Tokens of the answer."""
    GAP = 4
    """Time since the conversation's last request."""
    CHILDREN = 5
    """Blocks that ever followed this one."""
    TAIL = 6
    """Whether the block is partial."""
    NEW_BLOCKS = 7
    """Blocks of the prompt that nobody knew."""
    OWN_GAP = 8
    """Time since the block's last access."""
    PREVIOUS_GAP = 9
    """The conversation's gap before the gap."""
    POSITION = 10
    """Where in the prompt the run begins."""
    COUNT_TURN = 11
    PROMPT_OUTPUT = 12
    NEW_PROMPT = 13
    SESSION = 14
    """What the application says of the session, crossed with the count; 0 if nothing."""


def log_bucket(value: int) -> int:
    """0 for nothing or unknown; then a bucket each for 1, 2 to 3, 4 to 7, ..., at most 20."""
    return min(_MOST_LOG, value.bit_length()) if value > 0 else 0


def gap_bucket(gap_ms: int) -> int:
    """0 for unknown, 1 for less than a second; then a bucket for each doubling."""
    return 0 if gap_ms < 0 else 1 + log_bucket(gap_ms // 1000)


def children_bucket(num_children: int) -> int:
    """0 for a chain, 1 for a fork, 2 for a prefix that many share."""
    if num_children < _FEW_CHILDREN:
        return 0
    return 1 if num_children < _MANY_CHILDREN else 2


def crossed(bucket: int, other: int) -> int:
    """A bucket for each pair; both are cut at 7."""
    return min(bucket, 7) * 8 + min(other, 7)
