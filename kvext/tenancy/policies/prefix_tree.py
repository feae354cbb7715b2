"""The tree of known prefixes, and the leaves of its cached part.

A block's parent is the block before it in the last prompt that it stood in. One that was forgotten
is not in the tree any more; if its key comes back, that is another block.
"""

from kvext.tenancy.policies.runs import Record
from kvext.tenancy.policies.splitmix import SplitMix64

__all__ = ["CachedLeaves", "TreeBlock"]


class TreeBlock:
    """What is known of one block.

    Attributes:
        key: Its key.
        size: What it takes of the capacity.
        is_cached: The cache holds it.
        parent: The block before it; None at the head.
        num_children: Blocks that ever followed it.
        num_cached_children: Those that follow it now and are cached.
        record: Of its last access.
        num_accesses: All of them.
        last_request: Number of the last request that touched it.
        hit_value: What a hit is worth.
    """

    __slots__ = (
        "hit_value",
        "is_cached",
        "key",
        "last_request",
        "num_accesses",
        "num_cached_children",
        "num_children",
        "parent",
        "record",
        "size",
    )

    def __init__(self, key: int, size: int) -> None:
        """Begin outside the cache, without relations."""
        self.key = key
        self.size = size
        self.is_cached = False
        self.parent: TreeBlock | None = None
        self.num_children = 0
        self.num_cached_children = 0
        self.record: Record | None = None
        self.num_accesses = 0
        self.last_request = 0
        self.hit_value = 1.0


class CachedLeaves:
    """Cached blocks that no cached block follows; only those may go.

    The order in which they lie matters to what a draw gives: a new leaf comes last, and the last
    one takes the place of one that goes.
    """

    __slots__ = ("_leaves", "_place")

    def __init__(self) -> None:
        """Begin with an empty tree."""
        self._leaves: list[TreeBlock] = []
        self._place: dict[TreeBlock, int] = {}

    def draw(self, random: SplitMix64) -> TreeBlock:
        """A leaf at random; there must be one."""
        return self._leaves[random.below(len(self._leaves))]

    def take_in(self, block: TreeBlock) -> None:
        """The block is cached from now on."""
        block.is_cached = True
        if block.num_cached_children == 0:
            self._add(block)
        self._link(block)

    def take_out(self, block: TreeBlock) -> None:
        """The block is cached no longer."""
        if block in self:
            self._drop(block)
        self._unlink(block)
        block.is_cached = False

    def follow(self, block: TreeBlock, parent: TreeBlock | None) -> None:
        """The block stood behind `parent`, or at the head of a prompt."""
        if block.parent is parent:
            return
        if block.is_cached:
            self._unlink(block)
        block.parent = parent
        if parent is not None:
            parent.num_children += 1
            if block.is_cached:
                self._link(block)

    def __contains__(self, block: TreeBlock) -> bool:
        return block in self._place

    def _link(self, block: TreeBlock) -> None:
        parent = block.parent
        if parent is not None:
            parent.num_cached_children += 1
            if parent in self:
                self._drop(parent)

    def _unlink(self, block: TreeBlock) -> None:
        parent = block.parent
        if parent is not None:
            parent.num_cached_children -= 1
            if parent.num_cached_children == 0 and parent.is_cached:
                self._add(parent)

    def _add(self, block: TreeBlock) -> None:
        self._place[block] = len(self._leaves)
        self._leaves.append(block)

    def _drop(self, block: TreeBlock) -> None:
        place = self._place.pop(block)
        last = self._leaves.pop()
        if last is not block:
            self._leaves[place] = last
            self._place[last] = place
