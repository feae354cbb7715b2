"""The planner around a toy engine with sliding windows: hits are right or they are no hits."""

from collections.abc import Sequence

import pytest
from typing_extensions import override

from kvext.connector.plan import LoadJob
from kvext.protocol.layout import RecordShape
from kvext.testing.tier import FakeTier
from tests.connector.toy_hybrid import NULL, HybridEngine, Window, groups_of, hybrid_records
from tests.connector.toy_parts import BLOCK_TOKENS

MIXED: tuple[Window, ...] = (24, None, 40)
PROMPT = list(range(100, 100 + 8 * BLOCK_TOKENS + 3))
"""Eight full blocks and three tokens."""


def warm_tier(windows: Sequence[Window] = MIXED, prompt: list[int] = PROMPT) -> FakeTier:
    tier = FakeTier()
    engine = HybridEngine(tier, windows)
    engine.add("cold", prompt)
    engine.finish_all()
    return tier


def places(job: LoadJob, num_blocks: int = 64) -> list[list[int]]:
    """A job's block ids by group."""
    return [
        [place % num_blocks for place in job.block_ids if place // num_blocks == group]
        for group in range(len(MIXED))
    ]


@pytest.mark.parametrize("windows", [MIXED, (24,), (None, None), (1, None), (16, 17)])
def test_every_group_stores_every_block_and_nothing_else(windows: tuple[Window, ...]) -> None:
    assert warm_tier(windows).records() == hybrid_records(windows, PROMPT)


@pytest.mark.parametrize("chunk_blocks", [1, 3])
def test_blocks_are_stored_before_they_leave_their_window(chunk_blocks: int) -> None:
    tier = FakeTier()
    engine = HybridEngine(tier, MIXED, chunk_blocks=chunk_blocks)
    engine.add("a", PROMPT)
    engine.finish_all()
    assert tier.records() == hybrid_records(MIXED, PROMPT)


def test_a_hit_loads_of_each_group_what_its_window_needs() -> None:
    tier = warm_tier()
    engine = HybridEngine(tier, MIXED)
    request = engine.add("b", PROMPT)
    (job,) = engine.step().loads
    assert job.is_async
    assert [len(ids) for ids in places(job)] == [2, 8, 3]
    assert [table.count(NULL) for table in request.tables] == [6, 0, 5]
    engine.finish_all()
    counts = engine.responses["b"]
    assert (counts["pool_tokens"], counts["loaded_blocks"]) == (8 * BLOCK_TOKENS, 13)
    assert tier.num_pins == 0
    assert tier.records() == hybrid_records(MIXED, PROMPT)


def test_a_hole_in_one_group_shortens_the_hit_for_all() -> None:
    tier = warm_tier()
    keys = list(hybrid_records(MIXED, PROMPT))  # group after group
    tier.drop(keys[2 * 8 + 6], groups_of(MIXED)[2].shape)
    engine = HybridEngine(tier, MIXED)
    engine.add("b", PROMPT)
    engine.finish_all()
    assert engine.responses["b"]["pool_tokens"] == 6 * BLOCK_TOKENS


def test_a_hole_behind_every_window_is_not_missed() -> None:
    tier = warm_tier()
    keys = list(hybrid_records(MIXED, PROMPT))
    for block in range(5):
        tier.drop(keys[block], groups_of(MIXED)[0].shape)
    engine = HybridEngine(tier, MIXED)
    engine.add("b", PROMPT)
    engine.finish_all()
    assert engine.responses["b"]["pool_tokens"] == 8 * BLOCK_TOKENS


def test_blocks_of_the_engines_own_window_are_not_loaded_again() -> None:
    tier = warm_tier()
    engine = HybridEngine(tier, MIXED)
    engine.add("short", PROMPT[: 7 * BLOCK_TOKENS + 1])
    engine.finish_all()
    tier.drop(next(iter(hybrid_records(MIXED, PROMPT))), groups_of(MIXED)[0].shape)
    engine.add("long", PROMPT)
    (job,) = engine.step().loads
    assert [len(ids) for ids in places(job)] == [1, 1, 1]
    engine.finish_all()
    counts = engine.responses["long"]
    assert (counts["local_tokens"], counts["pool_tokens"]) == (7 * BLOCK_TOKENS, BLOCK_TOKENS)


@pytest.mark.parametrize("group", [0, 1, 2])
def test_one_bad_block_fails_the_whole_load_and_all_is_computed(group: int) -> None:
    tier = warm_tier()
    key = list(hybrid_records(MIXED, PROMPT))[8 * group + 7]
    tier.corrupt(key, groups_of(MIXED)[group].shape)
    engine = HybridEngine(tier, MIXED)
    engine.add("b", PROMPT)
    engine.finish_all()
    counts = engine.responses["b"]
    assert (counts["pool_tokens"], counts["failed_loads"]) == (0, {"corrupt": 1})
    assert tier.records() == hybrid_records(MIXED, PROMPT), "and stored once more"


def test_a_promise_of_which_the_engine_takes_a_part_fails() -> None:
    tier = warm_tier()
    engine = HybridEngine(tier, MIXED)
    request = engine.add("b", PROMPT)
    match = engine.planner.match("b", 0, len(PROMPT))
    request.tables = [list(range(1, 9)), list(range(11, 19)), list(range(21, 29))]
    engine.planner.allocate("b", lambda: request.tables[0], match.num_tokens - BLOCK_TOKENS)
    (job,) = engine.planner.take_loads()
    assert (job.refs, len(job.block_ids)) == (b"", 1)
    engine.planner.finish("b", [], is_complete=False)


def test_a_block_that_goes_between_lookup_and_pin_shortens_the_hit() -> None:
    class Leaky(FakeTier):
        """Loses its newest full-attention block when it is looked at."""

        @override
        def lookup(self, keys: bytes, shape: RecordShape) -> bytes:
            found = super().lookup(keys, shape)
            lost = list(hybrid_records(MIXED, PROMPT))[8 + 7]
            if lost in self.records():
                self.drop(lost, groups_of(MIXED)[1].shape)
            return found

    tier = Leaky()
    cold = HybridEngine(tier, MIXED)
    cold.add("cold", PROMPT)
    cold.finish_all()
    engine = HybridEngine(tier, MIXED)
    engine.add("b", PROMPT)
    engine.finish_all()
    assert engine.responses["b"]["pool_tokens"] == 7 * BLOCK_TOKENS
    assert tier.num_pins == 0


def test_foreign_kv_in_any_group_limits_what_is_saved() -> None:
    tier = FakeTier()
    engine = HybridEngine(tier, MIXED)
    engine.add("a", PROMPT)
    engine.finish_all()
    num_known = tier.num_records
    engine.planner.distrust_memory()
    engine.add("b", [*PROMPT, *range(BLOCK_TOKENS)])
    engine.finish_all()
    assert tier.num_records == num_known, "it stands on blocks that nobody vouches for"


def test_tokens_that_cannot_be_named_uncache_a_request() -> None:
    engine = HybridEngine(FakeTier(), MIXED)
    engine.add("a", [-1] * len(PROMPT))
    engine.finish_all()
    assert "token -1" in str(engine.responses["a"]["reason"])
