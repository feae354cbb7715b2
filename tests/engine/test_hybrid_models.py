"""Models with sliding windows: every KV group comes back as far as the engine reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvext.testing.attention_models import tiny_gemma3, tiny_gpt_oss
from kvext.testing.models import tiny_lora
from tests.engine.engines import Engine, Engines, prompt
from tests.engine.pools import attached, wreck_group
from tests.engine.test_identity_options import assert_apart

KINDS: dict[str, tuple[Callable[[Path], Path], int, int]] = {
    "gemma3": (tiny_gemma3, 3, 12 + 2 * 2),
    "gpt_oss": (tiny_gpt_oss, 2, 12 + 2),
    "sliding_only": (lambda folder: tiny_gemma3(folder, layers="ss"), 1, 2),
}
"""A model, its KV groups, and the records that a hit of twelve blocks needs of them all."""


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("hybrids")
    return {name: make(root / name) for name, (make, _, _) in KINDS.items()}


@pytest.fixture
def options(pool_options: dict[str, Any], kind: str) -> dict[str, Any]:
    return {**pool_options, "pool_name": kind, "pool_size": "96MiB"}


@pytest.fixture
def engine(
    engines: Engines, folders: dict[str, Path], options: dict[str, Any], kind: str
) -> Engine:
    return engines.get(folders[kind], options)


def scramble(engine: Engine) -> None:
    """Fill the engine's memory, so that a recycled block does not hold the right bytes by luck."""
    engine.ask_all([prompt(9000 + index, 1000) for index in range(6)])
    engine.forget_local()


def test_answers_are_those_of_stock_vllm_and_the_pool_was_used(
    engines: Engines, folders: dict[str, Path], options: dict[str, Any], kind: str
) -> None:
    tokens = prompt(800)
    stock = engines.get(folders[kind], None).ask(tokens, max_tokens=40)
    engine = engines.get(folders[kind], options)
    assert engine.ask(tokens, max_tokens=40).same_as(stock)
    scramble(engine)
    warm = engine.ask(tokens, max_tokens=40)
    assert warm.cached_tokens == warm.kvext["pool_tokens"] == 384
    assert warm.kvext["loaded_blocks"] == KINDS[kind][2]
    assert warm.same_as(stock)
    with attached(options) as pool:
        assert pool.stat().num_pinned == 0


def test_wrong_kv_in_any_group_would_change_the_answer(
    engine: Engine, options: dict[str, Any], kind: str
) -> None:
    num_groups = KINDS[kind][1]
    for group in range(num_groups):
        tokens = prompt(810 + group)
        cold = engine.ask(tokens)
        wreck_group(options, tokens, group, num_groups, seal=True)
        scramble(engine)
        hurt = engine.ask(tokens)
        assert hurt.kvext["pool_tokens"] == 384
        assert not hurt.same_as(cold)


def test_bad_block_in_any_group_has_everything_computed_again(
    engine: Engine, options: dict[str, Any], kind: str
) -> None:
    num_groups = KINDS[kind][1]
    for group in range(num_groups):
        tokens = prompt(820 + group)
        cold = engine.ask(tokens)
        scramble(engine)
        wreck_group(options, tokens, group, num_groups, seal=False)
        hurt = engine.ask(tokens)
        assert hurt.kvext["pool_tokens"] == 0
        assert set(hurt.kvext["failed_loads"]) == {"corrupt"}
        assert hurt.same_as(cold)
        scramble(engine)
        assert engine.ask(tokens).kvext["pool_tokens"] == 384, "what was bad is stored anew"


def test_prompt_in_chunks_is_stored_before_its_windows_move_on(
    engines: Engines, folders: dict[str, Path], options: dict[str, Any], kind: str
) -> None:
    engine = engines.get(folders[kind], options, max_num_batched_tokens=96, max_model_len=1024)
    tokens = prompt(830, 900)
    cold = engine.ask(tokens)
    assert cold.kvext["stored_blocks"] == 28 * KINDS[kind][1]
    for num_shared in (896, 512, 160):
        scramble(engine)
        other = tokens[:num_shared] + prompt(831, 50)
        warm = engine.ask(other)
        assert warm.kvext["pool_tokens"] == num_shared
        with attached(options) as pool:
            pool.clear()
        scramble(engine)
        assert warm.same_as(engine.ask(other))
        engine.ask(tokens)


