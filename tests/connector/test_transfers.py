"""The worker's half alone: outcomes, reasons, the poison guard, faults of a mover."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvext.connector.edge import Edge
from kvext.connector.mover import WholeMover
from kvext.connector.plan import AdapterGuard, LoadJob, SaveJob, StepPlan
from kvext.connector.report import WorkerReport
from kvext.connector.transfers import Transfers
from kvext.protocol.transfer import LoadOutcome, StoreOutcome

GUARD = AdapterGuard(1, ())


class ScriptedMover(WholeMover):
    """Answers with the outcomes that a test has set, or raises."""

    record_bytes = 100

    def __init__(self) -> None:
        self.load_answer: bytes | Exception = b""
        self.store_answer: bytes | Exception = b""
        self.num_stores = 0

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:  # noqa: ARG002
        self.num_stores += 1
        return self._give(self.store_answer)

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:  # noqa: ARG002
        return self._give(self.load_answer)

    def _give(self, answer: bytes | Exception) -> bytes:
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def mover() -> ScriptedMover:
    return ScriptedMover()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def transfers(mover: ScriptedMover, executor: ThreadPoolExecutor) -> Transfers:
    return Transfers(mover, Edge(), lambda guard: guard != GUARD, lambda: 0.0, executor)


def load_of(*block_ids: int, is_async: bool = False, guard: AdapterGuard | None = None) -> LoadJob:
    return LoadJob(1, "r", b"x" * 16 * len(block_ids), block_ids, is_async, guard)


def save_of(*block_ids: int, guard: AdapterGuard | None = None) -> SaveJob:
    return SaveJob("r", b"k" * 32 * len(block_ids), b"n" * 32, block_ids, guard)


def take_report(transfers: Transfers) -> WorkerReport:
    report = transfers.take_report()
    assert report is not None
    return report


def test_a_partial_load_names_failed_blocks_and_what_is_usable(
    transfers: Transfers, mover: ScriptedMover
) -> None:
    mover.load_answer = bytes(
        [LoadOutcome.LOADED, LoadOutcome.CORRUPT, LoadOutcome.LOADED, LoadOutcome.STALE]
    )
    transfers.start(StepPlan((load_of(4, 5, 6, 7),)))
    assert transfers.take_failed_blocks() == {5, 7}
    assert transfers.take_failed_blocks() == set()
    report = take_report(transfers)
    (load,) = report.loads
    assert (load.num_loaded, load.num_usable, load.loaded_bytes) == (2, 1, 200)
    assert load.failures == {"corrupt": 1, "stale": 1}
    assert report.num_failures == 1
    assert transfers.take_report() is None


def test_a_mover_that_raises_fails_every_block(transfers: Transfers, mover: ScriptedMover) -> None:
    mover.load_answer = OSError("gone")
    transfers.start(StepPlan((load_of(4, 5),)))
    assert transfers.take_failed_blocks() == {4, 5}
    assert take_report(transfers).loads[0].failures == {"error": 2}


def test_a_job_without_references_fails_instead_of_leaving_garbage(transfers: Transfers) -> None:
    transfers.start(StepPlan((LoadJob(1, "r", b"", (4, 5), is_async=False),)))
    assert transfers.take_failed_blocks() == {4, 5}
    assert take_report(transfers).loads[0].failures == {"lost": 2}


def test_nothing_is_saved_in_the_step_of_a_failed_load(
    transfers: Transfers, mover: ScriptedMover
) -> None:
    mover.load_answer = OSError("gone")
    plan = StepPlan((load_of(4),), (save_of(8),))
    transfers.start(plan)
    transfers.save(plan)
    assert mover.num_stores == 0
    assert take_report(transfers).stores[0].rejections == {"after_failed_load": 1}


def test_saving_goes_on_once_the_scheduler_knows(
    transfers: Transfers, mover: ScriptedMover
) -> None:
    mover.load_answer = OSError("gone")
    mover.store_answer = bytes([StoreOutcome.STORED])
    transfers.start(StepPlan((load_of(4),)))
    transfers.save(StepPlan((), (save_of(8),), failures_seen=0))
    assert mover.num_stores == 0
    transfers.save(StepPlan((), (save_of(8),), failures_seen=1))
    assert mover.num_stores == 1


def test_a_failed_asynchronous_load_stops_no_saves(
    transfers: Transfers, mover: ScriptedMover, executor: ThreadPoolExecutor
) -> None:
    mover.load_answer = OSError("gone")
    mover.store_answer = bytes([StoreOutcome.STORED])
    transfers.start(StepPlan((load_of(4, is_async=True),)))
    executor.submit(int).result()
    assert transfers.finished() == {"r"}
    assert transfers.finished() == set()
    assert transfers.take_failed_blocks() == {4}
    transfers.save(StepPlan((), (save_of(8),)))
    assert mover.num_stores == 1


def test_store_outcomes_are_told_by_kind(transfers: Transfers, mover: ScriptedMover) -> None:
    mover.store_answer = bytes(
        [StoreOutcome.STORED, StoreOutcome.EXISTS, StoreOutcome.NO_SPACE, StoreOutcome.NO_SPACE]
    )
    transfers.save(StepPlan((), (save_of(1, 2, 3, 4),)))
    (store,) = take_report(transfers).stores
    assert (store.num_offered, store.num_stored, store.num_existing) == (4, 1, 1)
    assert store.rejections == {"no_space": 2}
    assert store.stored_bytes == 100


def test_a_store_that_raises_is_a_rejection_with_a_reason(
    transfers: Transfers, mover: ScriptedMover
) -> None:
    mover.store_answer = OSError("gone")
    transfers.save(StepPlan((), (save_of(1, 2),)))
    assert take_report(transfers).stores[0].rejections == {"error": 2}


def test_an_adapter_in_another_state_neither_loads_nor_stores(
    transfers: Transfers, mover: ScriptedMover
) -> None:
    transfers.save(StepPlan((), (save_of(1, guard=GUARD),)))
    transfers.start(StepPlan((load_of(2, guard=GUARD),)))
    assert mover.num_stores == 0
    assert transfers.take_failed_blocks() == {2}
    report = take_report(transfers)
    assert report.stores[0].rejections == {"adapter_changed": 1}
    assert report.loads[0].failures == {"adapter_changed": 1}
