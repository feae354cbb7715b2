"""What a pool's slots tell of its records, as columns that numpy sorts.

A record's chain is not visible in its slot. What is: when it was last accessed, when before that,
how often, and where its bytes lie. `oldest_first` and the order inside of an access follow from
these alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvext.pool import RecordTable

__all__ = ["Records", "Refs", "Words", "back_to_front"]

_REF = np.dtype([("slot", "<u4"), ("extent", "<u4"), ("generation", "<u8")])
_KEY = np.dtype([("head", "<u8"), ("rest", "V24")])

Words = NDArray[np.uint64]
Refs = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Records:
    """Committed records at one moment; all columns have one entry each.

    Attributes:
        keys: The first 64 bits of each key, which is a SHA-256. Shards of one block (tensor
            parallel ranks) have one key and share its fate.
        refs: What `Pool.evict` takes.
        last_access: Tenths of a second of the pool's clock.
        previous_access: The access before that one; 0 if there was none.
        hits: Accesses since the store, up to 255.
    """

    keys: Words
    refs: Refs
    last_access: NDArray[np.int64]
    previous_access: NDArray[np.int64]
    hits: NDArray[np.int64]

    @classmethod
    def of(cls, table: RecordTable) -> "Records":
        """Columns over a snapshot's bytes."""
        return cls(
            keys=np.frombuffer(table.keys, _KEY)["head"],
            refs=np.frombuffer(table.refs, _REF),
            last_access=np.asarray(table.last_access, np.int64),
            previous_access=np.asarray(table.previous_access, np.int64),
            hits=np.asarray(table.hits, np.int64),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, chosen: NDArray[Any]) -> "Records":
        """Some of them, by mask or by index."""
        return Records(
            self.keys[chosen],
            self.refs[chosen],
            self.last_access[chosen],
            self.previous_access[chosen],
            self.hits[chosen],
        )

    def head_first(self) -> NDArray[np.intp]:
        """An order in which most blocks of a prompt come before those behind them.

        Whoever matches a block has matched all blocks in front of it, so the head has the more
        hits. Among equals the lower extent is the older store, mostly: writers are handed extents
        in ascending order for as long as `back_to_front` puts them back in descending one,
        as the CLOCK does.
        """
        order: NDArray[np.intp] = np.lexsort((self.refs["extent"], -self.hits))
        return order

    def oldest_first(self, num_records: int) -> Refs:
        """Refs of the least recently used; of equally old ones, tails before heads."""
        order = np.lexsort((-self.refs["extent"].astype(np.int64), self.hits, self.last_access))
        chosen: Refs = self.refs[order[:num_records]]
        return chosen

    def refs_of(self, keys: Words) -> Refs:
        """Refs of all records under these keys that are there, in the order of `keys`."""
        order = np.argsort(self.keys, kind="stable")
        in_order = self.keys[order]
        first = np.searchsorted(in_order, keys, "left")
        counts = np.searchsorted(in_order, keys, "right") - first
        starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
        chosen: Refs = self.refs[order[starts + np.arange(counts.sum())]]
        return chosen


def back_to_front(refs: Refs) -> Refs:
    """Refs in descending order of their extents, so that writers get them in ascending order.

    The free list is a stack. See `Records.head_first` for what the order is good for.
    """
    ordered: Refs = refs[np.argsort(refs["extent"], kind="stable")[::-1]]
    return ordered
