"""Blocks that are not worth storing are not offered, and that is counted."""

import pytest

from kvext.connector.report import StoreReport
from kvext.testing.tier import FakeTier
from tests.connector.toy_engine import PROMPT, ToyEngine
from tests.connector.toy_parts import BLOCK_TOKENS, expected_records

NUM_BLOCKS = 5
"""That `PROMPT` fills."""


class FixedJudge:
    """Wants so many blocks of everybody; notes what it was asked."""

    def __init__(self, num_wanted: int) -> None:
        self.asked: list[tuple[int, str]] = []
        self._num_wanted = num_wanted

    def num_wanted(self, keys: bytes, domain: str) -> int:
        self.asked.append((len(keys) // 32, domain))
        return self._num_wanted


def engine_with(judge: FixedJudge) -> ToyEngine:
    class JudgedEngine(ToyEngine):
        pass

    JudgedEngine.judge = judge
    return JudgedEngine(FakeTier(), chunk_blocks=2)


def run(engine: ToyEngine, num_answer_tokens: int = 0) -> None:
    request = engine.add("a", PROMPT)
    for _ in range(4):
        engine.step()
    for _ in range(num_answer_tokens):
        request.tokens.append(7)
        engine.step()
    engine.end("a")


@pytest.mark.parametrize("num_wanted", [0, 1, 2, 3, 5, 100])
def test_only_what_is_wanted_is_stored_and_the_rest_is_counted(num_wanted: int) -> None:
    engine = engine_with(FixedJudge(num_wanted))
    run(engine)
    stored = list(expected_records(PROMPT).items())[:num_wanted]
    assert engine.tier.records() == dict(stored)
    num_refused = NUM_BLOCKS - len(stored)
    rejected = engine.responses["a"].get("rejected", {})
    assert rejected == ({"used_once": num_refused} if num_refused else {})
    report = engine.planner.decisions.take()
    refused: tuple[StoreReport, ...] = () if report is None else report.stores
    assert sum(store.rejections["used_once"] for store in refused) == num_refused
    assert engine.planner.decisions.take() is None, "each is told once"


def test_a_request_is_judged_once_with_its_whole_prompt() -> None:
    judge = FixedJudge(100)
    run(engine_with(judge), num_answer_tokens=3 * BLOCK_TOKENS)
    assert judge.asked == [(NUM_BLOCKS, "")]


def test_the_answer_of_a_refused_request_is_refused_too() -> None:
    engine = engine_with(FixedJudge(2))
    run(engine, num_answer_tokens=2 * BLOCK_TOKENS)
    assert engine.responses["a"]["rejected"] == {"used_once": NUM_BLOCKS - 2 + 2}
    assert engine.tier.num_records == 2


def test_without_a_judge_everything_is_offered() -> None:
    engine = ToyEngine(FakeTier())
    run(engine)
    assert engine.tier.records() == expected_records(PROMPT)
    assert engine.planner.decisions.take() is None
