"""LRU-2, insured by LRU: shadows tell which of the two would do better here.

LRU-2 keeps what comes back and is far ahead where a pool is small for its traffic; where it is
large, LRU is. Both need nothing of a block but its last accesses, which is what slots tell. The
shadows are caches of metadata that hold a sample of the keys.
"""

import math
from array import array
from collections.abc import Sequence

import numpy as np

from kvext.agent.observation import Seen
from kvext.agent.ranking import PolicyRanking
from kvext.agent.records import Records, Refs, Words
from kvext.tenancy.policies import make_policy
from kvext.tenancy.policy import Access, EvictionPolicy

__all__ = ["Insurance", "InsuredRanking"]

LARGEST_SHADOW = 1 << 14
# As in the duel of `kvext.tenancy.policies`: a lead must be a share of the accesses it was won
# in, and more than chance gives.
_MARGIN = 0.002
_DEVIATIONS = 2
_TURNOVERS = 4
_LEAST_MEMORY = 10_000


class Insurance:
    """Says whether recency alone would hit more than LRU-2.

    Attributes:
        recency_leads: Whether it would.
    """

    __slots__ = ("_lead", "_memory", "_one_of", "_shadows", "_variance", "recency_leads")

    def __init__(self, num_extents: int) -> None:
        """Begin with trust in LRU-2."""
        self.recency_leads = False
        self._one_of = 1
        while num_extents // self._one_of > LARGEST_SHADOW:
            self._one_of *= 2
        capacity = max(1, num_extents // self._one_of)
        self._shadows = [make_policy(name, capacity) for name in ("lru", "lru2")]
        self._memory = _TURNOVERS * capacity + _LEAST_MEMORY
        self._lead = self._variance = 0.0

    def note(self, seen: Seen) -> None:
        """Have both shadows take in one access."""
        sampled: Words = seen.keys[seen.keys % np.uint64(self._one_of) == 0]
        if not len(sampled):
            return
        keys = array("Q", sampled.tobytes())
        by_recency, by_lru2 = (_hits(shadow, seen.at_tenths, keys) for shadow in self._shadows)
        fades = math.exp(-len(keys) / self._memory)
        lead = by_lru2 - by_recency
        self._lead = self._lead * fades + lead
        self._variance = self._variance * fades * fades + lead * lead
        chance = _DEVIATIONS * math.sqrt(self._variance)
        if abs(self._lead) > _MARGIN * self._memory + chance:
            self.recency_leads = self._lead < 0


def _hits(shadow: EvictionPolicy, at_tenths: int, keys: Sequence[int]) -> int:
    num_hits = sum(key in shadow for key in keys)
    shadow.access(Access(at_tenths * 100, keys, len(keys)))
    return num_hits


class InsuredRanking:
    """`Ranking` by LRU-2, or by the last access alone while the insurance says so."""

    __slots__ = ("_insurance", "_lru2")

    def __init__(self, num_extents: int, insurance: Insurance | None = None) -> None:
        """Begin empty."""
        self._insurance = insurance or Insurance(num_extents)
        self._lru2 = PolicyRanking(make_policy("lru2", num_extents))

    def observe(self, records: Records) -> Sequence[Seen]:
        """See `Ranking.observe`."""
        accesses = self._lru2.observe(records)
        for seen in accesses:
            self._insurance.note(seen)
        return accesses

    def choose(self, records: Records, num_records: int) -> Refs:
        """See `Ranking.choose`."""
        if self._insurance.recency_leads:
            return records.oldest_first(num_records)
        return self._lru2.choose(records, num_records)
