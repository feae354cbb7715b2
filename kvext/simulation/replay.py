"""Replays requests against a cache and counts what came of it.

A request takes no time: it is told to the cache when it arrives, and the next one meets what that
left behind.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from kvext.tenancy.policy import Access, Admission, EvictionPolicy

__all__ = [
    "Arrival",
    "Cache",
    "OneCache",
    "Outcome",
    "ProgressCallback",
    "Replay",
    "prefix_cost_s",
    "replay",
]

Arrival = tuple[int, Access]
"""Whose request it is, as a position among the owners, and the request."""

ProgressCallback = Callable[[int], None]
"""Told how many block accesses were replayed since it was told before."""

_BATCH_REQUESTS = 512


class Cache(Protocol):
    """What requests of several owners are replayed against."""

    @property
    def size(self) -> int:
        """Blocks that it holds now."""
        ...

    def access(self, owner: int, access: Access) -> Admission:
        """Serve a request of the owner at this position."""
        ...


class OneCache:
    """All owners in one cache, whose policy does not tell them apart."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy

    @property
    def size(self) -> int:
        """Blocks that it holds now."""
        return self._policy.size

    def access(self, owner: int, access: Access) -> Admission:  # noqa: ARG002 - all are one
        """Serve a request, whoever's it is."""
        return self._policy.access(access)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cache did for one owner, or for all.

    Attributes:
        num_requests: Requests replayed.
        num_blocks: Block accesses: the blocks of all prompts.
        num_hits: Blocks found, each in the longest cached prefix of its prompt.
        saved_s: What computing the found blocks again would have cost.
        num_written: Blocks taken into the cache.
        num_victims: Blocks that had to leave it or were turned away.
    """

    num_requests: int
    num_blocks: int
    num_hits: int
    saved_s: float
    num_written: int
    num_victims: int

    @property
    def hit_ratio(self) -> float:
        """Hits per block access, 0 to 1; 0 if there was no access."""
        return self.num_hits / self.num_blocks if self.num_blocks else 0.0

    @property
    def written_per_hit(self) -> float | None:
        """Blocks written for each one found; None without a hit."""
        return self.num_written / self.num_hits if self.num_hits else None


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a replay.

    Attributes:
        owners: Of each owner, by position.
        elapsed_s: How long the replay took, its bookkeeping included.
    """

    owners: tuple[Outcome, ...]
    elapsed_s: float

    @property
    def total(self) -> Outcome:
        """All owners together."""
        return Outcome(
            num_requests=sum(owner.num_requests for owner in self.owners),
            num_blocks=sum(owner.num_blocks for owner in self.owners),
            num_hits=sum(owner.num_hits for owner in self.owners),
            saved_s=sum(owner.saved_s for owner in self.owners),
            num_written=sum(owner.num_written for owner in self.owners),
            num_victims=sum(owner.num_victims for owner in self.owners),
        )

    @property
    def accesses_per_second(self) -> float:
        """Block accesses per second of replay."""
        return self.total.num_blocks / self.elapsed_s if self.elapsed_s else 0.0


def replay(
    cache: Cache,
    arrivals: Iterable[Arrival],
    *,
    num_owners: int = 1,
    on_progress: ProgressCallback | None = None,
) -> Replay:
    """Replay requests.

    Args:
        cache: What serves them.
        arrivals: Requests with their owners, in the order of their time.
        num_owners: How many owners there are.
        on_progress: Called now and then, outside the time that is measured.

    Returns:
        What came of them.
    """
    tallies = [_Tally() for _ in range(num_owners)]
    elapsed_s = 0.0
    for batch in _batches(arrivals):
        size = cache.size
        blocks_before = sum(tally.num_blocks for tally in tallies)
        begun_s = time.perf_counter()
        for owner, access in batch:
            admission = cache.access(owner, access)
            grown = cache.size - size
            size += grown
            tallies[owner].add(access, admission, grown)
        elapsed_s += time.perf_counter() - begun_s
        if on_progress is not None:
            on_progress(sum(tally.num_blocks for tally in tallies) - blocks_before)
    return Replay(tuple(tally.outcome() for tally in tallies), elapsed_s)


def prefix_cost_s(access: Access, num_blocks: int) -> float:
    """Seconds that computing the first blocks of a request's prompt takes."""
    steps = num_blocks * (num_blocks - 1) / 2
    return num_blocks * access.first_cost_s + steps * access.cost_step_s


def _batches(arrivals: Iterable[Arrival]) -> Iterator[list[Arrival]]:
    rest = iter(arrivals)
    while batch := list(islice(rest, _BATCH_REQUESTS)):
        yield batch


class _Tally:
    """Sums over one owner's requests."""

    __slots__ = ("num_blocks", "num_hits", "num_requests", "num_victims", "num_written", "saved_s")

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_blocks = 0
        self.num_hits = 0
        self.saved_s = 0.0
        self.num_written = 0
        self.num_victims = 0

    def add(self, access: Access, admission: Admission, grown: int) -> None:
        """Count a request after which the cache holds `grown` blocks more."""
        keys, hits, victims = access.keys, admission.num_hits, admission.victims
        self.num_requests += 1
        self.num_blocks += len(keys)
        self.num_written += grown
        if hits:
            self.num_hits += hits
            self.saved_s += prefix_cost_s(access, hits)
        if victims:
            self.num_victims += len(victims)
            # What made room was written once, what was turned away was not.
            turned_away = set(keys[hits:]).intersection(victims)
            self.num_written += len(victims) - len(turned_away)

    def outcome(self) -> Outcome:
        """The sums."""
        return Outcome(
            self.num_requests,
            self.num_blocks,
            self.num_hits,
            self.saved_s,
            self.num_written,
            self.num_victims,
        )
