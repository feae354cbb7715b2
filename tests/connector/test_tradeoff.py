"""Loading against computing: the rates, the choice, and a tier that is slower than computing."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from kvext.connector.report import LoadReport, StoreReport, WorkerReport
from kvext.connector.rules import PlanRules
from kvext.connector.tradeoff import Choice, LoadOrRecompute, Rate, StepTimer
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import LoadWay
from kvext.testing.tier import FakePages, FakeTier
from tests.connector.toy_engine import ToyEngine
from tests.connector.toy_parts import BLOCK_TOKENS, ManualClock

RULES = PlanRules(RecordShape(32), record_bytes=1000)
STEP_TOKENS = 256


class Measured:
    """A choice that is fed with steps and loads of given speed."""

    def __init__(self, rules: PlanRules = RULES) -> None:
        self.clock = ManualClock()
        self.tradeoff = LoadOrRecompute(rules, self.clock)

    def step(self, token_s: float, ours_s: float = 0.0) -> None:
        number = self.tradeoff.plan_step(STEP_TOKENS, 1)
        self.clock.now_s += STEP_TOKENS * token_s + ours_s
        stores = (StoreReport("r", 8, 8, 0, 8000, ours_s),)
        self.tradeoff.learn(WorkerReport((), stores, 0, number))

    def load(self, block_s: float, num_blocks: int = 8) -> None:
        report = LoadReport(1, "r", num_blocks, num_blocks, 1000 * num_blocks, num_blocks * block_s)
        self.tradeoff.learn(WorkerReport((report,), (), 0))

    def settle(self, *, block_load_s: float, block_compute_s: float) -> None:
        for _ in range(40):
            self.step(block_compute_s / 32)
            self.load(block_load_s)

    def choices(self, count: int, num_blocks: int = 8) -> list[Choice]:
        return [self.tradeoff.choose(num_blocks) for _ in range(count)]


def test_a_rate_is_unknown_until_it_was_measured_often_enough() -> None:
    rate = Rate()
    rate.observe(2.0, 1)
    rate.observe(2.0, 1)
    assert rate.seconds is None
    rate.observe(2.0, 1)
    assert rate.seconds == pytest.approx(2.0)


def test_a_hiccup_moves_a_rate_by_the_fourth_root() -> None:
    rate = Rate()
    for _ in range(10):
        rate.observe(1.0, 1)
    rate.observe(10_000.0, 1)
    assert rate.seconds == pytest.approx(10.0)


def test_a_measurement_without_time_or_units_is_ignored() -> None:
    rate = Rate()
    for seconds, units in ((0.0, 1), (-1.0, 1), (1.0, 0)):
        for _ in range(3):
            rate.observe(seconds, units)
    assert rate.seconds is None


def test_a_step_begins_when_the_one_before_it_has_ended() -> None:
    clock = ManualClock()
    timer = StepTimer(clock)
    first, second = timer.plan(100), timer.plan(200)
    clock.now_s = 3.0
    assert timer.end(first) == (3.0, 100)
    clock.now_s = 5.0
    assert timer.end(second) == (2.0, 200)


def test_an_idle_engine_does_not_count_as_computing() -> None:
    clock = ManualClock()
    timer = StepTimer(clock)
    timer.end(timer.plan(100))
    clock.now_s = 1000.0
    number = timer.plan(200)
    clock.now_s = 1001.0
    assert timer.end(number) == (1.0, 200)


def test_steps_that_are_never_reported_are_forgotten() -> None:
    timer = StepTimer(ManualClock())
    lost = timer.plan(1)
    assert timer.end(timer.plan(2)) == (0.0, 2)
    assert timer.end(lost) is None
    assert timer.end(0) is None


@pytest.mark.parametrize(("num_tokens", "num_requests"), [(127, 1), (512, 65), (256, 256)])
def test_small_and_decoding_steps_are_not_timed(num_tokens: int, num_requests: int) -> None:
    assert Measured().tradeoff.plan_step(num_tokens, num_requests) == 0


def test_hits_are_loaded_while_nothing_is_known() -> None:
    measured = Measured()
    for _ in range(40):
        measured.load(100.0)
    assert set(measured.choices(10)) == {Choice.LOAD}
    measured = Measured()
    for _ in range(40):
        measured.step(1e-9)
    assert set(measured.choices(10)) == {Choice.LOAD}


def test_the_faster_way_is_chosen() -> None:
    fast, slow = Measured(), Measured()
    fast.settle(block_load_s=1.0, block_compute_s=20.0)
    slow.settle(block_load_s=20.0, block_compute_s=1.0)
    assert set(fast.choices(10)) == {Choice.LOAD}
    assert set(slow.choices(10)) == {Choice.RECOMPUTE}


def test_loading_keeps_its_place_within_the_margin_and_regains_it_without() -> None:
    measured = Measured()
    measured.settle(block_load_s=1.2, block_compute_s=1.0)
    assert measured.choices(1) == [Choice.LOAD]
    measured.settle(block_load_s=1.3, block_compute_s=1.0)
    assert measured.choices(1) == [Choice.RECOMPUTE]
    measured.settle(block_load_s=1.1, block_compute_s=1.0)
    assert measured.choices(1) == [Choice.RECOMPUTE]
    measured.settle(block_load_s=0.9, block_compute_s=1.0)
    assert measured.choices(1) == [Choice.LOAD]


def test_time_for_stores_and_loads_of_a_step_is_not_computing() -> None:
    measured = Measured()
    for _ in range(40):
        measured.step(1.0 / 32, ours_s=1000.0)
        measured.load(2.0)
    assert measured.choices(1) == [Choice.RECOMPUTE]


def test_asynchronous_loads_are_not_taken_off_a_steps_time() -> None:
    measured = Measured()
    for _ in range(40):
        number = measured.tradeoff.plan_step(STEP_TOKENS, 1)
        measured.clock.now_s += 8.0
        load = LoadReport(1, "r", 8, 8, 8000, 7.9, way=LoadWay.ASYNC)
        measured.tradeoff.learn(WorkerReport((load,), (), 0, number))
    assert measured.choices(1) == [Choice.LOAD]


def test_failed_loads_measure_nothing() -> None:
    measured = Measured()
    measured.settle(block_load_s=1.0, block_compute_s=20.0)
    for _ in range(40):
        report = LoadReport(1, "r", 1, 0, 1000, 1e6, {"stale": 7})
        measured.tradeoff.learn(WorkerReport((report,), (), 0))
    assert measured.choices(1) == [Choice.LOAD]


def test_an_operator_may_end_all_choice() -> None:
    measured = Measured(PlanRules(RecordShape(32), 1000, always_load=True))
    measured.settle(block_load_s=20.0, block_compute_s=1.0)
    assert set(measured.choices(100)) == {Choice.LOAD}


def test_a_mistaken_estimate_heals() -> None:
    measured = Measured()
    measured.settle(block_load_s=50.0, block_compute_s=1.0)
    assert measured.choices(1) == [Choice.RECOMPUTE]
    for _ in range(4000):
        if measured.choices(1) == [Choice.LOAD]:
            measured.load(0.05)
    assert set(measured.choices(50)) == {Choice.LOAD}


@given(
    block_load_s=st.floats(0.01, 100.0),
    block_compute_s=st.floats(0.01, 100.0),
    hits=st.lists(st.integers(1, 200), min_size=1, max_size=300),
)
def test_hits_never_cost_much_more_than_computing_them(
    block_load_s: float, block_compute_s: float, hits: list[int]
) -> None:
    measured = Measured()
    measured.settle(block_load_s=block_load_s, block_compute_s=block_compute_s)
    spent_s = 0.0
    for num_blocks in hits:
        loads = measured.tradeoff.choose(num_blocks) is Choice.LOAD
        spent_s += num_blocks * (block_load_s if loads else block_compute_s)
    computed_s = sum(hits) * block_compute_s
    is_close_call = block_load_s <= 1.25 * block_compute_s * (1 + 1e-9)
    assert spent_s <= computed_s * ((1 + 1 / 32) if not is_close_call else 1.25) * (1 + 1e-9)


class SlowTier(FakeTier):
    """Takes its time for every block, by the engine's clock."""

    def __init__(self, clock: ManualClock, block_s: float) -> None:
        super().__init__()
        self.clock = clock
        self.block_s = block_s

    @override
    def load(self, refs: bytes, pages: FakePages, block_ids: Sequence[int]) -> bytes:
        self.clock.now_s += len(block_ids) * self.block_s
        return super().load(refs, pages, block_ids)


