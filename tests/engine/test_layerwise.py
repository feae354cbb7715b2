"""Loads behind computing in the real engine: same answers, in eager and in compiled mode."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.engines import Engine, Engines, prompt
from tests.engine.test_failed_loads import scramble, wreck

FAR = {"kv_connector": "FarConnector", "kv_connector_module_path": "far_connector"}
MODES = [
    True,
    pytest.param(False, marks=pytest.mark.engine_heavy, id="compiled"),
]


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The layers that the engine waits for, in order."""
    from kvext.vllm.worker_side import WorkerSide  # noqa: PLC0415 - imports the engine

    names: list[str] = []
    wait = WorkerSide.wait_for_layer

    def note(side: WorkerSide, layer: str) -> None:
        names.append(layer)
        wait(side, layer)

    monkeypatch.setattr(WorkerSide, "wait_for_layer", note)
    return names


@pytest.fixture(params=MODES)
def engine(
    engines: Engines, model: Path, pool_options: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[Engine]:
    """One whose loads all overlap computing, however small they are."""
    from far_connector import far_connector  # noqa: PLC0415 - imports the engine

    is_eager: bool = request.param
    options = {**pool_options, "pool_name": f"layerwise-{is_eager}"}
    made = engines.get(model, options, connector=FAR, enforce_eager=is_eager)
    far_connector().overlap_from(0)
    yield made
    far_connector().pace_loads()
    far_connector().overlap_from(math.inf)


def test_a_load_behind_computing_gives_the_answer_of_computing(
    engine: Engine, waited_for: list[str]
) -> None:
    tokens = prompt(300, 400)
    cold = engine.ask(tokens)
    scramble(engine)
    waited_for.clear()
    warm = engine.ask(tokens)
    assert warm.kvext["loads"] == {"layerwise": 1}
    assert warm.kvext["pool_tokens"] == 384
    assert warm.same_as(cold)
    assert waited_for[:4] == [f"model.layers.{layer}.self_attn.attn" for layer in range(4)]


def test_requests_of_one_step_share_the_copy_and_get_their_own_answers(engine: Engine) -> None:
    prompts = [prompt(310 + index, 200 + 40 * index) for index in range(4)]
    cold = engine.ask_all(prompts)
    scramble(engine)
    warm = engine.ask_all(prompts)
    for expected, answer in zip(cold, warm, strict=True):
        assert answer.kvext["loads"] == {"layerwise": 1}
        assert answer.same_as(expected)


def test_a_corrupt_block_found_after_the_last_layer_is_computed_again(
    engine: Engine, pool_options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    is_eager = request.node.callspec.params["engine"]
    options = {**pool_options, "pool_name": f"layerwise-{is_eager}"}
    tokens = prompt(320, 400)
    cold = engine.ask(tokens)
    scramble(engine)
    wreck(options, tokens, [3])
    hurt = engine.ask(tokens)
    assert hurt.kvext["failed_loads"] == {"corrupt": 1}
    assert hurt.same_as(cold)
    engine.forget_local()
    assert engine.ask(tokens).same_as(cold), "no garbage was stored"


def test_a_slow_load_is_waited_for_layer_by_layer(engine: Engine) -> None:
    from far_connector import far_connector  # noqa: PLC0415 - imports the engine

    tokens = prompt(330, 400)
    cold = engine.ask(tokens)
    scramble(engine)
    far_connector().pace_loads(bytes_per_s=10e6)  # 0.15 s for 1.5 MB: the engine is faster
    warm = engine.ask(tokens)
    assert warm.same_as(cold)
    assert warm.kvext["load_ms"] >= 150
    assert 0 < warm.kvext["load_wait_ms"] <= warm.kvext["load_ms"]
