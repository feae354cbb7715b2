"""Ranks of one engine: a block is there if all shards are, and nobody computes on a bad one."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kvext.connector.plan import LoadJob, StepPlan
from kvext.connector.ranks import AllRanks, RankReports, leading_refs, own_loads
from kvext.connector.report import LoadReport, StoreReport, WorkerReport
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.tier import REF_BYTES
from kvext.protocol.transfer import LoadWay, StoreOutcome
from kvext.testing.tier import FakePages, FakeTier
from tests.connector.toy_engine import PROMPT
from tests.connector.toy_parts import BLOCK_TOKENS, PIECE_BYTES, SHAPE
from tests.connector.toy_ranks import RankedEngine, shard_of, shard_records

STORED, EXISTS, NO_SPACE = StoreOutcome.STORED, StoreOutcome.EXISTS, StoreOutcome.NO_SPACE
KEYS = [bytes([index]) * KEY_BYTES for index in range(1, 7)]


def warm_tier(num_ranks: int = 2) -> FakeTier:
    tier = FakeTier()
    engine = RankedEngine(tier, num_ranks)
    engine.add("cold", PROMPT)
    for _ in range(3):
        engine.step()
    engine.end("cold")
    return tier


def prompt_keys() -> list[bytes]:
    return list(shard_records(PROMPT, 2)[0])


def ask(tier: FakeTier) -> dict[str, object]:
    """Another engine is asked, and computes on what is right."""
    engine = RankedEngine(tier)
    request = engine.add("b", PROMPT)
    for _ in range(6):
        engine.step()
        engine.run_loads()
    shards = shard_records(PROMPT, 2)
    for index, block in enumerate(request.blocks[:5]):
        assert engine.memory(block) == b"".join(list(held.values())[index] for held in shards)
    engine.end("b")
    assert tier.num_pins == 0
    return engine.responses["b"]


@given(held=st.lists(st.sets(st.sampled_from(range(6))), min_size=1, max_size=4))
@settings(deadline=None)
def test_hit_ends_before_the_first_block_that_any_rank_lacks(held: list[set[int]]) -> None:
    tier = FakeTier()
    num_ranks = len(held)
    pages = FakePages((np.zeros((6, PIECE_BYTES), np.uint8),))
    for rank, blocks in enumerate(held):
        for block in blocks:
            tier.store(KEYS[block], shard_of(rank, num_ranks), b"", pages, [block])
    matcher = AllRanks(tier, num_ranks)
    has_all = [all(block in blocks for blocks in held) for block in range(6)]
    expected = next((block for block in range(6) if not has_all[block]), 6)
    lease = matcher.match(b"".join(KEYS), SHAPE)
    assert lease.num_blocks == expected
    assert len(lease.refs) == expected * num_ranks * REF_BYTES
    assert tier.num_pins == expected * num_ranks, "nothing beyond the hit stays pinned"
    assert matcher.lookup(b"".join(KEYS), SHAPE) == bytes(has_all)
    lease.release()
    assert tier.num_pins == 0


def test_each_rank_loads_its_own_shards_of_as_many_blocks_as_were_taken() -> None:
    tier = warm_tier(3)
    lease = AllRanks(tier, 3).match(b"".join(prompt_keys()), SHAPE)
    job = LoadJob(1, "a", leading_refs(lease, 2), (7, 8), is_async=True)
    for rank in range(3):
        own = tier.match(b"".join(prompt_keys()[:2]), shard_of(rank, 3))
        assert own_loads(StepPlan((job,)), rank, 3).loads[0].refs == own.refs
        own.release()
    lost = LoadJob(2, "a", b"", (7, 8), is_async=True)
    assert own_loads(StepPlan((lost,)), 1, 3).loads == (lost,)


def test_what_all_ranks_stored_is_loaded_by_all() -> None:
    tier = warm_tier()
    assert [tier.records(shard_of(rank, 2)) for rank in range(2)] == shard_records(PROMPT, 2)
    counts = ask(tier)
    assert counts["pool_tokens"] == 5 * BLOCK_TOKENS
    assert counts["loaded_blocks"] == 5
    assert counts["loaded_bytes"] == 5 * 2 * PIECE_BYTES


@pytest.mark.parametrize("rank", [0, 1])
def test_missing_shard_is_a_miss_from_there_on(rank: int) -> None:
    tier = warm_tier()
    tier.drop(prompt_keys()[3], shard_of(rank, 2))
    counts = ask(tier)
    assert (counts["pool_tokens"], counts["stored_blocks"]) == (3 * BLOCK_TOKENS, 1)
    assert [tier.records(shard_of(rank, 2)) for rank in range(2)] == shard_records(PROMPT, 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_bad_shard_of_one_rank_is_computed_again_by_all(rank: int) -> None:
    tier = warm_tier()
    tier.corrupt(prompt_keys()[3], shard_of(rank, 2))
    counts = ask(tier)
    assert counts["pool_tokens"] == 3 * BLOCK_TOKENS
    assert counts["failed_loads"] == {"corrupt": 1}
    assert [tier.records(shard_of(rank, 2)) for rank in range(2)] == shard_records(PROMPT, 2)


@pytest.mark.parametrize("bad", [[], [(0, 3)], [(1, 2)], [(0, 3), (1, 2)], [(0, 2), (1, 3)]])
@pytest.mark.parametrize("first", [0, 1])
def test_load_ends_when_the_slower_rank_has_ended(first: int, bad: list[tuple[int, int]]) -> None:
    tier = warm_tier()
    for rank, block in bad:
        tier.corrupt(prompt_keys()[block], shard_of(rank, 2))
    engine = RankedEngine(tier)
    request = engine.add("b", PROMPT)
    engine.step()
    engine.run_loads_of(first)
    engine.step()
    assert request.is_loading
    assert tier.num_pins >= 5, "the slower rank still reads"
    engine.run_loads_of(1 - first)
    engine.step()
    assert not request.is_loading
    assert tier.num_pins == 0
    assert request.num_computed == BLOCK_TOKENS * min([5, *(block for _, block in bad)])


def test_reports_add_bytes_and_take_the_worst_of_prompt_keys() -> None:
    reports = RankReports(2)
    fast = LoadReport(3, "a", 4, 4, 40, 0.1, {}, LoadWay.ASYNC)
    slow = LoadReport(3, "a", 2, 1, 20, 0.4, {"corrupt": 2}, LoadWay.ASYNC)
    assert reports.join(WorkerReport((fast,), (), 0)).loads == ()
    assert reports.join(WorkerReport((slow,), (), 0)).loads == (
        LoadReport(3, "a", 2, 1, 60, 0.4, {"corrupt": 2}, LoadWay.ASYNC),
    )


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([[STORED, EXISTS], [STORED, EXISTS]], (1, 1, {}, [STORED, EXISTS])),
        ([[STORED, EXISTS], [EXISTS, EXISTS]], (1, 1, {}, [STORED, EXISTS])),
        (
            [[STORED, STORED], [NO_SPACE, EXISTS]],
            (1, 0, {"no_space": 1}, [NO_SPACE, STORED]),
        ),
        ([[STORED, STORED], []], (0, 0, {"error": 2}, [])),
        ([[], []], (0, 0, {"error": 2}, [])),
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True])
def test_block_is_stored_if_every_shard_is_there(
    outcomes: list[list[StoreOutcome]],
    expected: tuple[int, int, dict[str, int], list[StoreOutcome]],
    *,
    is_swapped: bool,
) -> None:
    shards = tuple(store_report(said) for said in outcomes)
    told = WorkerReport((), shards[::-1] if is_swapped else shards, 0)
    (joined,) = RankReports(2).join(told).stores
    assert (joined.num_stored, joined.num_existing, joined.rejections) == expected[:3]
    assert joined.outcomes == bytes(expected[3])
    assert joined.num_offered == 2
    assert joined.stored_bytes == 10 * sum(said.count(STORED) for said in outcomes)


def store_report(outcomes: list[StoreOutcome]) -> StoreReport:
    num_stored, num_existing = outcomes.count(STORED), outcomes.count(EXISTS)
    rejections = {"no_space": outcomes.count(NO_SPACE)} if NO_SPACE in outcomes else {}
    return StoreReport(
        "a",
        2,
        num_stored,
        num_existing,
        10 * num_stored,
        0.1,
        rejections if outcomes else {"error": 2},
        5,
        bytes(outcomes),
    )
