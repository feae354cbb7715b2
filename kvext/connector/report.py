"""What a worker tells the scheduler after a step: what moved, what did not, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvext.connector.shadow import CheckReport
from kvext.protocol.digest import WeightsSnapshot
from kvext.protocol.transfer import LoadWay

__all__ = ["AdapterRead", "LoadReport", "StoreReport", "WorkerReport"]


@dataclass(frozen=True, slots=True)
class AdapterRead:
    """The engine has read an adapter into its memory.

    Attributes:
        adapter_id: The engine's number for it.
        snapshot: The state of its files, None if they changed meanwhile.
    """

    adapter_id: int
    snapshot: WeightsSnapshot | None


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
        way: How the blocks came in.
        waited_s: With `LoadWay.LAYERWISE`, time that the step stood still for them.
    """

    load_id: int
    request_id: str
    num_loaded: int
    num_usable: int
    loaded_bytes: int
    seconds: float
    failures: Mapping[str, int] = field(default_factory=dict)
    way: LoadWay = LoadWay.BLOCKING
    waited_s: float = 0.0

    @property
    def cost_s(self) -> float:
        """What the request paid: the copy, or what of it did not hide."""
        return self.waited_s if self.way is LoadWay.LAYERWISE else self.seconds

    @property
    def stall_s(self) -> float:
        """What the engine's step paid."""
        return 0.0 if self.way is LoadWay.ASYNC else self.cost_s


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
        save_id: The job's.
        outcomes: One `StoreOutcome` byte a block; empty if the job was refused as a whole.
    """

    request_id: str
    num_offered: int
    num_stored: int
    num_existing: int
    stored_bytes: int
    seconds: float
    rejections: Mapping[str, int] = field(default_factory=dict)
    save_id: int = 0
    outcomes: bytes = b""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Everything since the last report.

    Attributes:
        loads: Finished loads.
        stores: Finished stores.
        num_failures: Loads that failed within a step, since the worker began.
        step: The plan's `StepPlan.step`; 0 if it had none.
        adapters: Adapters that the engine has read, in that order.
        checks: Finished comparisons of computed blocks with the tier's.
    """

    loads: tuple[LoadReport, ...]
    stores: tuple[StoreReport, ...]
    num_failures: int
    step: int = 0
    adapters: tuple[AdapterRead, ...] = ()
    checks: tuple[CheckReport, ...] = ()

    def merged(self, other: "WorkerReport") -> "WorkerReport":
        """This report and then `other`, as one."""
        return WorkerReport(
            self.loads + other.loads,
            self.stores + other.stores,
            max(self.num_failures, other.num_failures),
            max(self.step, other.step),
            self.adapters + other.adapters,
            self.checks + other.checks,
        )
