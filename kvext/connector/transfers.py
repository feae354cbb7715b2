"""The worker's half: does what a plan says and reports what became of it.

Saves run after the forward pass, in the engine's own order, so a block is never reused while
it is copied. A load that fails within a step poisons what the step computes: from then on
nothing is saved until a plan comes from a scheduler that knows of the failure.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from kvext.connector.edge import Edge
from kvext.connector.layerwise import NOT_WAITED, LayerwiseLoad
from kvext.connector.loads import LoadedJob, LoadTimes
from kvext.connector.mover import BlockMover
from kvext.connector.plan import AdapterGuard, LoadJob, SaveJob, StepPlan
from kvext.connector.report import AdapterRead, LoadReport, StoreReport, WorkerReport
from kvext.connector.shadow_checks import ShadowChecks
from kvext.protocol.tier import REF_BYTES
from kvext.protocol.transfer import LoadWay, StoreOutcome

__all__ = ["LAYERWISE_FROM_BYTES", "LAYERWISE_FROM_TOKENS", "Transfers"]

LAYERWISE_FROM_BYTES = 4 << 20
"""Smaller loads are done before a thread has begun: benchmarks/overlap.py."""
LAYERWISE_FROM_TOKENS = 128
"""A step that computes less has little to hide a load behind, and a copy that goes layer by layer
takes longer than one that goes block by block: benchmarks/engines.py."""

_INSTANT = LoadTimes(LoadWay.BLOCKING, 0.0)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _AsyncLoad:
    """A load that runs beside the steps.

    Attributes:
        job: What is loaded.
        future: Its end.
        weights_epoch: The engine's weights when it began.
    """

    job: LoadJob
    future: Future[LoadedJob]
    weights_epoch: int


class Transfers:
    """Carries out one engine worker's plans.

    Attributes:
        layerwise_from_bytes: Least size of a step's loads that overlap its computing.
        layerwise_from_tokens: Least number of tokens that such a step computes.
    """

    def __init__(  # noqa: PLR0913 - everything that it works with comes from outside
        self,
        mover: BlockMover,
        edge: Edge,
        holds: Callable[[AdapterGuard], bool],
        clock: Callable[[], float],
        executor: Executor,
        *,
        load_wait_s: float = 30.0,
        layerwise_from_bytes: float = LAYERWISE_FROM_BYTES,
        layerwise_from_tokens: int = LAYERWISE_FROM_TOKENS,
        shadow: ShadowChecks | None = None,
    ) -> None:
        """Begin with nothing in flight.

        Args:
            mover: Copies the blocks.
            edge: Turns exceptions into failed blocks.
            holds: Whether the engine's adapter is in the guarded state.
            clock: Monotonic time in seconds.
            executor: Runs asynchronous loads; its owner shuts it down.
            load_wait_s: How long a step may wait for its loads; their pins last no longer.
            layerwise_from_bytes: Least size of a step's loads that overlap its computing.
            layerwise_from_tokens: Least number of tokens that such a step computes.
            shadow: Compares what was computed with what the tier has; None for never.
        """
        self._mover = mover
        self._edge = edge
        self._holds = holds
        self._clock = clock
        self._executor = executor
        self._shadow = shadow
        self._load_wait_s = load_wait_s
        self.layerwise_from_bytes = layerwise_from_bytes
        self.layerwise_from_tokens = layerwise_from_tokens
        self._layerwise: LayerwiseLoad | None = None
        self._futures: dict[str, _AsyncLoad] = {}
        self._failed_blocks: set[int] = set()
        self._failed_requests: set[str] = set()
        self._loads: list[LoadReport] = []
        self._stores: list[StoreReport] = []
        self._num_failures = 0
        self._step = 0
        self._weights_epoch = 0

    def start(self, plan: StepPlan) -> None:
        """Do the plan's synchronous loads, or begin them, and begin the asynchronous ones."""
        self._settle()
        self._weights_epoch = plan.weights_epoch
        within: list[LoadJob] = []
        for job in plan.loads:
            if job.is_async:
                future = self._executor.submit(self._load, job, LoadWay.ASYNC)
                self._futures[job.request_id] = _AsyncLoad(job, future, plan.weights_epoch)
            else:
                within.append(job)
        if within:
            self._begin(within, plan.num_tokens)

    def wait_for_layer(self, layer: str) -> None:
        """Return once the engine may use a layer; called before each, in every step.

        Args:
            layer: The engine's name of it.
        """
        load = self._layerwise
        if load is None:
            return
        never = False
        if not self._edge.attempt("wait for a layer", load.wait, never, layer):
            load.abandon("late")

    def save(self, plan: StepPlan) -> None:
        """Offer the plan's blocks, if nothing they were computed on has failed."""
        self._settle()
        self._step = plan.step
        if not plan.saves:
            return
        if plan.failures_seen != self._num_failures:
            self._stores += [_rejected(job, "after_failed_load") for job in plan.saves]
            return
        self._stores += [self._store(job) for job in plan.saves]

    def finished(self) -> set[str]:
        """Requests whose asynchronous load has ended, well or not; each is told once."""
        self._settle()
        done = {request_id for request_id, load in self._futures.items() if load.future.done()}
        for request_id in done:
            load = self._futures.pop(request_id)
            end = load.future.result()
            if load.weights_epoch != self._weights_epoch:
                end = LoadedJob.lost(load.job, "weights_changed", LoadTimes(LoadWay.ASYNC, 0.0))
            self._loads.append(end.report)
            self._failed_blocks |= end.failed_blocks
            if end.report.failures:
                self._failed_requests.add(request_id)
        return done

    def take_failed_requests(self) -> set[str]:
        """Requests whose asynchronous load has ended badly; each is told once."""
        failed, self._failed_requests = self._failed_requests, set()
        return failed

    def take_failed_blocks(self) -> set[int]:
        """Block ids that hold garbage and must be recomputed; each is told once."""
        self._settle()
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def take_report(self, adapters: tuple[AdapterRead, ...] = ()) -> WorkerReport | None:
        """What happened since the last report, or None if nothing did.

        Args:
            adapters: Adapters that the engine has read since.
        """
        self._settle()
        checks = () if self._shadow is None else self._shadow.take()
        if not (self._loads or self._stores or self._step or adapters or checks):
            return None
        loads, stores = tuple(self._loads), tuple(self._stores)
        report = WorkerReport(loads, stores, self._num_failures, self._step, adapters, checks)
        self._loads, self._stores, self._step = [], [], 0
        return report

    def close(self) -> None:
        """Cut short what still runs."""
        if self._layerwise is not None:
            self._layerwise.abandon("closed")

    def _begin(self, jobs: Sequence[LoadJob], num_tokens: int) -> None:
        """Do or begin what a step needs before, or while, it computes."""
        usable: list[LoadJob] = []
        for job in jobs:
            reason = self._refuse(job)
            if reason:
                self._end(LoadedJob.lost(job, reason, _INSTANT))
            else:
                usable.append(job)
        num_bytes = sum(len(job.block_ids) for job in usable) * self._mover.record_bytes
        hides = num_bytes >= self.layerwise_from_bytes and num_tokens >= self.layerwise_from_tokens
        if usable and self._mover.layers and hides:
            self._layerwise = self._edge.attempt("begin a load", self._overlap, None, usable)
        if self._layerwise is None:
            for job in usable:
                self._end(self._load(job, LoadWay.BLOCKING))

    def _overlap(self, jobs: Sequence[LoadJob]) -> LayerwiseLoad:
        refs = b"".join(job.refs for job in jobs)
        block_ids = [block_id for job in jobs for block_id in job.block_ids]
        copy = self._mover.begin_load(refs, block_ids)
        return LayerwiseLoad(jobs, copy, self._mover.layers, self._clock, self._load_wait_s)

    def _settle(self) -> None:
        """End the step's layer-wise load, if there is one; the engine has done with its layers."""
        load, self._layerwise = self._layerwise, None
        if load is None:
            return
        record_bytes = self._mover.record_bytes
        ends = self._edge.attempt("end a load", load.finish, None, record_bytes)
        if ends is None:
            load.abandon("error")
            ends = load.finish(record_bytes)
        for end in ends:
            self._end(end)
            if NOT_WAITED in end.report.failures:
                self._block_from_now_on()

    def _block_from_now_on(self) -> None:
        if self.layerwise_from_bytes < math.inf:
            self.layerwise_from_bytes = math.inf
            _logger.warning(
                "kvext: the engine did not wait for the layers of a load, whose blocks are "
                "computed again; loads are done before the forward pass from now on"
            )

    def _end(self, end: LoadedJob) -> None:
        self._loads.append(end.report)
        if end.failed_blocks:
            self._failed_blocks |= end.failed_blocks
            self._num_failures += 1

    def _refuse(self, job: LoadJob) -> str:
        """Why a job cannot be done, or nothing."""
        if len(job.refs) != len(job.block_ids) * REF_BYTES:
            return "lost"
        if job.guard is not None and not self._holds(job.guard):
            return "adapter_changed"
        return ""

    def _load(self, job: LoadJob, way: LoadWay) -> LoadedJob:
        begun_s = self._clock()
        reason = self._refuse(job)
        if reason:
            return LoadedJob.lost(job, reason, LoadTimes(way, 0.0))
        outcomes = self._edge.attempt("load blocks", self._mover.load, b"", job.refs, job.block_ids)
        times = LoadTimes(way, self._clock() - begun_s)
        return LoadedJob.of(job, outcomes, self._mover.record_bytes, times)

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
