"""What a worker tells the scheduler after a step: what moved, what did not, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LoadReport", "StoreReport", "WorkerReport"]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What became of one `LoadJob`.

    Attributes:
        load_id: The job's.
        request_id: Whose blocks.
        num_loaded: Blocks that are in place.
        num_usable: Leading blocks before the first failure: what the engine is spared.
        loaded_bytes: Bytes copied for the loaded blocks.
        seconds: Time the copy took.
        failures: Blocks that failed, by reason.
    """

    load_id: int
    request_id: str
    num_loaded: int
    num_usable: int
    loaded_bytes: int
    seconds: float
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What became of one `SaveJob`.

    Attributes:
        request_id: Whose blocks.
        num_offered: Blocks of the job; each is stored, existing or rejected.
        num_stored: Blocks that were new.
        num_existing: Blocks that the tier had.
        stored_bytes: Bytes copied for the new blocks.
        seconds: Time it took.
        rejections: Blocks that the tier has not, by reason.
    """

    request_id: str
    num_offered: int
    num_stored: int
    num_existing: int
    stored_bytes: int
    seconds: float
    rejections: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Everything since the last report.

    Attributes:
        loads: Finished loads.
        stores: Finished stores.
        num_failures: Loads that failed within a step, since the worker began.
    """

    loads: tuple[LoadReport, ...]
    stores: tuple[StoreReport, ...]
    num_failures: int

    def merged(self, other: "WorkerReport") -> "WorkerReport":
        """This report and then `other`, as one."""
        return WorkerReport(
            self.loads + other.loads,
            self.stores + other.stores,
            max(self.num_failures, other.num_failures),
        )
