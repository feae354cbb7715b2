"""A hit in an engine with several KV groups: found in all of them, pinned in all, or no hit."""

from collections.abc import Sequence

from kvext.connector.group_keys import GroupKeys
from kvext.connector.reach import longest_reach, needed_blocks
from kvext.connector.rules import CacheGroup, Matcher
from kvext.protocol.tier import Lease

__all__ = ["JointLease", "pin_joint_hit"]

_MAX_TRIES = 3
"""A block may be evicted between being seen and being pinned; then the hit is sought anew."""


class JointLease:
    """Pins what each group needs for one hit."""

    __slots__ = ("_parts", "num_blocks", "num_bytes")

    def __init__(self, parts: Sequence[Lease], num_blocks: int, num_bytes: int) -> None:
        """Own some leases.

        Args:
            parts: One a group that needs blocks, in the groups' order.
            num_blocks: Token blocks of the hit, which is not the sum over the parts.
            num_bytes: Bytes that have to be loaded for it.
        """
        self._parts = parts
        self.num_blocks = num_blocks
        self.num_bytes = num_bytes

    @property
    def refs(self) -> bytes:
        """The parts' references, group after group."""
        return b"".join(part.refs for part in self._parts)

    def release(self) -> None:
        """Give all blocks back; a second call does nothing."""
        for part in self._parts:
            part.release()


def pin_joint_hit(
    matcher: Matcher, groups: Sequence[CacheGroup], keys: GroupKeys, blocks: range
) -> JointLease | None:
    """Find and pin the longest hit.

    Args:
        matcher: The tier.
        groups: All groups of the engine.
        keys: The request's, for `blocks` at least.
        blocks: What a hit may consist of.

    Returns:
        A lease of at least one token block, or None.
    """
    present, stop = _look_up(matcher, groups, keys, blocks)
    for _ in range(_MAX_TRIES):
        stop = longest_reach(groups, present, blocks.start, stop)
        if stop == blocks.start:
            return None
        parts: list[Lease] = []
        num_bytes = 0
        for number, group in enumerate(groups):
            needed = needed_blocks(group, blocks.start, stop)
            if not needed:
                continue
            lease = matcher.match(keys.of(number, needed), group.shape)
            parts.append(lease)
            num_bytes += len(needed) * group.record_bytes
            if lease.num_blocks < len(needed):
                gap = needed.start + lease.num_blocks - blocks.start
                present[number] = present[number][:gap] + b"\0" + present[number][gap + 1 :]
                break
        else:
            return JointLease(parts, stop - blocks.start, num_bytes)
        for lease in parts:
            lease.release()
    return None


def _look_up(
    matcher: Matcher, groups: Sequence[CacheGroup], keys: GroupKeys, blocks: range
) -> tuple[list[bytes], int]:
    """What is stored of each group, and where a hit ends at most.

    Groups of full attention come first: a miss there, the common case, ends the search.
    """
    present = [bytes(len(blocks)) for _ in groups]
    stop = blocks.stop
    for number in sorted(range(len(groups)), key=lambda at: groups[at].window_tokens is not None):
        asked = range(blocks.start, stop)
        found = matcher.lookup(keys.of(number, asked), groups[number].shape)
        present[number] = found + bytes(len(blocks) - len(found))
        stop = longest_reach([groups[number]], [found], blocks.start, stop)
        if stop == blocks.start:
            break
    return present, stop
