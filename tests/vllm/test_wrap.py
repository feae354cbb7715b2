"""Wrappers come and go in any order and leave nothing behind."""

import logging
from typing import Any

import pytest

from kvext.vllm.wrap import Wrap


def make_engine() -> type:
    class Engine:
        def work(self, amount: int) -> int:
            return amount

    return Engine


def wrap_of(engine: type) -> Wrap:
    return Wrap(engine, "work", ("self", "amount"))


def plus_one(original: Any, engine: Any, amount: int) -> int:
    result: int = original(engine, amount)
    return result + 1


def work(engine: Any, amount: int) -> int:
    result: int = engine().work(amount)
    return result


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_two_wrappers_end_in_any_order(first_to_end: int) -> None:
    engine: Any = make_engine()
    original = engine.work
    wraps = [wrap_of(engine), wrap_of(engine)]
    for wrap in wraps:
        assert wrap.open(plus_one, "")
    assert work(engine, 1) == 3
    wraps[first_to_end].close()
    wraps[first_to_end].close()
    assert work(engine, 1) == 2
    wraps[1 - first_to_end].close()
    assert engine.work is original


def test_function_with_other_parameters_is_left_alone_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine: Any = make_engine()
    original = engine.work
    with caplog.at_level(logging.WARNING):
        assert not Wrap(engine, "work", ("self", "speed")).open(plus_one, "it runs uncached")
        assert not Wrap(engine, "rest", ("self",)).open(plus_one, "it runs uncached")
    assert engine.work is original
    assert [record.getMessage() for record in caplog.records] == [
        "kvext: this vLLM has no work as we know it; it runs uncached",
        "kvext: this vLLM has no rest as we know it; it runs uncached",
    ]
