"""Several ranks of one engine: each stores and loads its own shard of every block.

Invariant: a block counts as stored only while the shards of all ranks are, and a load ends only
when every rank has told of it. Ranks exchange what they compute, so nobody may compute on a load
that another rank has yet to verify: all loads of such an engine are asynchronous.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from kvext.connector.plan import LoadJob, StepPlan
from kvext.connector.report import LoadReport, StoreReport, WorkerReport
from kvext.connector.rules import Matcher
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import REF_BYTES, Lease
from kvext.protocol.transfer import StoreOutcome

__all__ = ["AllRanks", "RankReports", "ShardLease", "leading_refs", "own_loads"]

_ReportT = TypeVar("_ReportT")


class ShardLease:
    """Pins as many blocks in every rank's shards."""

    __slots__ = ("_shards",)

    def __init__(self, shards: Sequence[Lease]) -> None:
        """Own some leases.

        Args:
            shards: One a rank, all of as many blocks; none stand for a miss.
        """
        self._shards = shards

    @property
    def num_blocks(self) -> int:
        """Blocks found, from the first key on."""
        return self._shards[0].num_blocks if self._shards else 0

    @property
    def refs(self) -> bytes:
        """The shards' references, rank after rank."""
        return b"".join(shard.refs for shard in self._shards)

    def release(self) -> None:
        """Give the blocks back; a second call does nothing."""
        for shard in self._shards:
            shard.release()


class AllRanks:
    """A tier as the scheduler of several ranks sees it: what one rank lacks is not there."""

    __slots__ = ("_matcher", "_num_ranks")

    def __init__(self, matcher: Matcher, num_ranks: int) -> None:
        """Look through the tier's own lookup.

        Args:
            matcher: The tier.
            num_ranks: Ranks of the engine.
        """
        self._matcher = matcher
        self._num_ranks = num_ranks

    @property
    def bypassed(self) -> bool:
        """Whether the tier is switched off."""
        return self._matcher.bypassed

    def match(self, keys: bytes, shape: RecordShape) -> ShardLease:
        """Pin the longest prefix of `keys` that is stored of every rank."""
        shards = self._pin(keys, shape)
        while shards and shards[-1].num_blocks < shards[0].num_blocks:
            longer, shards = shards, self._pin(keys[: shards[-1].num_blocks * KEY_BYTES], shape)
            ShardLease(longer).release()
        return ShardLease(shards)

    def lookup(self, keys: bytes, shape: RecordShape) -> bytes:
        """One byte a key: 1 if it is stored of every rank. Pins nothing."""
        held = [self._matcher.lookup(keys, part) for part in self._parts(shape)]
        return bytes(map(min, zip(*held, strict=True)))

    def _pin(self, keys: bytes, shape: RecordShape) -> Sequence[Lease]:
        """A lease a rank, none longer than the one before; nothing if one would be empty."""
        shards: list[Lease] = []
        for part in self._parts(shape):
            shard = self._matcher.match(keys, part)
            shards.append(shard)
            keys = keys[: shard.num_blocks * KEY_BYTES]
            if not keys:
                ShardLease(shards).release()
                return ()
        return shards

    def _parts(self, shape: RecordShape) -> Iterator[RecordShape]:
        return (
            RecordShape(shape.block_tokens, rank, self._num_ranks)
            for rank in range(self._num_ranks)
        )


def leading_refs(lease: Lease, num_blocks: int) -> bytes:
    """The references of a lease's first blocks, of each rank that it has shards of.

    Args:
        lease: Of at least so many blocks.
        num_blocks: Blocks that are wanted.
    """
    refs, size = lease.refs, lease.num_blocks * REF_BYTES
    return b"".join(refs[at : at + num_blocks * REF_BYTES] for at in range(0, len(refs), size or 1))


def own_loads(plan: StepPlan, rank: int, num_ranks: int) -> StepPlan:
    """One rank's part of a plan.

    Args:
        plan: The plan of all ranks.
        rank: The rank.
        num_ranks: Ranks of the engine.
    """
    if not plan.loads:
        return plan
    return replace(plan, loads=tuple(_own_load(job, rank, num_ranks) for job in plan.loads))


def _own_load(job: LoadJob, rank: int, num_ranks: int) -> LoadJob:
    size = len(job.block_ids) * REF_BYTES
    is_whole = len(job.refs) == size * num_ranks  # else it is to fail
    return replace(job, refs=job.refs[rank * size : (rank + 1) * size] if is_whole else b"")


class RankReports:
    """Makes one report of what all ranks say: bytes add up, a block is there if all have it.

    Asynchronous loads may end in other steps on other ranks; their report waits for the last.
    """

    __slots__ = ("_loads", "_num_ranks", "_stores")

    def __init__(self, num_ranks: int) -> None:
        """Begin with nothing heard."""
        self._num_ranks = num_ranks
        self._loads: dict[int, list[LoadReport]] = {}
        self._stores: dict[int, list[StoreReport]] = {}

    def join(self, report: WorkerReport) -> WorkerReport:
        """What all ranks have now told of.

        Args:
            report: What some ranks have told, one after the other.
        """
        loads = [
            _join_loads(parts)
            for load in report.loads
            if (parts := self._gather(self._loads, load.load_id, load))
        ]
        stores = [
            _join_stores(shards)
            for store in report.stores
            if (shards := self._gather(self._stores, store.save_id, store))
        ]
        return replace(report, loads=tuple(loads), stores=tuple(stores))

    def _gather(
        self, heard: dict[int, list[_ReportT]], name: int, part: _ReportT
    ) -> Sequence[_ReportT]:
        """All parts of a report once the last one is there, else nothing."""
        parts = heard.setdefault(name, [])
        parts.append(part)
        return heard.pop(name) if len(parts) == self._num_ranks else ()


def _join_loads(parts: Sequence[LoadReport]) -> LoadReport:
    failures: Counter[str] = Counter()
    for part in parts:
        failures |= Counter(part.failures)  # the larger count; ranks may fail at the same block
    return replace(
        parts[0],
        num_loaded=min(part.num_loaded for part in parts),
        num_usable=min(part.num_usable for part in parts),
        loaded_bytes=sum(part.loaded_bytes for part in parts),
        seconds=max(part.seconds for part in parts),
        failures=dict(failures),
    )


def _join_stores(parts: Sequence[StoreReport]) -> StoreReport:
    seconds = max(part.seconds for part in parts)
    stored_bytes = sum(part.stored_bytes for part in parts)
    worst = min(parts, key=lambda part: part.num_stored + part.num_existing)
    # Without outcomes a rank has refused the job as a whole.
    if not worst.outcomes or all(part.outcomes == worst.outcomes for part in parts):
        return replace(worst, seconds=seconds, stored_bytes=stored_bytes)
    outcomes = bytes(map(_join_outcomes, *(part.outcomes for part in parts)))
    tally = Counter(outcomes)
    return replace(
        worst,
        num_stored=tally.pop(StoreOutcome.STORED, 0),
        num_existing=tally.pop(StoreOutcome.EXISTS, 0),
        stored_bytes=stored_bytes,
        seconds=seconds,
        rejections={StoreOutcome(outcome).name.lower(): tally[outcome] for outcome in tally},
        outcomes=outcomes,
    )


def _join_outcomes(*outcomes: int) -> int:
    """A block is rejected if one shard is, and new if one shard is."""
    worst = max(outcomes)
    return worst if StoreOutcome(worst).is_rejected else min(outcomes)
