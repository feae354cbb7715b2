"""A queue of blocks that knows what they take of the capacity together."""

from collections import OrderedDict
from collections.abc import Iterator

__all__ = ["SizedQueue"]


class SizedQueue:
    """Keys with their sizes, oldest first. A key stands in it once."""

    __slots__ = ("_sizes", "size")

    def __init__(self) -> None:
        """Begin empty."""
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self.size = 0

    def push(self, key: int, size: int) -> None:
        """Put a key that is not in the queue at its new end."""
        self._sizes[key] = size
        self.size += size

    def take(self, key: int) -> int:
        """Take out a key that is in the queue; gives its size."""
        size = self._sizes.pop(key)
        self.size -= size
        return size

    def take_oldest(self) -> tuple[int, int]:
        """Take out the oldest key; gives it and its size."""
        key, size = self._sizes.popitem(last=False)
        self.size -= size
        return key, size

    def renew(self, key: int) -> None:
        """Move a key to the new end."""
        self._sizes.move_to_end(key)

    def __contains__(self, key: int) -> bool:
        return key in self._sizes

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)
