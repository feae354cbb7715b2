"""KV from the pool gives the answers that computing it gives; and the test would notice if not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.engines import BLOCK_TOKENS, Engines, prompt
from tests.engine.pools import attached, rewrite


@pytest.mark.parametrize("load", ["sync", "async"])
def test_warm_answer_equals_cold_answer_and_flipped_kv_does_not(
    engines: Engines, model: Path, pool_options: dict[str, Any], load: str
) -> None:
    engine = engines.get(model, {**pool_options, "load": load})
    tokens = prompt(1 if load == "sync" else 2)
    cold = engine.ask(tokens)
    assert (cold.cached_tokens, cold.kvext["pool_tokens"]) == (0, 0)
    engine.forget_local()
    warm = engine.ask(tokens)
    num_blocks = (len(tokens) - 1) // BLOCK_TOKENS
    assert warm.cached_tokens == warm.kvext["pool_tokens"] == num_blocks * BLOCK_TOKENS
    assert warm.kvext["loaded_blocks"] == num_blocks
    assert warm.same_as(cold)
    assert rewrite(pool_options, tokens, np.negative) >= num_blocks
    engine.forget_local()
    flipped = engine.ask(tokens)
    assert flipped.kvext["loaded_blocks"] == num_blocks
    assert not flipped.same_as(cold)
    with attached(pool_options) as pool:
        pool.clear()


def test_stock_vllm_gives_the_same_answers(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    prompts = [prompt(seed, 300) for seed in range(10, 14)]
    stock = [engines.get(model, None).ask(tokens) for tokens in prompts]
    engine = engines.get(model, pool_options)
    cold = [engine.ask(tokens) for tokens in prompts]
    engine.forget_local()
    warm = [engine.ask(tokens) for tokens in prompts]
    for expected, first, second in zip(stock, cold, warm, strict=True):
        assert first.same_as(expected)
        assert second.same_as(expected)
        assert second.kvext["pool_tokens"] == 288


def test_pool_outlives_the_engine(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    tokens = prompt(20)
    cold = engines.get(model, pool_options).ask(tokens)
    warm = engines.get(model, pool_options, fresh=True).ask(tokens)
    assert warm.kvext["pool_tokens"] == 384
    assert warm.same_as(cold)


def test_prompt_longer_than_what_is_cached_computes_only_the_rest(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine = engines.get(model, pool_options)
    shared = prompt(30, 256)
    engine.ask(shared)
    tokens = shared + prompt(31, 200)
    engine.forget_local()
    longer = engine.ask(tokens)
    assert longer.kvext["pool_tokens"] == 256
    with attached(pool_options) as pool:
        pool.clear()
    engine.forget_local()
    assert longer.same_as(engine.ask(tokens))


def test_local_hit_and_pool_hit_add_up(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine = engines.get(model, pool_options)
    tokens = prompt(40, 400)
    cold = engine.ask(tokens)
    engine.forget_local()
    engine.ask(tokens[:128] + prompt(41, 40))
    both = engine.ask(tokens)
    assert (both.kvext["local_tokens"], both.kvext["pool_tokens"]) == (128, 256)
    assert both.same_as(cold)


def test_answers_grow_the_cached_prefix(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine = engines.get(model, pool_options)
    tokens = prompt(50, 100)
    first = engine.ask(tokens, max_tokens=70)
    engine.forget_local()
    follow_up = tokens + list(first.tokens) + prompt(51, 10)
    second = engine.ask(follow_up)
    # The last sampled token's KV was never computed, so 169 of 170 tokens could be stored.
    assert second.kvext["pool_tokens"] == 160
    with attached(pool_options) as pool:
        pool.clear()
    engine.forget_local()
    assert second.same_as(engine.ask(follow_up))


def test_chunked_prefill_stores_and_loads_every_block(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine = engines.get(model, pool_options, max_num_batched_tokens=96, max_model_len=1024)
    tokens = prompt(60, 500)
    cold = engine.ask(tokens)
    engine.forget_local()
    warm = engine.ask(tokens)
    assert warm.kvext["pool_tokens"] == 480
    assert warm.same_as(cold)


def test_reset_of_the_engines_cache_leaves_the_pool_alone(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine = engines.get(model, pool_options)
    tokens = prompt(70)
    engine.ask(tokens)
    assert engine.llm.reset_prefix_cache(reset_connector=True)
    assert engine.ask(tokens).kvext["pool_tokens"] == 384


def test_many_requests_at_once_share_and_differ(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine = engines.get(model, pool_options)
    shared = prompt(80, 192)
    prompts = [shared + prompt(81 + index, 40) for index in range(8)]
    cold = engine.ask_all(prompts)
    engine.forget_local()
    warm = engine.ask_all(prompts)
    assert [answer.tokens for answer in warm] == [answer.tokens for answer in cold]
    assert sum(answer.kvext["pool_tokens"] for answer in warm) >= 192 + 8 * 32
    with attached(pool_options) as pool:
        assert pool.stat().num_pinned == 0
