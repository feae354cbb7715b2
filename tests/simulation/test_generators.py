"""Made-up traffic has the shape that it says."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.simulation.generators import (
    Chat,
    Generator,
    Loop,
    Unique,
    Zipf,
    expected_blocks,
    generate,
)
from kvext.simulation.trace import Trace

_UNIQUE = Unique(requests_per_second=4, blocks_per_prompt=3)
_LOOP = Loop(requests_per_second=4, blocks_per_prompt=3, documents=5)
_ZIPF = Zipf(requests_per_second=4, blocks_per_prompt=3, documents=50)
_CHAT = Chat(sessions_per_second=1, shared_blocks=2)
_ALL = [_UNIQUE, _LOOP, _ZIPF, _CHAT]


def _make(generator: Generator, duration_s: float = 300.0, seed: int = 0) -> Trace:
    return generate(generator, duration_s=duration_s, block_tokens=16, seed=seed)


@pytest.mark.parametrize("generator", _ALL)
def test_same_seed_makes_the_same_requests_and_another_others(generator: Generator) -> None:
    assert _make(generator).accesses == _make(generator).accesses
    assert _make(generator).accesses != _make(generator, seed=1).accesses


@pytest.mark.parametrize("generator", _ALL)
def test_requests_come_in_the_order_of_their_time_and_within_the_duration(
    generator: Generator,
) -> None:
    times = [access.now_ms for access in _make(generator).accesses]
    assert times == sorted(times)
    assert times[-1] < 300_000


@pytest.mark.parametrize("generator", _ALL)
def test_number_of_blocks_is_about_what_is_expected(generator: Generator) -> None:
    made = _make(generator, duration_s=5000.0)
    assert made.num_blocks == pytest.approx(expected_blocks(generator, 5000.0), rel=0.1)


@pytest.mark.parametrize("generator", _ALL)
def test_prompt_is_as_long_as_its_blocks(generator: Generator) -> None:
    for access in _make(generator).accesses:
        assert access.input_tokens == 16 * len(access.keys)
        assert access.output_tokens == 256
        assert not access.partial_tail
        assert access.first_cost_s > 0


def test_unique_prompts_share_no_block() -> None:
    made = _make(_UNIQUE)
    assert made.distinct_blocks() == made.num_blocks == 3 * len(made.accesses)


def test_loop_asks_for_each_document_in_turn() -> None:
    made = _make(_LOOP)
    assert made.distinct_blocks() == 15
    first_keys = [access.keys[0] for access in made.accesses[:6]]
    assert first_keys == [0, 3, 6, 9, 12, 0]


def test_zipf_prefers_documents_of_low_rank_as_its_exponent_says() -> None:
    made = _make(_ZIPF, duration_s=5000.0)
    asked = Counter(access.keys[0] // 3 for access in made.accesses)
    assert asked[0] / asked[1] == pytest.approx(2, rel=0.1)
    assert asked[0] / asked[9] == pytest.approx(10, rel=0.2)


def test_zipf_of_exponent_zero_prefers_none() -> None:
    flat = Zipf(requests_per_second=4, blocks_per_prompt=1, documents=4, exponent=0)
    asked = Counter(access.keys[0] for access in _make(flat, duration_s=5000.0).accesses)
    assert min(asked.values()) > 0.9 * max(asked.values())


def test_turn_of_a_conversation_sends_all_before_it_again_and_more() -> None:
    made = _make(_CHAT)
    assert made.sessions is not None
    turns: dict[int, list[list[int]]] = {}
    for session, access in zip(made.sessions, made.accesses, strict=True):
        turns.setdefault(session, []).append(list(access.keys))
    assert any(len(prompts) > 3 for prompts in turns.values())
    for prompts in turns.values():
        assert len(prompts[0]) == 2 + 4
        assert prompts[0][:2] == [0, 1]
        for earlier, later in pairwise(prompts):
            assert later[: len(earlier)] == earlier
            assert len(later) == len(earlier) + 2


def test_conversations_share_only_the_blocks_that_all_begin_with() -> None:
    made = _make(_CHAT)
    assert made.sessions is not None
    owners: dict[int, set[int]] = {}
    for session, access in zip(made.sessions, made.accesses, strict=True):
        for key in access.keys:
            owners.setdefault(key, set()).add(session)
    assert {key for key, sessions in owners.items() if len(sessions) > 1} == {0, 1}


def test_regular_arrivals_are_evenly_spaced() -> None:
    regular = Unique(requests_per_second=4, blocks_per_prompt=1, arrivals="regular")
    times = [access.now_ms for access in _make(regular, duration_s=2.0).accesses]
    assert times == [0, 250, 500, 750, 1000, 1250, 1500, 1750]


def test_duration_without_an_arrival_makes_no_request() -> None:
    assert _make(_UNIQUE, duration_s=1e-6).num_requests == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.floats(0.1, 5), st.integers(1, 5), st.integers(0, 3), st.floats(1, 6))
def test_conversations_of_any_shape_keep_to_their_time(
    seed: int, rate: float, blocks: int, shared: int, turns: float
) -> None:
    chat = Chat(
        sessions_per_second=rate,
        first_blocks=blocks,
        blocks_per_turn=blocks,
        shared_blocks=shared,
        mean_turns=turns,
        mean_think_s=3,
    )
    made = _make(chat, duration_s=20.0, seed=seed)
    assert all(0 <= access.now_ms < 20_000 for access in made.accesses)
    assert all(len(set(access.keys)) == len(access.keys) for access in made.accesses)