def serve(engine: ToyEngine, name: str, tokens: list[int]) -> dict[str, object]:
    """One request alone, with the engine's own cache empty."""
    engine.reset_prefix_cache()
    engine.add(name, tokens)
    engine.step()
    engine.end(name)
    return engine.responses[name]


def slow_engine(block_s: float) -> tuple[ToyEngine, SlowTier]:
    clock = ManualClock()
    tier = SlowTier(clock, block_s)
    return ToyEngine(tier, chunk_blocks=16, token_s=1.0, clock=clock), tier


def test_engine_with_a_slow_tier_computes_and_says_so_until_the_tier_is_fast_again() -> None:
    engine, tier = slow_engine(block_s=10.0 * BLOCK_TOKENS)
    prompts = [[1000 * seed + at for at in range(10 * BLOCK_TOKENS + 1)] for seed in range(4)]
    for index, tokens in enumerate(prompts):
        serve(engine, f"cold-{index}", tokens)
    first = [serve(engine, f"warm-{index}", tokens) for index, tokens in enumerate(prompts)]
    assert [counts["pool_tokens"] for counts in first] == [160, 160, 160, 0]
    assert first[3]["reason"] == "recompute_faster"
    begun_s = engine.clock.now_s
    for index in range(640):
        serve(engine, f"slow-{index}", prompts[index % 4])
    computing_s = 640 * (10 * BLOCK_TOKENS + 1)
    assert engine.clock.now_s - begun_s <= computing_s * (1 + 1 / 32)
    tier.block_s = 0.001
    counts: dict[str, object] = {}
    for index in range(3000):
        counts = serve(engine, f"fast-{index}", prompts[index % 4])
    assert counts["pool_tokens"] == 160
    assert tier.num_pins == 0


