"""The planner and the transfers around a toy engine: every case is one an engine really makes."""

from kvext.connector.namespaces import Subject
from kvext.connector.rules import NO_MATCH
from kvext.protocol.key import KEY_BYTES
from kvext.testing.tier import FakeTier
from tests.connector.toy_engine import PROMPT, ToyEngine, warm_tier
from tests.connector.toy_parts import (
    BLOCK_TOKENS,
    PIECE_BYTES,
    expected_records,
)


def test_full_blocks_are_saved_as_soon_as_they_are_computed() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier, chunk_blocks=2)
    engine.add("a", PROMPT)
    engine.step()
    assert tier.num_records == 2
    engine.step()
    engine.step()
    assert tier.records() == expected_records(PROMPT)
    engine.end("a")
    assert engine.responses["a"]["stored_blocks"] == 5


def test_a_second_engine_loads_what_the_first_has_saved() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier)
    request = engine.add("b", PROMPT)
    plan = engine.step()
    assert [len(job.block_ids) for job in plan.loads] == [5]
    assert [engine.memory(block) for block in request.blocks[:5]] == list(
        expected_records(PROMPT).values()
    )
    engine.end("b")
    counts = engine.responses["b"]
    assert counts["pool_tokens"] == 5 * BLOCK_TOKENS
    assert counts["loaded_bytes"] == 5 * PIECE_BYTES
    assert tier.num_pins == 0


def test_the_engines_last_token_is_always_left_to_compute() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier)
    engine.add("b", PROMPT[: 5 * BLOCK_TOKENS])
    plan = engine.step()
    assert [len(job.block_ids) for job in plan.loads] == [4]


def test_only_blocks_beyond_the_engines_own_hit_are_loaded() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier)
    engine.add("short", PROMPT[: 2 * BLOCK_TOKENS + 1])
    engine.step()
    engine.end("short")
    request = engine.add("long", PROMPT)
    plan = engine.step()
    assert [job.block_ids for job in plan.loads] == [tuple(request.blocks[2:5])]
    engine.end("long")
    assert engine.responses["long"]["local_tokens"] == 2 * BLOCK_TOKENS


def test_a_match_that_is_not_taken_gives_its_pins_back_in_the_same_pass() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier)
    engine.add("b", PROMPT)
    assert engine.planner.match("b", 0, len(PROMPT)).num_tokens == 5 * BLOCK_TOKENS
    assert tier.num_pins == 5
    engine.planner.end_pass()
    assert tier.num_pins == 0


def test_asking_twice_pins_once() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier)
    engine.add("b", PROMPT)
    engine.planner.match("b", 0, len(PROMPT))
    engine.planner.match("b", 0, len(PROMPT))
    assert tier.num_pins == 5
    engine.planner.finish("b", [], is_complete=False)
    assert tier.num_pins == 0


def test_a_load_that_is_never_reported_gives_its_pins_back_at_the_deadline() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier)
    engine.add("b", PROMPT)
    match = engine.planner.match("b", 0, len(PROMPT))
    engine.planner.allocate("b", lambda: list(range(6)), match.num_tokens)
    engine.planner.end_pass()
    assert tier.num_pins == 5
    engine.clock.now_s = 11.0
    engine.planner.end_pass()
    assert tier.num_pins == 0


def test_an_abort_in_mid_load_keeps_the_pins_until_the_worker_has_reported() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier, lag=1)
    engine.add("b", PROMPT)
    engine.step()
    engine.end("b", is_complete=False)
    assert tier.num_pins == 5
    engine.hear_all()
    assert tier.num_pins == 0


def test_a_request_of_one_step_counts_its_load_without_a_report() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier, lag=1)
    engine.add("b", PROMPT)
    engine.step()
    engine.end("b")
    assert engine.responses["b"]["loaded_blocks"] == 5
    assert engine.responses["b"]["unreported_stores"] == 5


def test_an_asynchronous_load_is_reported_once_and_then_computed_on() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier, async_loads=True)
    request = engine.add("b", PROMPT)
    engine.step()
    engine.run_loads()
    engine.step()
    engine.step()
    assert request.num_computed == len(PROMPT)
    engine.end("b")
    assert engine.responses["b"]["loaded_blocks"] == 5
    assert tier.num_pins == 0


def test_a_preempted_request_is_found_again_with_what_it_had_computed() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier, chunk_blocks=3)
    engine.add("a", PROMPT)
    engine.step()
    engine.preempt("a")
    engine.reset_prefix_cache()
    plan = engine.step()
    assert [len(job.block_ids) for job in plan.loads] == [3]
    engine.end("a")
    assert tier.num_pins == 0


