"""What an engine's KV tensors are taken for: other bytes have other layouts, groups their own."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kvext.protocol.layout import KVLayout

torch = pytest.importorskip("torch", reason="needs the engine's tensor library")
interface: Any = pytest.importorskip("vllm.v1.kv_cache_interface", reason="needs the engine")

from kvext.vllm.memory import (  # noqa: E402 - after the skips
    EngineMemory,
    MemoryRefusal,
    describe_memory,
)

NUM_BLOCKS = 8
SIZES: dict[str, Any] = {"block_size": 32, "num_kv_heads": 4, "head_size": 32}
FP8 = interface.KVQuantMode.FP8_PER_TENSOR


def full(dtype: Any = torch.float32, **changes: Any) -> Any:
    return interface.FullAttentionSpec(**{**SIZES, "dtype": dtype, **changes})


def sliding(window: int) -> Any:
    return interface.SlidingWindowSpec(**SIZES, dtype=torch.float32, sliding_window=window)


def tensors_of(spec: Any, *names: str) -> dict[str, Any]:
    shape = interface.compute_layer_kv_cache_shape_bytes(spec, NUM_BLOCKS)
    return {name: torch.zeros(shape, dtype=torch.uint8).view(spec.dtype) for name in names}


def describe(
    caches: Mapping[str, Any],
    groups: list[tuple[Any, list[str]]],
    backend: str = "CPU_ATTN",
    cache_dtype: str = "auto",
    num_ranks: int = 1,
) -> EngineMemory | MemoryRefusal:
    layer = SimpleNamespace(attn_backend=SimpleNamespace(get_name=lambda: backend), isa="vec")
    vllm_config: Any = SimpleNamespace(
        parallel_config=SimpleNamespace(tensor_parallel_size=num_ranks),
        compilation_config=SimpleNamespace(static_forward_context=dict.fromkeys(caches, layer)),
        cache_config=SimpleNamespace(cache_dtype=cache_dtype),
    )
    kv_cache_config: Any = SimpleNamespace(
        num_blocks=NUM_BLOCKS,
        kv_cache_groups=[interface.KVCacheGroupSpec(names, spec) for spec, names in groups],
    )
    return describe_memory(caches, vllm_config, kv_cache_config)


def memory_of(*args: Any, **kwargs: Any) -> EngineMemory:
    memory = describe(*args, **kwargs)
    assert isinstance(memory, EngineMemory)
    return memory


def layout_of(
    spec: Any, backend: str = "CPU_ATTN", cache_dtype: str = "auto", num_ranks: int = 1
) -> KVLayout:
    groups = [(spec, ["a", "b"])]
    return memory_of(tensors_of(spec, "a", "b"), groups, backend, cache_dtype, num_ranks).layout


def test_every_type_of_kv_has_a_layout_of_its_own() -> None:
    latent = {"block_size": 32, "num_kv_heads": 1, "head_size": 576, "dtype": torch.bfloat16}
    packed = {**latent, "dtype": torch.uint8, "cache_dtype_str": "fp8_ds_mla"}
    layouts = [
        layout_of(full()),
        layout_of(full(), num_ranks=2),
        layout_of(full(), num_ranks=4),
        layout_of(full(torch.bfloat16)),
        layout_of(full(torch.float16)),
        layout_of(full(num_kv_heads=8, head_size=16)),
        layout_of(full(torch.uint8, kv_quant_mode=FP8), cache_dtype="fp8_e4m3"),
        layout_of(full(torch.uint8, kv_quant_mode=FP8), cache_dtype="fp8_e5m2"),
        layout_of(interface.MLAAttentionSpec(**latent), "AMX_MLA"),
        layout_of(interface.MLAAttentionSpec(**packed), "AMX_MLA", "fp8_ds_mla"),
    ]
    assert len({layout.canonical() for layout in layouts}) == len(layouts)


def test_latent_record_is_one_vector_a_token_and_layer() -> None:
    spec = interface.MLAAttentionSpec(
        block_size=32, num_kv_heads=1, head_size=576, dtype=torch.bfloat16
    )
    memory = memory_of(tensors_of(spec, "a", "b"), [(spec, ["a", "b"])], "AMX_MLA")
    assert (memory.record_bytes, memory.groups) == (2 * 32 * 576 * 2, ())
    assert (memory.layout.num_layers, memory.layout.head_size) == (2, 576)


def test_backend_without_context_is_refused() -> None:
    spec = interface.MLAAttentionSpec(
        block_size=32, num_kv_heads=1, head_size=576, dtype=torch.bfloat16
    )
    refused = describe(tensors_of(spec, "a"), [(spec, ["a"])], "CPU_MLA")
    assert isinstance(refused, MemoryRefusal)
    assert refused.reason.startswith("attention backend CPU_MLA cannot go on from KV")


def test_groups_over_the_same_memory_have_tensors_and_records_each() -> None:
    spec = full()
    caches = tensors_of(spec, "s1", "s2")
    caches |= {"f1": caches["s1"]}
    memory = memory_of(caches, [(sliding(64), ["s1", "s2"]), (spec, ["f1"])])
    piece = 32 * 4 * 64 * 4
    assert [group.record_bytes for group in memory.groups] == [2 * piece, piece]
    assert [len(group.tensors) for group in memory.groups] == [2, 1]
    assert memory.record_bytes == 2 * piece
    assert memory.layout.num_layers == 3


def test_layers_of_a_group_that_share_their_kv_are_stored_once() -> None:
    spec = full()
    caches = tensors_of(spec, "a", "b")
    caches |= {"c": caches["b"]}
    memory = memory_of(caches, [(sliding(64), ["a", "b", "c"])])
    assert len(memory.groups[0].tensors) == 2


def test_every_division_into_groups_has_a_layout_of_its_own() -> None:
    spec = full()
    caches = tensors_of(spec, "a", "b", "c")
    divisions = [
        [(spec, ["a", "b", "c"])],
        [(sliding(64), ["a", "b", "c"])],
        [(sliding(64), ["a", "b"]), (spec, ["c"])],
        [(sliding(32), ["a", "b"]), (spec, ["c"])],
        [(sliding(64), ["a", "c"]), (spec, ["b"])],
        [(spec, ["c"]), (sliding(64), ["a", "b"])],
        [(spec, ["a", "b"]), (spec, ["c"])],
    ]
    layouts = [memory_of(caches, groups).layout for groups in divisions]
    assert len({layout.canonical() for layout in layouts}) == len(layouts)


def test_group_of_unequal_tensors_is_refused() -> None:
    caches = tensors_of(full(), "a") | tensors_of(full(num_kv_heads=2), "b")
    refused = describe(caches, [(sliding(64), ["a", "b"]), (full(), [])])
    assert isinstance(refused, MemoryRefusal)
    assert refused.reason.startswith("layers whose KV tensors differ")
