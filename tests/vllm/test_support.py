"""Which engines are served, and what the others are told: a fact, its value and a remedy."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the engine")
interface: Any = pytest.importorskip("vllm.v1.kv_cache_interface", reason="needs the engine")

from kvext.protocol.layout import RecordShape  # noqa: E402 - after the skips
from kvext.vllm.support import (  # noqa: E402
    drops_blocks,
    group_shapes,
    refusal,
    window_tokens,
)

SIZES: dict[str, Any] = {
    "block_size": 32,
    "num_kv_heads": 4,
    "head_size": 32,
    "dtype": torch.float32,
}
FULL = interface.FullAttentionSpec(**SIZES)
SLIDING = interface.SlidingWindowSpec(**SIZES, sliding_window=64)
LATENT = interface.MLAAttentionSpec(**{**SIZES, "num_kv_heads": 1, "head_size": 576})


def groups_of(*specs: Any, **group: Any) -> Any:
    groups = [
        interface.KVCacheGroupSpec([f"layer.{number}"], spec, **group)
        for number, spec in enumerate(specs)
    ]
    return SimpleNamespace(kv_cache_groups=groups, num_blocks=8)


def ranks(num_ranks: int, **changes: Any) -> Any:
    parts = {"nnodes": 1, "distributed_executor_backend": "mp", **changes}
    return SimpleNamespace(tensor_parallel_size=num_ranks, **parts)


def engine(**changes: Any) -> Any:
    parts: dict[str, Any] = {
        "parallel_config": ranks(1),
        "model_config": SimpleNamespace(runner_type="generate"),
        "speculative_config": None,
        "weight_transfer_config": None,
    }
    return SimpleNamespace(**{**parts, **changes})


@pytest.mark.parametrize(
    "specs",
    [
        [FULL],
        [LATENT],
        [SLIDING],
        [SLIDING, SLIDING, FULL],
        [interface.FullAttentionSpec(**SIZES, sliding_window=64)],
        [interface.FullAttentionSpec(**{**SIZES, "dtype": torch.uint8})],
    ],
    ids=["full", "latent", "sliding", "mixed", "windowed-but-whole", "fp8"],
)
def test_attention_of_these_kinds_is_served(specs: list[Any]) -> None:
    assert refusal(engine(), groups_of(*specs)) == ""


def mamba() -> Any:
    return interface.MambaSpec(block_size=32, shapes=((4, 4),), dtypes=(torch.float32,))


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([], "the model keeps no KV; drop"),
        ([FULL, mamba()], "MambaSpec: linear attention keeps one state, not the KV of each token"),
        (
            [interface.ChunkedLocalAttentionSpec(**SIZES, attention_chunk_size=64)],
            "ChunkedLocalAttentionSpec: attention within chunks is not supported yet",
        ),
        (
            [interface.CrossAttentionSpec(**SIZES)],
            "CrossAttentionSpec: attention to an encoder depends on more than a prompt's tokens",
        ),
        (
            [interface.UniformTypeKVCacheSpecs(block_size=32, kv_cache_specs={"a": FULL})],
            "layers of one KV group that differ in size are not supported yet",
        ),
        (
            [interface.SlidingWindowMLASpec(**SIZES, sliding_window=64)],
            "SlidingWindowMLASpec: its KV is not known",
        ),
        (
            [interface.FullAttentionSpec(**SIZES, attention_chunk_size=64)],
            "attention within chunks of 64 tokens is not supported yet",
        ),
        (
            [interface.FullAttentionSpec(**SIZES, non_causal=True)],
            "non-causal attention makes KV depend on later tokens",
        ),
        (
            [interface.FullAttentionSpec(**{**SIZES, "block_size": 24})],
            "block size 24 is not a multiple of 16; set --block-size",
        ),
        (
            [interface.FullAttentionSpec(**SIZES, page_size_padded=1 << 20)],
            "KV pages padded to 1048576 bytes are not supported yet",
        ),
        (
            [interface.MLAAttentionSpec(**SIZES, tokens_per_state=4)],
            "KV that merges 4 tokens into one is not supported yet",
        ),
        (
            [FULL, interface.SlidingWindowSpec(**{**SIZES, "block_size": 64}, sliding_window=64)],
            "KV groups with blocks of 32 and 64 tokens are not supported yet",
        ),
        ([FULL] * 256, "256 KV groups are more than 255"),
    ],
)
def test_attention_of_other_kinds_is_refused_with_its_kind(specs: list[Any], expected: str) -> None:
    reason = refusal(engine(), groups_of(*specs))
    assert expected in reason
    assert "; " in reason, "a remedy"


@pytest.mark.parametrize("group", [{"host_resident": True}, {"enable_kv_transfer": False}])
def test_group_that_lies_elsewhere_is_refused(group: dict[str, bool]) -> None:
    assert "in host memory (layer.0 and others)" in refusal(engine(), groups_of(FULL, **group))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"parallel_config": ranks(2, nnodes=2)},
            "tensor parallelism of 2 over 2 hosts is not supported yet; use one host",
        ),
        (
            {"parallel_config": ranks(2, distributed_executor_backend="ray")},
            (
                "tensor parallelism of 2 with executor ray may span hosts, which is not supported "
                "yet; use --distributed-executor-backend mp"
            ),
        ),
        (
            {"parallel_config": ranks(256)},
            "tensor parallelism of 256 is more than 255; use fewer ranks",
        ),
        (
            {"parallel_config": ranks(1, decode_context_parallel_size=4)},
            "decode-context parallelism of 4 is not supported yet; use 1",
        ),
        (
            {"model_config": SimpleNamespace(runner_type="pooling")},
            "a pooling model has no KV worth keeping; drop the connector",
        ),
        (
            {"speculative_config": SimpleNamespace(method="eagle")},
            "speculation with a draft model (eagle) is not supported yet; use ngram or none",
        ),
        (
            {"weight_transfer_config": object()},
            "weights that are updated in place have no identity; drop weight_transfer_config",
        ),
    ],
)
def test_engine_that_cannot_be_served_says_why(changes: dict[str, Any], expected: str) -> None:
    assert refusal(engine(**changes), groups_of(FULL)) == expected


def test_ranks_of_one_host_are_served_unless_windows_drop_blocks() -> None:
    parallel = engine(parallel_config=ranks(2))
    assert refusal(parallel, groups_of(FULL)) == ""
    expected = "tensor parallelism of 2 with sliding windows is not supported yet; use 1"
    assert refusal(parallel, groups_of(SLIDING, FULL)) == expected


def test_speculation_without_a_model_is_served() -> None:
    speculation = SimpleNamespace(method="ngram")
    assert refusal(engine(speculative_config=speculation), groups_of(FULL)) == ""


def test_window_is_as_long_as_the_engine_keeps_its_blocks() -> None:
    lagging = interface.SlidingWindowSpec(**SIZES, sliding_window=64, extra_retained_tokens=3)
    assert [window_tokens(spec) for spec in (FULL, SLIDING, lagging)] == [None, 64, 67]


def test_groups_divide_a_block_into_parts() -> None:
    assert group_shapes(groups_of(FULL)) == (RecordShape(32),)
    assert group_shapes(groups_of(SLIDING, FULL)) == (RecordShape(32, 0, 2), RecordShape(32, 1, 2))
    assert not drops_blocks(groups_of(FULL))
    assert drops_blocks(groups_of(SLIDING))
    assert drops_blocks(groups_of(FULL, FULL))