def test_local_hit_and_pool_hit_add_up(engine: Engine) -> None:
    tokens = prompt(840)
    cold = engine.ask(tokens)
    scramble(engine)
    engine.ask(tokens[:200])  # vLLM keeps windows at the ends of prompts only
    both = engine.ask(tokens)
    assert (both.kvext["local_tokens"], both.kvext["pool_tokens"]) == (192, 192)
    assert both.same_as(cold)


def test_answers_grow_the_cached_prefix(engine: Engine, options: dict[str, Any]) -> None:
    tokens = prompt(850, 100)
    first = engine.ask(tokens, max_tokens=170)
    scramble(engine)
    follow_up = tokens + list(first.tokens) + prompt(851, 10)
    second = engine.ask(follow_up)
    # The last sampled token's KV was never computed, so 269 of 270 tokens could be stored.
    assert second.kvext["pool_tokens"] == 256
    with attached(options) as pool:
        pool.clear()
    scramble(engine)
    assert second.same_as(engine.ask(follow_up))


def test_many_requests_at_once_share_and_differ(engine: Engine, options: dict[str, Any]) -> None:
    shared = prompt(860, 192)
    prompts = [shared + prompt(861 + index, 40 + 30 * index) for index in range(8)]
    cold = engine.ask_all(prompts)
    scramble(engine)
    warm = engine.ask_all(prompts)
    assert [answer.tokens for answer in warm] == [answer.tokens for answer in cold]
    assert all(answer.kvext["pool_tokens"] >= 192 for answer in warm)
    with attached(options) as pool:
        assert pool.stat().num_pinned == 0


@pytest.mark.usefixtures("async_scheduling")
def test_overlapping_steps_store_and_load_the_same(
    engines: Engines, folders: dict[str, Path], options: dict[str, Any], kind: str
) -> None:
    engine = engines.get(folders[kind], {**options, "pool_name": f"lag-{kind}"}, fresh=True)
    assert engine.llm.llm_engine.engine_core.engine_core.batch_queue is not None
    tokens = prompt(870, 300)
    cold = engine.ask(tokens, max_tokens=100)
    # Of 400 tokens the last one's KV is never needed.
    assert cold.kvext["stored_blocks"] + cold.kvext["unreported_stores"] == 12 * KINDS[kind][1]
    scramble(engine)
    warm = engine.ask(tokens, max_tokens=100)
    assert warm.kvext["pool_tokens"] == 288
    assert warm.same_as(cold)
    scramble(engine)
    assert engine.ask(tokens + list(cold.tokens)).kvext["pool_tokens"] == 384


@pytest.mark.parametrize("kind", ["gemma3"])
def test_engine_that_keeps_all_windowed_kv_is_served_apart(
    engines: Engines, folders: dict[str, Path], options: dict[str, Any], kind: str
) -> None:
    options = {**options, "pool_name": "allocators"}
    whole = {"disable_hybrid_kv_cache_manager": True}
    assert_apart(engines, folders[kind], options, whole, {})


@pytest.mark.parametrize("kind", ["gemma3"])
def test_request_with_an_adapter_says_why_nothing_is_loaded(
    engines: Engines, folders: dict[str, Path], options: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    lora = LoRARequest("a", 1, str(tiny_lora(tmp_path / "a", folders[kind])))
    engine = engines.get(folders[kind], options, enable_lora=True, max_lora_rank=8)
    engine.ask(prompt(880), lora=lora)  # its digest is awaited only by who could load
    answer = engine.ask(prompt(881), lora=lora)
    assert answer.kvext["reason"] == "unsupported: loads for adapters with several KV groups"
    assert answer.kvext["stored_blocks"] == 12 * 3
