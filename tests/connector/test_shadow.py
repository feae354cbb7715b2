"""Which hits are computed instead of loaded, what is compared, and what a difference leads to."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

import pytest

from kvext.connector.edge import Edge
from kvext.connector.mover import AbsentMover
from kvext.connector.plan import LoadJob, SaveJob, StepPlan
from kvext.connector.shadow import (
    CheckReport,
    Difference,
    ShadowSampler,
    Tolerance,
    Verdict,
    choose_blocks,
    judge,
    tolerance_of,
)
from kvext.connector.shadow_checks import Comparison, ShadowChecks
from kvext.connector.transfers import Transfers
from kvext.protocol.transfer import MissReason
from tests.connector.toy_engine import PROMPT, ToyEngine, warm_tier
from tests.connector.toy_parts import BLOCK_TOKENS, SHAPE, ManualExecutor, expected_records

NUM_BLOCKS = len(PROMPT) // BLOCK_TOKENS


def no_draw() -> float:
    raise AssertionError("randomness costs something")


# Which hits


@pytest.mark.parametrize("share", [0.001, 0.03, 0.4, 0.75, 1.0])
def test_the_share_of_hits_is_what_was_asked_for(share: float) -> None:
    sampler = ShadowSampler(share, Random(1).random, lambda: 1)  # noqa: S311 - replayed
    num_hits = round(3000 / share)
    chosen = []
    for number in range(num_hits):
        if sampler.choose():
            chosen.append(number)
            sampler.part()
    assert len(chosen) / num_hits == pytest.approx(share, rel=0.03)
    gaps = {after - before for before, after in pairwise(chosen)}
    assert min(gaps) >= math.floor(0.5 / share)
    assert len(gaps) > 100 or share > 0.02, "an interval of fixed length could be foreseen"


def test_share_of_nothing_draws_nothing() -> None:
    sampler = ShadowSampler(0.0, no_draw, lambda: 1)
    assert not any(sampler.choose() for _ in range(1000))


def test_a_quarter_of_the_live_requests_at_most_are_shadows_and_one_always_may() -> None:
    num_requests = 1
    sampler = ShadowSampler(1.0, lambda: 0.5, lambda: num_requests)
    assert [sampler.choose() for _ in range(3)] == [True, False, False]
    num_requests = 12
    assert [sampler.choose() for _ in range(4)] == [True, True, False, False]
    sampler.part()
    assert [sampler.choose() for _ in range(2)] == [True, False]


def test_hits_that_were_refused_are_not_caught_up_in_a_burst() -> None:
    sampler = ShadowSampler(0.01, lambda: 0.5, lambda: 1)
    while not sampler.choose():
        pass
    for _ in range(10_000):
        assert not sampler.choose()
    sampler.part()
    chosen = 0
    for _ in range(1000):
        if sampler.choose():
            chosen += 1
            sampler.part()
    assert chosen <= 12


# Which blocks, and what a difference means


def test_blocks_that_the_tier_has_are_compared_up_to_a_limit_spread_over_all() -> None:
    known = bytes([1, 0, 1, 1])
    assert choose_blocks(known, 3, no_draw) == (0, 2, 3)
    assert choose_blocks(b"", 3, no_draw) == ()
    chosen = choose_blocks(b"\1" * 100, 10, lambda: 0.999)
    assert len(set(chosen)) == 10
    assert [index // 10 for index in chosen] == list(range(10))
    drawn = {choose_blocks(b"\1" * 100, 10, Random(seed).random) for seed in range(50)}  # noqa: S311
    assert {index for chosen in drawn for index in chosen} == set(range(100))


@pytest.mark.parametrize(
    ("rms", "peak", "verdict"),
    [
        (0.1, 0.4, Verdict.TOLERATED),
        (0.11, 0.0, Verdict.FAILED),
        (0.0, 0.41, Verdict.FAILED),
        (math.nan, 0.0, Verdict.FAILED),
        (0.0, math.nan, Verdict.FAILED),
        (math.inf, math.inf, Verdict.FAILED),
    ],
)
def test_a_difference_beyond_either_bound_fails_and_so_does_one_that_is_no_number(
    rms: float, peak: float, verdict: Verdict
) -> None:
    assert judge(Difference(rms, peak), Tolerance(0.1, 0.4)) is verdict


def test_coarser_elements_may_differ_by_more() -> None:
    names = ("float32", "float16", "bfloat16", "float8_e4m3fn")
    found = [tolerance_of(name) for name in names]
    bounds = [(tolerance.rms, tolerance.peak) for tolerance in found if tolerance is not None]
    assert len(bounds) == 4
    assert bounds == sorted(bounds)
    assert bounds[-1][0] < 1.0, "unrelated blocks differ by more than 1"
    assert tolerance_of("uint8") is None


# What an engine does


def ask(engine: ToyEngine, name: str, tokens: Sequence[int]) -> dict[str, object]:
    engine.add(name, tokens)
    for _ in range(3):
        engine.step()
        engine.run_checks()
    engine.step()
    engine.end(name)
    return engine.responses[name]


def test_a_shadow_computes_what_it_would_have_loaded_and_finds_it_right() -> None:
    engine = ToyEngine(warm_tier(), shadow_share=1.0)
    counts = ask(engine, "shadow", PROMPT)
    assert (counts["pool_tokens"], counts["loaded_blocks"]) == (0, 0)
    assert counts["reason"] == MissReason.SHADOW
    assert counts["verified"] == {"identical": NUM_BLOCKS}
    assert counts["loads"] == {"shadow": 1}
    assert counts["existing_blocks"] == NUM_BLOCKS
    assert engine.condemned == []
    assert engine.tier.num_pins == 0


def test_a_record_that_is_not_what_the_engine_computes_condemns_its_namespace() -> None:
    tier = warm_tier()
    wrong = min(tier.records())
    tier.rewrite(wrong, SHAPE, b"w" * 32)
    engine = ToyEngine(tier, shadow_share=1.0)
    counts = ask(engine, "shadow", PROMPT)
    assert counts["verified"] == {"identical": NUM_BLOCKS - 1, "failed": 1}
    assert len(engine.condemned) == 1


def test_a_failure_makes_the_engine_forget_what_it_has_loaded_before() -> None:
    tier = warm_tier()
    tokens = [*PROMPT, *range(BLOCK_TOKENS)]
    last = list(expected_records(PROMPT))[-1]
    tier.rewrite(last, SHAPE, b"w" * 32)
    engine = ToyEngine(tier, shadow_share=0.5)
    loaded = ask(engine, "loads garbage", PROMPT)
    assert loaded["loaded_blocks"] == NUM_BLOCKS
    engine.reset_prefix_cache()
    ask(engine, "loads it again", tokens[: 3 * BLOCK_TOKENS + 1])
    for number in range(3):
        if engine.condemned:
            break
        engine.reset_prefix_cache()
        ask(engine, f"maybe a shadow {number}", PROMPT)
    assert engine.condemned
    after = ask(engine, "after", PROMPT)
    assert after["local_tokens"] == after["pool_tokens"] == 0


def test_what_the_engine_has_by_itself_proves_nothing_and_is_not_compared() -> None:
    engine = ToyEngine(warm_tier(), shadow_share=1.0)
    ask(engine, "shadow", PROMPT[: 2 * BLOCK_TOKENS + 1])
    counts = ask(engine, "longer", PROMPT)
    assert counts["local_tokens"] == 2 * BLOCK_TOKENS
    assert counts["verified"] == {"identical": NUM_BLOCKS - 2}


def test_without_a_share_nothing_is_compared() -> None:
    engine = ToyEngine(warm_tier())
    counts = ask(engine, "plain", PROMPT)
    assert counts["pool_tokens"] == NUM_BLOCKS * BLOCK_TOKENS
    assert "verified" not in counts


def test_a_record_that_is_gone_by_then_is_skipped_with_a_reason() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier, shadow_share=1.0)
    engine.add("shadow", PROMPT)
    engine.step()
    tier.corrupt(next(iter(expected_records(PROMPT))), SHAPE)
    for _ in range(3):
        engine.run_checks()
        engine.step()
    engine.end("shadow")
    verified = engine.responses["shadow"]["verified"]
    assert verified == {"identical": NUM_BLOCKS - 1, "gone": 1}
    assert engine.condemned == []


# The worker's part alone


class ScriptedVerifier:
    """Compares as a test has set, or raises."""

    def __init__(self) -> None:
        self.num_copies = 0
        self.answer: Comparison | Exception = Comparison([Verdict.IDENTICAL])
        self.copy_error: Exception | None = None

    def begin(self, keys: bytes, block_ids: Sequence[int]) -> Callable[[], Comparison] | None:  # noqa: ARG002
        if self.copy_error is not None:
            raise self.copy_error
        self.num_copies += 1
        return self._compare

    def _compare(self) -> Comparison:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Bench:
    """One worker's checks with everything around them under a test's control."""

    def __init__(self) -> None:
        self.verifier = ScriptedVerifier()
        self.executor = ManualExecutor()
        self.edge = Edge()
        self.condemned: list[bytes] = []
        self.label = "a model"
        self.checks = ShadowChecks(self.verifier, self._condemn, self.edge, self.executor)

    def _condemn(self, namespace: bytes) -> str:
        self.condemned.append(namespace)
        if not self.label:
            raise OSError("gone")
        return self.label


@pytest.fixture
def bench() -> Bench:
    return Bench()


def shadow_of(*block_ids: int) -> SaveJob:
    keys = b"k" * 32 * len(block_ids)
    return SaveJob("r", keys, b"n" * 32, block_ids, is_shadow=True)


def test_copies_wait_in_a_short_queue_and_what_finds_it_full_is_skipped(bench: Bench) -> None:
    for _ in range(4):
        bench.checks.begin(shadow_of(1, 2))
    assert bench.verifier.num_copies == 2
    assert [report.skipped for report in bench.checks.take()] == [{"busy": 2}] * 2
    bench.executor.run_all()
    assert [report.num_identical for report in bench.checks.take()] == [1, 1]
    assert bench.checks.take() == ()
    bench.checks.begin(shadow_of(1))
    assert bench.verifier.num_copies == 3


@pytest.mark.parametrize("where", ["copy", "comparison"])
def test_a_verifier_that_raises_skips_the_blocks_and_condemns_nobody(
    bench: Bench, where: str
) -> None:
    if where == "copy":
        bench.verifier.copy_error = OSError("gone")
    else:
        bench.verifier.answer = OSError("gone")
    bench.checks.begin(shadow_of(1, 2, 3))
    bench.executor.run_all()
    (report,) = bench.checks.take()
    assert report.skipped == {"error": 3}
    assert bench.edge.failures.total() == 1
    assert bench.condemned == []


@pytest.mark.parametrize(
    ("label", "remedy"),
    [("a model", "kvext pool release --namespace 6e6e6e6e6e6e"), ("", "kvext pool bypass on")],
)
def test_a_failure_is_logged_as_an_error_with_what_to_do(
    bench: Bench, caplog: pytest.LogCaptureFixture, label: str, remedy: str
) -> None:
    bench.label = label
    bench.verifier.answer = Comparison([Verdict.FAILED, Verdict.TOLERATED], Difference(1.4, 0.9))
    bench.checks.begin(shadow_of(1, 2))
    bench.executor.run_all()
    (report,) = bench.checks.take()
    assert (report.num_failed, report.num_verified) == (1, 2)
    assert bench.condemned == [b"n" * 32]
    error = caplog.records[-1].getMessage()
    assert caplog.records[-1].levelname == "ERROR"
    assert "1 of 2 blocks" in error
    assert b"n".hex() * 32 in error
    assert "rms 1.4" in error
    assert remedy in error


def test_nothing_is_compared_in_the_step_of_a_failed_load(bench: Bench) -> None:
    transfers = Transfers(
        AbsentMover(), Edge(), lambda _: True, lambda: 0.0, bench.executor, shadow=bench.checks
    )
    plan = StepPlan((LoadJob(1, "r", b"", (4,), is_async=False),), (shadow_of(8),))
    transfers.start(plan)
    transfers.save(plan)
    assert bench.verifier.num_copies == 0
    transfers.save(StepPlan((), (shadow_of(8),), failures_seen=1))
    assert bench.verifier.num_copies == 1


def test_checks_reach_the_report_when_they_have_ended(bench: Bench) -> None:
    transfers = Transfers(
        AbsentMover(), Edge(), lambda _: True, lambda: 0.0, bench.executor, shadow=bench.checks
    )
    transfers.save(StepPlan((), (shadow_of(8), SaveJob("s", b"k" * 32, b"n" * 32, (9,)))))
    first = transfers.take_report()
    assert first is not None
    assert first.checks == ()
    bench.executor.run_all()
    second = transfers.take_report()
    assert second is not None
    assert second.checks == (CheckReport("r", b"n" * 32, num_identical=1),)
    assert first.merged(second).checks == second.checks
    assert transfers.take_report() is None
