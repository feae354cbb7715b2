"""kvext beside other connectors under vLLM's `MultiConnector`."""

from pathlib import Path
from typing import Any

from tests.engine.engines import Engine, Engines, prompt
from tests.engine.pools import attached
from tests.engine.second_connector import FOREIGN_START


def kvext(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "kv_connector": "KvextConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": options,
    }


def second(name: str = "SecondConnector", **options: Any) -> dict[str, Any]:
    return {
        "kv_connector": name,
        "kv_connector_module_path": "tests.engine.second_connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": options,
    }


def company(engines: Engines, model: Path, *connectors: dict[str, Any]) -> Engine:
    transfer = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"connectors": list(connectors)},
    }
    # With statistics: those of several connectors are merged by vLLM.
    return engines.get(model, None, kv_transfer_config=transfer, disable_log_stats=False)


def foreign_prompt(seed: int) -> list[int]:
    return [FOREIGN_START, *prompt(seed, 299)]


def test_warm_equals_cold_and_both_connectors_answer(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    tokens = prompt(900)
    engine = company(engines, model, kvext(pool_options), second(claims=True))
    cold = engine.ask(tokens)
    engine.forget_local()
    warm = engine.ask(tokens)
    assert (cold.kvext["pool_tokens"], warm.kvext["pool_tokens"]) == (0, 384)
    assert warm.same_as(cold)
    assert warm.others["second"]["num_heard"] > 0


def test_foreign_kv_and_what_is_computed_on_it_never_reach_the_pool(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine = company(engines, model, kvext(pool_options), second(claims=True))
    with attached(pool_options) as pool:
        pool.clear()
    tokens = foreign_prompt(910)
    first = engine.ask(tokens)
    assert first.cached_tokens == 96, "the other connector has brought something in"
    longer = engine.ask(tokens + prompt(911, 100))
    assert longer.cached_tokens >= 288, "and the engine's own cache spreads it"
    own = engine.ask(prompt(912, 100))
    with attached(pool_options) as pool:
        assert pool.stat().num_committed == 3
    assert own.kvext["stored_blocks"] == 3
    engine.forget_local()
    assert engine.ask(prompt(912, 100)).kvext["pool_tokens"] == 96


def test_load_errors_of_the_other_connector_are_recomputed_and_not_stored_before(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    options = {**pool_options, "pool_name": "company-errors"}
    tokens = foreign_prompt(920)
    expected = engines.get(model, None).ask(tokens)
    engine = company(engines, model, kvext(options), second(claims=True, fails=True))
    assert engine.ask(tokens).same_as(expected)
    engine.forget_local()
    assert engine.ask(tokens).same_as(expected)
    with attached(options) as pool:
        stat = pool.stat()
        assert (stat.num_pinned, stat.num_reserved) == (0, 0)


def test_connector_that_shakes_hands_itself_does_not_leave_kvext_out(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    tokens = prompt(930)
    engine = company(engines, model, kvext(pool_options), second("ShakingConnector"))
    engine.ask(prompt(931))
    cold = engine.ask(tokens)
    assert cold.others["second"]["shakes"] == 1
    engine.forget_local()
    warm = engine.ask(tokens)
    assert warm.kvext["pool_tokens"] == 384
    assert warm.same_as(cold)


def test_two_pools_in_one_engine_answer_under_two_names(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    tokens = prompt(940)
    other = {**pool_options, "pool_name": "second-pool"}
    engine = company(engines, model, kvext(pool_options), kvext(other))
    engine.ask(prompt(941))
    cold = engine.ask(tokens)
    assert "kvext:second-pool" in cold.others
    engine.forget_local()
    with attached(pool_options) as pool:
        pool.clear()
    warm = engine.ask(tokens)
    assert warm.kvext["pool_tokens"] == 0
    assert warm.others["kvext:second-pool"]["pool_tokens"] == 384
    assert warm.same_as(cold)
