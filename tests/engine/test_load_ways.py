"""How blocks come in: beside other requests, by the order of events; behind computing, by size."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kvext.pool import Pages, Pool
from tests.engine.engines import Answer, Engine, Engines, answer_of, prompt

WAIT_S = 60.0


class Gate:
    """Holds back every load until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        load = Pool.load

        def held_back(
            pool: Pool, refs: bytes, pages: Pages, block_ids: Sequence[int], **options: bool
        ) -> bytes:
            self.begun.set()
            assert self.opened.wait(WAIT_S)
            return load(pool, refs, pages, block_ids, **options)

        monkeypatch.setattr(Pool, "load", held_back)


def add(engine: Engine, name: str, tokens: list[int]) -> None:
    from vllm import SamplingParams  # noqa: PLC0415 - takes seconds

    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=0)
    engine.llm.llm_engine.add_request(name, {"prompt_token_ids": tokens}, sampling)


def finish(engine: Engine, num_requests: int) -> dict[str, Answer]:
    """Step until so many requests are done, in their order."""
    done: dict[str, Answer] = {}
    for _ in range(10_000):
        for output in engine.llm.llm_engine.step():
            if output.finished:
                done[output.request_id] = answer_of(output)
        if len(done) >= num_requests:
            return done
    raise TimeoutError


def test_other_requests_are_served_while_blocks_come_in(
    engines: Engines, model: Path, pool_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.get(model, {**pool_options, "load": "async", "pool_name": "async-order"})
    cached = prompt(340, 400)
    cold = engine.ask(cached)
    engine.forget_local()
    gate = Gate(monkeypatch)
    add(engine, "loads", cached)
    engine.llm.llm_engine.step()
    assert gate.begun.wait(WAIT_S)
    for number in range(3):
        add(engine, f"computes-{number}", prompt(341 + number, 60))
    others = finish(engine, 3)
    assert set(others) == {"computes-0", "computes-1", "computes-2"}
    gate.opened.set()
    warm = finish(engine, 1)["loads"]
    assert warm.kvext["loads"] == {"async": 1}
    assert warm.kvext["pool_tokens"] == 384
    assert warm.same_as(cold)


@pytest.mark.parametrize(("load", "way"), [("sync", "layerwise"), ("blocking", "blocking")])
def test_a_large_load_hides_unless_the_configuration_forbids_it(
    engines: Engines, model: Path, pool_options: dict[str, Any], load: str, way: str
) -> None:
    engine = engines.get(model, {**pool_options, "load": load, "pool_name": f"by-size-{load}"})
    small, large = prompt(350, 300), prompt(351, 1300)
    cold = [engine.ask(small), engine.ask(large)]
    engine.forget_local()
    # Of the small one nearly all is found; behind the new end of the other its load can hide.
    warm = [engine.ask(small), engine.ask(large), engine.ask(large + prompt(352, 200))]
    ways = [answer.kvext.get("loads") for answer in warm]
    assert ways == [{"blocking": 1}, {"blocking": 1}, None]
    engine.forget_local()
    longer = engine.ask(large + prompt(353, 200))
    assert longer.kvext["loads"] == {way: 1}
    for expected, answer in zip(cold, warm, strict=False):
        assert answer.same_as(expected)
    assert engine.ask(large + prompt(353, 200)).same_as(longer)
