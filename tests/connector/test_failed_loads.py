"""A block that cannot be loaded is recomputed, and what stood on it poisons no cache."""

from collections.abc import Sequence

import pytest
from typing_extensions import override

from kvext.protocol.transfer import LoadOutcome
from kvext.testing.tier import FakePages, FakeTier
from tests.connector.toy_engine import PROMPT, ToyEngine, warm, warm_tier
from tests.connector.toy_parts import BLOCK_TOKENS, SHAPE, expected_records


def key_at(index: int) -> bytes:
    return list(expected_records(PROMPT))[index]


def test_a_corrupt_block_is_recomputed_and_stored_again() -> None:
    tier = warm_tier()
    tier.corrupt(key_at(2), SHAPE)
    engine = ToyEngine(tier)
    engine.add("b", PROMPT)
    engine.step()
    engine.step()
    engine.step()
    engine.end("b")
    assert engine.responses["b"]["failed_loads"] == {"corrupt": 1}
    assert tier.records() == expected_records(PROMPT)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_nothing_computed_on_a_failed_block_is_ever_saved(lag: int) -> None:
    tier = warm_tier()
    tier.corrupt(key_at(0), SHAPE)
    longer = PROMPT + list(range(500, 500 + 4 * BLOCK_TOKENS))
    engine = ToyEngine(tier, lag=lag, chunk_blocks=2)
    engine.add("b", longer)
    for _ in range(8):
        engine.step()
        right = expected_records(longer)
        assert all(right[key] == data for key, data in tier.records().items())
    engine.end("b")
    assert tier.records() == expected_records(longer)


@pytest.mark.parametrize("lag", [0, 1])
def test_a_request_that_shares_a_failed_block_saves_nothing_on_top_of_it(lag: int) -> None:
    tier = warm_tier()
    tier.corrupt(key_at(1), SHAPE)
    shared = PROMPT[: 5 * BLOCK_TOKENS]
    one = shared + list(range(900, 900 + 6 * BLOCK_TOKENS))
    two = shared + list(range(700, 700 + 6 * BLOCK_TOKENS))
    engine = ToyEngine(tier, lag=lag, chunk_blocks=1)
    engine.add("one", one)
    engine.add("two", two)
    right = expected_records(one) | expected_records(two)
    for _ in range(16):
        engine.step()
        assert all(right[key] == data for key, data in tier.records().items())
    assert engine.forgotten


class StubbornTier(FakeTier):
    """Finds blocks and never gives them."""

    @override
    def load(self, refs: bytes, pages: FakePages, block_ids: Sequence[int]) -> bytes:
        return bytes([LoadOutcome.STALE]) * len(block_ids)


def test_a_block_that_fails_every_time_is_not_tried_for_ever() -> None:
    tier = StubbornTier()
    warm(tier)
    engine = ToyEngine(tier, async_loads=True)
    engine.add("b", PROMPT)
    num_loads = 0
    for _ in range(20):
        num_loads += len(engine.step().loads)
        engine.run_loads()
    assert num_loads == 1
    engine.end("b")
    assert engine.responses["b"]["failed_loads"] == {"stale": 5}
    assert tier.num_pins == 0


def test_what_an_aborted_request_computed_on_a_failed_block_is_forgotten() -> None:
    tier = warm_tier()
    tier.corrupt(key_at(1), SHAPE)
    longer = PROMPT[: 5 * BLOCK_TOKENS] + list(range(900, 900 + 6 * BLOCK_TOKENS))
    engine = ToyEngine(tier, lag=1)
    engine.add("aborted", longer)
    engine.step()
    engine.end("aborted", is_complete=False)
    engine.hear_all()
    engine.add("again", longer)
    for _ in range(6):
        engine.step()
    assert tier.records() == expected_records(longer)
