"""Which records go: a policy's choice, kept in step with what the pool really holds.

Invariant: whatever is chosen was in the snapshot that the choice was made from. A record that was
chosen and stayed, because it was pinned, is chosen again unless it was accessed since.
"""

from array import array
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kvext.agent.observation import Seen, Watch
from kvext.agent.records import Records, Refs, Words
from kvext.tenancy.policy import Access, EvictionPolicy

__all__ = ["PolicyRanking", "Ranking"]

_MS_A_TENTH = 100
_TOKENS_A_BLOCK = 16  # the least there is; only the ratio between prompts matters to a policy


class Ranking(Protocol):
    """Knows which records the pool can best do without."""

    def observe(self, records: Records) -> Sequence[Seen]:
        """Note what all records of the pool are now; returns the accesses that are new."""
        ...

    def choose(self, records: Records, num_records: int) -> Refs:
        """Refs of at least so many of them, or of all; worst first."""
        ...


class PolicyRanking:
    """`Ranking` by an eviction policy that is told of accesses after the fact."""

    __slots__ = ("_owed", "_policy", "_watch")

    def __init__(self, policy: EvictionPolicy) -> None:
        """Begin with an empty policy whose capacity is the pool's extents."""
        self._policy = policy
        self._watch = Watch()
        self._owed: Words = np.empty(0, np.uint64)  # chosen before; the policy has let them go

    def observe(self, records: Records) -> Sequence[Seen]:
        """See `Ranking.observe`."""
        accesses, gone = self._watch.look(records)
        # What it chose itself it remembers as evicted: of use when the block comes back.
        self._policy.remove([key for key in gone.tolist() if key in self._policy])
        owed = [self._owed]
        for seen in accesses:
            keys = array("Q", seen.keys.tobytes())
            admission = self._policy.access(
                Access(seen.at_tenths * _MS_A_TENTH, keys, len(keys) * _TOKENS_A_BLOCK)
            )
            # What it would not keep is in the pool all the same.
            owed.append(np.asarray(admission.victims, np.uint64))
        self._owe(np.concatenate(owed), records)
        return accesses

    def choose(self, records: Records, num_records: int) -> Refs:
        """See `Ranking.choose`."""
        chosen = [records.refs_of(self._owed)]
        keys = [self._owed]
        missing = num_records - len(chosen[0])
        while missing > 0 and self._policy.size:
            victims = np.asarray(self._policy.evict(missing), np.uint64)
            keys.append(victims)
            chosen.append(records.refs_of(victims))
            missing -= len(chosen[-1])
        self._owed = np.concatenate(keys)
        return np.concatenate(chosen)

    def _owe(self, keys: Words, records: Records) -> None:
        """Of keys that the policy has let go, remember those that are in the pool for good."""
        still = keys[np.isin(keys, records.keys)]
        kept = [key for key in dict.fromkeys(still.tolist()) if key not in self._policy]
        self._owed = np.array(kept, np.uint64)
