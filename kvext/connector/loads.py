"""What became of a load, told in the report's terms and as blocks to recompute."""

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from kvext.connector.plan import LoadJob
from kvext.connector.report import LoadReport
from kvext.protocol.transfer import LoadOutcome, LoadWay

__all__ = ["LoadTimes", "LoadedJob"]

_LOADED = int(LoadOutcome.LOADED)


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """How a load ran.

    Attributes:
        way: How the blocks came in.
        seconds: Time the copy took.
        waited_s: With `LoadWay.LAYERWISE`, time that the step stood still for it.
    """

    way: LoadWay
    seconds: float
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """One job's end.

    Attributes:
        report: For the scheduler.
        failed_blocks: Ids of blocks that hold garbage.
    """

    report: LoadReport
    failed_blocks: AbstractSet[int]

    @classmethod
    def of(cls, job: LoadJob, outcomes: bytes, record_bytes: int, times: LoadTimes) -> "LoadedJob":
        """Read the outcomes of a job's blocks; of another number than its blocks they are none."""
        num_blocks = len(job.block_ids)
        if len(outcomes) != num_blocks:
            return cls.lost(job, "error", times)
        failed = [index for index, outcome in enumerate(outcomes) if outcome != _LOADED]
        reasons = Counter(LoadOutcome(outcomes[index]).name.lower() for index in failed)
        num_usable = failed[0] if failed else num_blocks
        report = _report(job, num_blocks - len(failed), num_usable, record_bytes, times, reasons)
        return cls(report, {job.block_ids[index] for index in failed})

    @classmethod
    def lost(cls, job: LoadJob, reason: str, times: LoadTimes) -> "LoadedJob":
        """A job of which no block can be used."""
        reasons = Counter({reason: len(job.block_ids)})
        return cls(_report(job, 0, 0, 0, times, reasons), set(job.block_ids))


def _report(
    job: LoadJob,
    num_loaded: int,
    num_usable: int,
    record_bytes: int,
    times: LoadTimes,
    failures: Counter[str],
) -> LoadReport:
    return LoadReport(
        job.load_id,
        job.request_id,
        num_loaded,
        num_usable,
        num_loaded * record_bytes,
        times.seconds,
        dict(failures),
        times.way,
        times.waited_s,
    )
