"""Turns snapshots of the slots into the stream of accesses that a policy wants.

Between two looks a block may have been accessed several times; its slot still tells the last two.
Blocks accessed in the same tenth of a second make one access, head first as far as the slots can
tell; whose requests they were is not known. ADR 10 says why no log of accesses is kept instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvext.agent.records import Records, Words

__all__ = ["Seen", "Watch"]


@dataclass(frozen=True, slots=True)
class Seen:
    """Blocks that were accessed together.

    Attributes:
        at_tenths: When, by the pool's clock; never less than in the `Seen` before.
        keys: Each once, head first as far as that is known.
    """

    at_tenths: int
    keys: Words


class Watch:
    """Remembers the last look, so that the next one tells what is new."""

    __slots__ = ("_keys", "_last_access", "_latest")

    def __init__(self) -> None:
        """Begin with an empty pool."""
        self._keys: Words = np.empty(0, np.uint64)  # ascending, each once
        self._last_access: NDArray[np.int64] = np.empty(0, np.int64)
        self._latest = 0

    def look(self, records: Records) -> tuple[list[Seen], Words]:
        """What happened since the last look.

        Args:
            records: All records of the pool now.

        Returns:
            The accesses in the order of their time, and the keys that left the pool.
        """
        order = np.lexsort((-records.last_access, records.keys))
        once = records.take(order[_first_of_each(records.keys[order])])
        known_access = self._known_access(once.keys)
        gone = np.setdiff1d(self._keys, once.keys, assume_unique=True)
        self._keys, self._last_access = once.keys, once.last_access
        earlier = once.take(
            (once.previous_access > known_access) & (once.previous_access < once.last_access)
        )
        # Not "later than": the clock that the slots show may be set back.
        later = once.take(once.last_access != known_access)
        events = _joined(earlier, later)
        return list(self._groups(*events)), gone

    def _known_access(self, keys: Words) -> NDArray[np.int64]:
        """When each was last accessed as of the last look; -1 for a new one."""
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        at = np.searchsorted(self._keys, keys)
        at[at == len(self._keys)] = 0
        return np.where(self._keys[at] == keys, self._last_access[at], -1)

    def _groups(self, records: Records, at_tenths: NDArray[np.int64]) -> Iterator[Seen]:
        in_group = np.empty(len(records), np.intp)
        in_group[records.head_first()] = np.arange(len(records))
        order = np.lexsort((in_group, at_tenths))
        times = at_tenths[order]
        starts = np.flatnonzero(_first_of_each(times))
        for start, keys in zip(starts, np.split(records.keys[order], starts[1:]), strict=False):
            # A policy's time may not go back.
            self._latest = max(self._latest, int(times[start]))
            yield Seen(self._latest, keys)


def _joined(earlier: Records, later: Records) -> tuple[Records, NDArray[np.int64]]:
    """Last accesses but one and last accesses, and when each was."""
    real = earlier.take(earlier.previous_access > 0)
    both = Records(
        np.concatenate((real.keys, later.keys)),
        np.concatenate((real.refs, later.refs)),
        np.concatenate((real.last_access, later.last_access)),
        np.concatenate((real.previous_access, later.previous_access)),
        np.concatenate((real.hits, later.hits)),
    )
    return both, np.concatenate((real.previous_access, later.last_access))


def _first_of_each(sorted_values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Where a value differs from the one before it."""
    first = np.ones(len(sorted_values), np.bool_)
    first[1:] = sorted_values[1:] != sorted_values[:-1]
    return first
