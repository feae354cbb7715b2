"""Which blocks are worth writing to a tier: those that will most likely be asked for again.

A block's chance is what that of its kind was of late: whose request it is, how long its prompt and
how much of it is new. Kinds of which hardly any block came back are not written while there is
pressure, unless a block is seen a second time; the last, partial block of a prompt never is. How
rare is too rare follows from what it costs: hits that were lost are counted, and may be no more
than a given part of all hits.

Invariant: of each request a beginning is written, since a block is of no use without those before
it; what was seen before is in it, and without pressure so is every full block.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from kvext.tenancy.policy import Access

__all__ = ["StoreAdmission", "StoreCounts"]

_REMEMBERED = 4
"""First sightings that are remembered, in turnovers of the tier."""
_FADES_AT = 20_000.0
"""Blocks of a kind, or hits, after which the past counts half."""
_FEW = 500.0
"""Blocks of a kind before its chance is believed."""
_LEAST_THRESHOLD, _MOST_THRESHOLD = 1e-4, 0.5
_STEP_BLOCKS = 20_000
"""Blocks seen in which the threshold may move by a factor of e."""


@dataclass(slots=True)
class StoreCounts:
    """What was decided so far, in blocks.

    Attributes:
        num_written: New ones that were let in.
        num_refused: New ones that were not.
        num_found: Seen again, the first sighting was let in.
        num_lost: Seen again, the first sighting was refused.
    """

    num_written: int = 0
    num_refused: int = 0
    num_found: int = 0
    num_lost: int = 0


@dataclass(slots=True, eq=False)
class _Kind:
    num_blocks: float = 0.0
    num_back: float = 0.0

    def add(self, num_blocks: int) -> None:
        self.num_blocks += num_blocks
        if self.num_blocks > _FADES_AT:
            self.num_blocks /= 2
            self.num_back /= 2


@dataclass(slots=True, eq=False)
class _Sighting:
    """The first of a request's new blocks."""

    kind: _Kind
    is_written: bool


class StoreAdmission:
    """Says how much of each request to write."""

    __slots__ = (
        "_capacity",
        "_first",
        "_found",
        "_kinds",
        "_lost",
        "_lost_part",
        "_threshold",
        "counts",
    )

    def __init__(self, capacity: int, *, lost_part: float = 0.01) -> None:
        """Begin knowing nothing, which lets everything in.

        Args:
            capacity: Blocks that the tier holds.
            lost_part: Part of the hits that may be lost for fewer writes.
        """
        self._capacity = capacity
        self._lost_part = lost_part
        # Oldest first; None once the block was seen again.
        self._first: OrderedDict[int, _Sighting | None] = OrderedDict()
        self._kinds: dict[tuple[str, int, int, int], _Kind] = {}
        self._threshold = 0.01
        self._found = 0.0
        self._lost = 0.0
        self.counts = StoreCounts()

    @property
    def threshold(self) -> float:
        """The least chance of coming back that lets a block in."""
        return self._threshold

    def num_wanted(self, access: Access, *, tenant: str = "", under_pressure: bool) -> int:
        """How many blocks of the request, from its head on, to have in the tier.

        Args:
            access: The request; to be told of each once, in order.
            tenant: Whose it is.
            under_pressure: Whether something else has to leave for what is written.
        """
        keys, first = access.keys, self._first
        num_known = sum(1 for _ in takewhile(first.__contains__, keys))
        self._learn(keys[:num_known])
        num_full = max(num_known, len(keys) - access.partial_tail)
        num_new = num_full - num_known
        kind = self._kind(tenant, num_known, num_new, len(keys))
        is_wanted = not under_pressure or self._is_wanted(kind)
        kind.add(num_new)
        first.update(dict.fromkeys(keys[num_known:num_full], _Sighting(kind, is_wanted)))
        self._forget()
        num_wanted = num_full if is_wanted else num_known
        self.counts.num_written += num_wanted - num_known
        self.counts.num_refused += len(keys) - num_wanted
        self._move_threshold(num_new)
        return num_wanted

    def _kind(self, tenant: str, num_known: int, num_new: int, num_blocks: int) -> _Kind:
        name = (tenant, num_known.bit_length(), num_new.bit_length(), num_blocks.bit_length())
        return self._kinds.setdefault(name, _Kind())

    def _is_wanted(self, kind: _Kind) -> bool:
        return kind.num_blocks < _FEW or kind.num_back >= self._threshold * kind.num_blocks

    def _learn(self, known: Sequence[int]) -> None:
        first = self._first
        for key in known:
            sighting = first[key]
            if sighting is None:
                continue
            first[key] = None
            sighting.kind.num_back += 1
            if sighting.is_written:
                self._found += 1
                self.counts.num_found += 1
            else:
                self._lost += 1
                self.counts.num_lost += 1

    def _forget(self) -> None:
        first = self._first
        while len(first) > _REMEMBERED * self._capacity:
            first.popitem(last=False)

    def _move_threshold(self, num_new: int) -> None:
        hits = self._found + self._lost
        if hits > _FADES_AT:
            self._found /= 2
            self._lost /= 2
        step = math.exp(num_new / _STEP_BLOCKS)
        if self._lost > self._lost_part * hits:
            step = 1 / step
        self._threshold = min(_MOST_THRESHOLD, max(_LEAST_THRESHOLD, self._threshold * step))
