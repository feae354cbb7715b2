"""Whatever a block holds, KV from the pool gives what the engine's own prefix cache gives.

An engine that goes on from cached KV rounds otherwise than one that computes a prompt as a whole,
so stock vLLM's answer after a local hit is what a pool hit must equal.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from kvext.testing.attention_models import tiny_deepseek
from kvext.testing.models import tiny_llama
from tests.engine.engines import Engines, prompt
from tests.engine.pools import attached
from tests.engine.test_identity_options import assert_apart

_NUM_TOKENS, _NUM_CACHED = 400, 384


def assert_pool_equals_stock(
    engines: Engines, folder: Path, options: dict[str, Any], **engine: Any
) -> None:
    """A pool hit answers as stock vLLM does after its own hit, and a cold one as it does cold."""
    tokens = prompt(700, _NUM_TOKENS)
    stock = engines.get(folder, None, **engine)
    cold, local = stock.ask(tokens), stock.ask(tokens)
    assert local.cached_tokens == _NUM_CACHED, "the control"
    ours = engines.get(folder, options, **engine)
    assert ours.ask(tokens).same_as(cold)
    ours.forget_local()
    warm = ours.ask(tokens)
    assert warm.kvext["pool_tokens"] == _NUM_CACHED
    assert warm.same_as(local)
    with attached(options) as pool:
        assert pool.stat().num_pinned == 0


def fp8_or_skip() -> None:
    if not torch.cpu._is_avx512_supported():  # noqa: SLF001 - as vLLM asks
        pytest.skip("vLLM's fp8 KV needs AVX-512 or AMX on a CPU")


@pytest.mark.parametrize("num_kv_heads", [8, 2, 1], ids=["multi_head", "grouped", "one_kv_head"])
def test_heads_may_share_keys_and_values_or_not(
    engines: Engines, tmp_path: Path, pool_options: dict[str, Any], num_kv_heads: int
) -> None:
    folder = tiny_llama(tmp_path / "heads", num_layers=2, num_kv_heads=num_kv_heads)
    options = {**pool_options, "pool_name": f"heads-{num_kv_heads}"}
    assert_pool_equals_stock(engines, folder, options)


@pytest.mark.parametrize("kv_cache_dtype", ["fp8_e4m3", "fp8_e5m2"])
def test_fp8_kv_comes_back_as_it_was_quantized(
    engines: Engines, model: Path, pool_options: dict[str, Any], kv_cache_dtype: str
) -> None:
    fp8_or_skip()
    options = {**pool_options, "pool_name": kv_cache_dtype}
    assert_pool_equals_stock(
        engines, model, options, dtype="bfloat16", kv_cache_dtype=kv_cache_dtype
    )


@pytest.mark.parametrize("other", [{"kv_cache_dtype": "fp8"}, {"dtype": "float16"}])
def test_kv_of_another_type_is_not_found(
    engines: Engines, model: Path, pool_options: dict[str, Any], other: dict[str, Any]
) -> None:
    fp8_or_skip()
    options = {**pool_options, "pool_name": "types"}
    assert_apart(engines, model, options, {"dtype": "bfloat16"}, {"dtype": "bfloat16", **other})


def test_latent_attention_hits(
    engines: Engines, tmp_path: Path, pool_options: dict[str, Any]
) -> None:
    if not torch.cpu._is_amx_tile_supported():  # noqa: SLF001 - as vLLM asks
        pytest.skip("vLLM's only CPU backend for latent attention with context needs AMX")
    options = {**pool_options, "pool_name": "latent"}
    assert_pool_equals_stock(engines, tiny_deepseek(tmp_path / "mla"), options, dtype="bfloat16")