def test_a_request_that_is_asked_about_again_gets_the_same_choice() -> None:
    engine, tier = slow_engine(block_s=10.0 * BLOCK_TOKENS)
    tokens = list(range(10 * BLOCK_TOKENS + 1))
    for name in ("cold", "once", "twice", "thrice", "other"):
        serve(engine, name, tokens)
        serve(engine, f"{name}-new", [len(name), *range(10 * BLOCK_TOKENS)])
    engine.reset_prefix_cache()
    engine.add("waits", tokens)
    for _ in range(1000):
        assert engine.planner.match("waits", 0, len(tokens)).num_tokens == 0
    assert tier.num_pins == 0


def test_a_bypassed_tier_is_not_even_asked_and_the_reason_is_told() -> None:
    engine, tier = slow_engine(block_s=0.0)
    tokens = list(range(10 * BLOCK_TOKENS + 1))
    serve(engine, "cold", tokens)
    tier.set_bypass(True)
    off = serve(engine, "off", tokens)
    assert (off["pool_tokens"], off["reason"]) == (0, "bypassed")
    assert serve(engine, "new", [7, *tokens])["unreported_stores"] == 0
    assert engine.responses["new"]["rejected"] == {"bypassed": 10}
    tier.set_bypass(False)
    assert serve(engine, "on", tokens)["pool_tokens"] == 160


@pytest.mark.parametrize(
    ("way", "choice"), [(LoadWay.LAYERWISE, Choice.LOAD), (LoadWay.BLOCKING, Choice.RECOMPUTE)]
)
def test_a_load_behind_computing_costs_what_did_not_hide(way: LoadWay, choice: Choice) -> None:
    measured = Measured()
    slow = LoadReport(1, "r", 8, 8, 8000, 80.0, way=way, waited_s=4.0)
    for _ in range(40):
        measured.step(1 / 32)  # a block in a second
        measured.tradeoff.learn(WorkerReport((slow,), (), 0))
    assert measured.choices(1) == [choice]


def test_what_a_step_waited_for_its_layers_is_no_computing() -> None:
    measured = Measured()
    for _ in range(40):
        number = measured.tradeoff.plan_step(STEP_TOKENS, 1)
        measured.clock.now_s += 8.0 + 72.0
        load = LoadReport(1, "r", 8, 8, 8000, 90.0, way=LoadWay.LAYERWISE, waited_s=72.0)
        measured.tradeoff.learn(WorkerReport((load,), (), 0, number))
    assert measured.choices(1) == [Choice.RECOMPUTE], "9 s a block to load, 1 s to compute"