def test_tokens_that_are_not_accepted_yet_are_not_saved() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier)
    request = engine.add("a", PROMPT[: BLOCK_TOKENS - 1])
    engine.step()
    request.tokens.append(1)
    assert tier.num_records == 0
    engine.step()
    assert tier.records() == expected_records([*PROMPT[: BLOCK_TOKENS - 1], 1])


def test_a_promise_is_kept_even_if_its_lease_is_gone() -> None:
    tier = warm_tier()
    engine = ToyEngine(tier)
    request = engine.add("b", PROMPT)
    match = engine.planner.match("b", 0, len(PROMPT))
    engine.planner.allocate("b", lambda: list(range(6)), match.num_tokens)
    (job,) = engine.planner.take_loads()
    assert len(job.refs) == 5 * 16
    assert len(job.block_ids) == 5
    assert request.num_computed == 0


def test_a_request_with_a_token_that_cannot_be_named_is_uncached() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier)
    engine.add("a", [-1] * len(PROMPT))
    engine.add("b", PROMPT)
    engine.step()
    engine.step()
    engine.end("a")
    assert "token -1" in str(engine.responses["a"]["reason"])
    assert tier.records() == expected_records(PROMPT)


def test_a_full_tier_is_told_in_the_counts() -> None:
    tier = FakeTier(capacity=0)
    engine = ToyEngine(tier)
    engine.add("a", PROMPT)
    engine.step()
    engine.step()
    engine.end("a")
    assert engine.responses["a"]["rejected"] == {"no_space": 5}


def test_the_reason_of_a_miss_is_told() -> None:
    engine = ToyEngine(FakeTier())
    engine.add("short", PROMPT[: BLOCK_TOKENS - 1])
    engine.add("exact", PROMPT[:BLOCK_TOKENS])
    engine.add("cold", PROMPT)
    engine.step()
    for name in ("short", "exact", "cold"):
        engine.end(name)
    reasons = {name: counts["reason"] for name, counts in engine.responses.items()}
    assert reasons == {"short": "sub_block", "exact": "last_token", "cold": "not_found"}


def test_keys_have_the_length_that_a_tier_expects() -> None:
    engine = ToyEngine(FakeTier())
    engine.add("a", PROMPT)
    plan = engine.step()
    assert [len(job.keys) for job in plan.saves] == [4 * KEY_BYTES]


def test_a_request_that_may_not_load_says_why() -> None:
    engine = ToyEngine(warm_tier())
    engine.planner.begin("r", PROMPT, Subject(), unread="not_asked: because")
    assert engine.planner.match("r", 0, len(PROMPT)) == NO_MATCH
    assert engine.planner.finish("r", [], is_complete=True)["reason"] == "not_asked: because"


def test_block_that_is_decoded_is_saved_in_the_step_that_fills_it() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier)
    requests = [engine.add(f"r{number}", [number] * (20 + number)) for number in range(3)]
    engine.step()
    for _ in range(4 * BLOCK_TOKENS):
        for request in requests:
            request.tokens.append(len(request.tokens))
        engine.step()
        right: dict[bytes, bytes] = {}
        for request in requests:
            right |= expected_records(request.tokens)
        assert tier.records() == right


def test_request_that_sits_out_some_steps_saves_its_block_when_it_is_full() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier)
    request = engine.add("a", PROMPT)
    engine.step()
    engine.step()
    for _ in range(BLOCK_TOKENS - 3):
        for _ in range(2):
            engine.step()  # computes nothing of it
        request.tokens.append(7)
        engine.step()
    assert tier.records() == expected_records(request.tokens)
    assert len(tier.records()) == 6


def test_drafts_that_fill_a_block_early_do_not_delay_it() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier)
    request = engine.add("a", PROMPT)
    engine.step()
    engine.step()
    for _ in range(6):
        request.tokens += [5, 6, 7, 8, 9]
        engine.step()
        assert tier.records() == expected_records(request.tokens)


def test_single_tokens_after_drafts_do_not_delay_a_block() -> None:
    tier = FakeTier()
    engine = ToyEngine(tier)
    request = engine.add("a", PROMPT[: 2 * BLOCK_TOKENS])
    engine.step()
    request.tokens += [5] * 7
    engine.step()
    for _ in range(BLOCK_TOKENS - 7):
        request.tokens.append(6)
        engine.step()
    assert tier.records() == expected_records(request.tokens)
    assert tier.num_records == 3
