"""The worker's half: does what a plan says and reports what became of it.

Saves run after the forward pass, in the engine's own order, so a block is never reused while
it is copied. A load that fails within a step poisons what the step computes: from then on
nothing is saved until a plan comes from a scheduler that knows of the failure.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from kvext.connector.edge import Edge
from kvext.connector.mover import BlockMover
from kvext.connector.plan import AdapterGuard, LoadJob, SaveJob, StepPlan
from kvext.connector.report import AdapterRead, LoadReport, StoreReport, WorkerReport
from kvext.connector.shadow_checks import ShadowChecks
from kvext.protocol.tier import REF_BYTES
from kvext.protocol.transfer import LoadOutcome, StoreOutcome

__all__ = ["Transfers"]

_LOADED = int(LoadOutcome.LOADED)


@dataclass(frozen=True, slots=True)
class _AsyncLoad:
    """A load that runs beside the steps.

    Attributes:
        job: What is loaded.
        future: Its report and the blocks that failed.
        weights_epoch: The engine's weights when it began.
    """

    job: LoadJob
    future: Future[tuple[LoadReport, set[int]]]
    weights_epoch: int


class Transfers:
    """Carries out one engine worker's plans."""

    def __init__(
        self,
        mover: BlockMover,
        edge: Edge,
        holds: Callable[[AdapterGuard], bool],
        clock: Callable[[], float],
        executor: Executor,
        shadow: ShadowChecks | None = None,
    ) -> None:
        """Begin with nothing in flight.

        Args:
            mover: Copies the blocks.
            edge: Turns exceptions into failed blocks.
            holds: Whether the engine's adapter is in the guarded state.
            clock: Monotonic time in seconds.
            executor: Runs asynchronous loads; its owner shuts it down.
            shadow: Compares what was computed with what the tier has; None for never.
        """
        self._mover = mover
        self._edge = edge
        self._holds = holds
        self._clock = clock
        self._executor = executor
        self._shadow = shadow
        self._futures: dict[str, _AsyncLoad] = {}
        self._failed_blocks: set[int] = set()
        self._loads: list[LoadReport] = []
        self._stores: list[StoreReport] = []
        self._num_failures = 0
        self._step = 0
        self._weights_epoch = 0

    def start(self, plan: StepPlan) -> None:
        """Do the plan's synchronous loads and begin the asynchronous ones."""
        self._weights_epoch = plan.weights_epoch
        for job in plan.loads:
            if job.is_async:
                future = self._executor.submit(self._load, job)
                self._futures[job.request_id] = _AsyncLoad(job, future, plan.weights_epoch)
                continue
            report, failed = self._load(job)
            self._loads.append(report)
            if failed:
                self._failed_blocks |= failed
                self._num_failures += 1

    def save(self, plan: StepPlan) -> None:
        """Offer the plan's blocks, if nothing they were computed on has failed."""
        self._step = plan.step
        if not plan.saves:
            return
        if plan.failures_seen != self._num_failures:
            self._stores += [_rejected(job, "after_failed_load") for job in plan.saves]
            return
        self._stores += [self._store(job) for job in plan.saves]

    def finished(self) -> set[str]:
        """Requests whose asynchronous load has ended, well or not; each is told once."""
        done = {request_id for request_id, load in self._futures.items() if load.future.done()}
        for request_id in done:
            load = self._futures.pop(request_id)
            report, failed = load.future.result()
            if load.weights_epoch != self._weights_epoch:
                report, failed = self._lost(load.job, "weights_changed", self._clock())
            self._loads.append(report)
            self._failed_blocks |= failed
        return done

    def take_failed_blocks(self) -> set[int]:
        """Block ids that hold garbage and must be recomputed; each is told once."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def take_report(self, adapters: tuple[AdapterRead, ...] = ()) -> WorkerReport | None:
        """What happened since the last report, or None if nothing did.

        Args:
            adapters: Adapters that the engine has read since.
        """
        checks = () if self._shadow is None else self._shadow.take()
        if not (self._loads or self._stores or self._step or adapters or checks):
            return None
        loads, stores = tuple(self._loads), tuple(self._stores)
        report = WorkerReport(loads, stores, self._num_failures, self._step, adapters, checks)
        self._loads, self._stores, self._step = [], [], 0
        return report

    def _load(self, job: LoadJob) -> tuple[LoadReport, set[int]]:
        begun_s = self._clock()
        num_blocks = len(job.block_ids)
        if len(job.refs) != num_blocks * REF_BYTES:
            return self._lost(job, "lost", begun_s)
        if job.guard is not None and not self._holds(job.guard):
            return self._lost(job, "adapter_changed", begun_s)
        outcomes = self._edge.attempt("load blocks", self._mover.load, b"", job.refs, job.block_ids)
        if len(outcomes) != num_blocks:
            return self._lost(job, "error", begun_s)
        num_loaded = outcomes.count(_LOADED)
        if num_loaded == num_blocks:
            return self._report_load(job, num_blocks, num_blocks, begun_s, {}), set()
        failed = [index for index, outcome in enumerate(outcomes) if outcome != _LOADED]
        reasons = Counter(LoadOutcome(outcomes[index]).name.lower() for index in failed)
        report = self._report_load(job, num_loaded, failed[0], begun_s, dict(reasons))
        return report, {job.block_ids[index] for index in failed}

    def _lost(self, job: LoadJob, reason: str, begun_s: float) -> tuple[LoadReport, set[int]]:
        failures = {reason: len(job.block_ids)}
        return self._report_load(job, 0, 0, begun_s, failures), set(job.block_ids)

    def _report_load(
        self,
        job: LoadJob,
        num_loaded: int,
        num_usable: int,
        begun_s: float,
        failures: dict[str, int],
    ) -> LoadReport:
        return LoadReport(
            job.load_id,
            job.request_id,
            num_loaded,
            num_usable,
            num_loaded * self._mover.record_bytes,
            self._clock() - begun_s,
            failures,
            job.is_async,
        )

    def _store(self, job: SaveJob) -> StoreReport:
        begun_s = self._clock()
        if job.guard is not None and not self._holds(job.guard):
            return _rejected(job, "adapter_changed")
        if job.is_shadow and self._shadow is not None:
            self._shadow.begin(job)
        outcomes: Sequence[int] = self._edge.attempt(
            "store blocks", self._mover.store, b"", job.keys, job.namespace, job.block_ids
        )
        if len(outcomes) != len(job.block_ids):
            return _rejected(job, "error")
        tally = Counter(outcomes)
        num_stored = tally.pop(StoreOutcome.STORED, 0)
        num_existing = tally.pop(StoreOutcome.EXISTS, 0)
        return StoreReport(
            job.request_id,
            len(job.block_ids),
            num_stored,
            num_existing,
            num_stored * self._mover.record_bytes,
            self._clock() - begun_s,
            {StoreOutcome(outcome).name.lower(): count for outcome, count in tally.items()},
            job.save_id,
            bytes(outcomes),
        )


def _rejected(job: SaveJob, reason: str) -> StoreReport:
    num_blocks = len(job.block_ids)
    return StoreReport(job.request_id, num_blocks, 0, 0, 0, 0.0, {reason: num_blocks}, job.save_id)
