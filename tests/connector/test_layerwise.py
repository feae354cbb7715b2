"""A step that uses a layer as soon as it is there, and learns at its end whether it may count."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from typing_extensions import override

from kvext.connector.edge import Edge
from kvext.connector.mover import WholeMover
from kvext.connector.plan import LoadJob, SaveJob, StepPlan
from kvext.connector.report import WorkerReport
from kvext.connector.transfers import Transfers
from kvext.protocol.transfer import LoadOutcome, LoadWay
from kvext.testing.tier import FakeTier
from tests.connector.test_failed_loads import key_at
from tests.connector.toy_engine import PROMPT, ToyEngine, warm_tier
from tests.connector.toy_parts import BLOCK_TOKENS, SHAPE, ManualClock, expected_records

LOADED, CORRUPT = int(LoadOutcome.LOADED), int(LoadOutcome.CORRUPT)
NAMES = {"attn.0": 0, "attn.1": 1, "attn.2": 2, "shares.1": 1}


class HandedOut:
    """A copy that comes in when a test says so."""

    def __init__(self, clock: ManualClock) -> None:
        self.seconds = 8.0
        self.num_ready = 0
        self.outcomes = b""
        self.asked: list[int] = []
        self.is_cancelled = False
        self.error: Exception | None = None
        self._clock = clock

    def wait(self, num_layers: int, wait_s: float) -> bool:
        if self.error is not None:
            raise self.error
        self.asked.append(num_layers)
        if self.num_ready < num_layers:
            self._clock.now_s += wait_s
        return self.num_ready >= num_layers

    def finish(self, wait_s: float) -> bool:
        self._clock.now_s += 0.0 if self.outcomes else wait_s
        return bool(self.outcomes)

    def cancel(self) -> None:
        self.is_cancelled = True

    def end(self, *outcomes: int) -> None:
        self.num_ready = 3
        self.outcomes = bytes(outcomes)


class HandingMover(WholeMover):
    """Begins `HandedOut` loads and counts the others."""

    record_bytes = 100

    def __init__(self, clock: ManualClock) -> None:
        self.copy = HandedOut(clock)
        self.begun: list[tuple[bytes, list[int]]] = []
        self.num_whole = 0
        self.num_stores = 0

    @property
    @override
    def layers(self) -> dict[str, int]:
        return NAMES

    @override
    def begin_load(self, refs: bytes, block_ids: Sequence[int]) -> HandedOut:
        self.begun.append((refs, list(block_ids)))
        return self.copy

    def load(self, refs: bytes, block_ids: Sequence[int]) -> bytes:  # noqa: ARG002
        self.num_whole += 1
        return bytes([LOADED]) * len(block_ids)

    def store(self, keys: bytes, namespace: bytes, block_ids: Sequence[int]) -> bytes:  # noqa: ARG002
        self.num_stores += 1
        return bytes(len(block_ids))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def mover(clock: ManualClock) -> HandingMover:
    return HandingMover(clock)


@pytest.fixture
def transfers(mover: HandingMover, clock: ManualClock) -> Iterator[Transfers]:
    with ThreadPoolExecutor(1) as threads:
        yield Transfers(
            mover,
            Edge(),
            lambda _: True,
            clock,
            threads,
            load_wait_s=10.0,
            layerwise_from_bytes=300,
            layerwise_from_tokens=16,
        )


def load_of(*block_ids: int, name: str = "r") -> LoadJob:
    return LoadJob(1, name, b"x" * 16 * len(block_ids), block_ids, is_async=False)


def compute(transfers: Transfers) -> None:
    for name in NAMES:
        transfers.wait_for_layer(name)


def report_of(transfers: Transfers) -> WorkerReport:
    report = transfers.take_report()
    assert report is not None
    return report


def test_each_layer_waits_for_its_own_piece_and_an_unknown_one_for_all(
    transfers: Transfers, mover: HandingMover
) -> None:
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    mover.copy.end(LOADED, LOADED, LOADED)
    for name in ("attn.0", "attn.1", "shares.1", "who knows", "attn.2"):
        transfers.wait_for_layer(name)
    assert mover.copy.asked == [1, 2, 2, 3, 3]
    (load,) = report_of(transfers).loads
    assert (load.way, load.num_loaded, load.seconds) == (LoadWay.LAYERWISE, 3, 8.0)
    assert transfers.take_failed_blocks() == set()


def test_a_small_load_is_done_before_the_step_computes(
    transfers: Transfers, mover: HandingMover
) -> None:
    transfers.start(StepPlan((load_of(4, 5),), num_tokens=16))
    compute(transfers)
    assert (mover.begun, mover.num_whole) == ([], 1)
    assert report_of(transfers).loads[0].way is LoadWay.BLOCKING


def test_a_step_that_computes_little_has_nothing_to_hide_a_load_behind(
    transfers: Transfers, mover: HandingMover
) -> None:
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=15))
    compute(transfers)
    assert (mover.begun, mover.num_whole) == ([], 1)
    assert report_of(transfers).loads[0].way is LoadWay.BLOCKING


def test_the_loads_of_a_step_are_one_copy_and_each_request_hears_of_its_own(
    transfers: Transfers, mover: HandingMover
) -> None:
    transfers.start(
        StepPlan(
            (
                load_of(4, name="a"),
                load_of(5, 6, 7, name="b"),
            ),
            num_tokens=16,
        )
    )
    assert mover.begun == [(b"x" * 64, [4, 5, 6, 7])]
    mover.copy.end(LOADED, LOADED, CORRUPT, LOADED)
    compute(transfers)
    transfers.save(StepPlan())
    assert transfers.take_failed_blocks() == {6}
    report = report_of(transfers)
    one, other = report.loads
    assert (one.request_id, one.num_loaded, one.seconds) == ("a", 1, 2.0)
    assert (other.request_id, other.num_usable, other.failures) == ("b", 1, {"corrupt": 1})
    assert report.num_failures == 1


def test_nothing_is_saved_of_a_step_whose_load_failed_at_its_end(
    transfers: Transfers, mover: HandingMover
) -> None:
    plan = StepPlan((load_of(4, 5, 6),), (SaveJob("r", b"k" * 32, b"n" * 32, (8,)),), num_tokens=16)
    transfers.start(plan)
    mover.copy.end(LOADED, LOADED, CORRUPT)
    compute(transfers)
    transfers.save(plan)
    assert mover.num_stores == 0
    assert report_of(transfers).stores[0].rejections == {"after_failed_load": 1}


def test_failures_are_told_even_if_the_engine_saves_later(
    transfers: Transfers, mover: HandingMover
) -> None:
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    mover.copy.end(CORRUPT, LOADED, LOADED)
    compute(transfers)
    assert transfers.finished() == set()
    assert transfers.take_failed_blocks() == {4}


def test_what_does_not_come_before_the_deadline_fails_and_is_written_no_more(
    transfers: Transfers, mover: HandingMover, clock: ManualClock
) -> None:
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    mover.copy.num_ready = 1
    compute(transfers)
    assert clock.now_s == 10.0
    assert mover.copy.is_cancelled
    assert transfers.take_failed_blocks() == {4, 5, 6}
    (load,) = report_of(transfers).loads
    assert (load.failures, load.waited_s) == ({"late": 3}, 10.0)


def test_a_wait_that_raises_fails_the_blocks(transfers: Transfers, mover: HandingMover) -> None:
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    mover.copy.error = OSError("gone")
    compute(transfers)
    assert mover.copy.is_cancelled
    assert transfers.take_failed_blocks() == {4, 5, 6}


def test_a_layer_nobody_waited_for_fails_the_load_and_later_ones_block(
    transfers: Transfers, mover: HandingMover
) -> None:
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    mover.copy.end(LOADED, LOADED, LOADED)
    transfers.wait_for_layer("attn.0")
    transfers.wait_for_layer("attn.2")
    assert transfers.take_failed_blocks() == {4, 5, 6}
    assert report_of(transfers).loads[0].failures == {"not_waited": 3}
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    assert (len(mover.begun), mover.num_whole) == (1, 1)


def test_an_engine_that_ends_cuts_its_load_short(transfers: Transfers, mover: HandingMover) -> None:
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    transfers.close()
    assert mover.copy.is_cancelled


def test_a_mover_that_cannot_begin_loads_whole(
    transfers: Transfers, mover: HandingMover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover, "begin_load", None)
    transfers.start(StepPlan((load_of(4, 5, 6),), num_tokens=16))
    assert mover.num_whole == 1
    assert transfers.take_failed_blocks() == set()


def test_an_engine_that_waits_gets_every_layer() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier, layerwise=True)
    request = engine.add("b", PROMPT)
    engine.step()
    records = list(expected_records(PROMPT).values())
    assert [engine.memory(block) for block in request.blocks[:5]] == records
    engine.end("b")
    assert engine.responses["b"]["pool_tokens"] == 5 * BLOCK_TOKENS


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_what_was_computed_on_a_layer_of_a_corrupt_block_is_computed_again(lag: int) -> None:
    tier = warm_tier()
    tier.corrupt(key_at(2), SHAPE)
    engine = ToyEngine(tier, lag=lag, layerwise=True)
    longer = PROMPT + list(range(500, 500 + 4 * BLOCK_TOKENS))
    engine.add("b", longer)
    for _ in range(8):
        engine.step()
    engine.end("b")
    assert engine.responses["b"]["failed_loads"] == {"corrupt": 1}
    assert tier.records() == expected_records(longer)


def test_an_engine_that_waits_for_no_layer_still_gives_right_answers() -> None:
    tier: FakeTier = warm_tier()
    engine = ToyEngine(tier, layerwise=True)
    engine.waits = False
    longer = PROMPT + list(range(500, 500 + 4 * BLOCK_TOKENS))
    engine.add("b", longer)
    for _ in range(6):
        engine.step()
    engine.end("b")
    assert engine.responses["b"]["failed_loads"] == {"not_waited": 5}
    assert tier.records() == expected_records(longer)
