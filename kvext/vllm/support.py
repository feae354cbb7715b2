"""Which vLLM engines kvext serves; the others run uncached, and one warning says why."""

from typing import TYPE_CHECKING, Any, cast

from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

from kvext.protocol.key import CHAIN_TOKENS
from kvext.protocol.layout import MAX_PARTS, RecordShape

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

__all__ = [
    "attention_spec",
    "drops_blocks",
    "group_shapes",
    "num_ranks",
    "refusal",
    "window_tokens",
]

_TOKEN_DRAFTERS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Speculation that has no model, and so no KV, of its own."""

_SERVED = (FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec)

_STRANGERS = {
    "MambaSpec": "linear attention keeps one state, not the KV of each token",
    "ChunkedLocalAttentionSpec": "attention within chunks is not supported yet",
    "CrossAttentionSpec": "attention to an encoder depends on more than a prompt's tokens",
    "EncoderOnlyAttentionSpec": "an encoder keeps no KV",
    "UniformTypeKVCacheSpecs": "layers of one KV group that differ in size are not supported yet",
}


def refusal(vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig") -> str:
    """Say why an engine cannot be served, or nothing.

    Args:
        vllm_config: vLLM's configuration.
        kv_cache_config: How vLLM divides its KV memory.

    Returns:
        A fact, its value and a remedy; empty if the engine is served.
    """
    return (
        _refuse_parallelism(vllm_config.parallel_config)
        or _refuse_model(vllm_config)
        or _refuse_groups(kv_cache_config)
        or _refuse_ranks(vllm_config, kv_cache_config)
        or ""
    )


def num_ranks(vllm_config: "VllmConfig") -> int:
    """Workers of which each has a shard of every block."""
    return int(vllm_config.parallel_config.tensor_parallel_size)


def attention_spec(kv_cache_config: "KVCacheConfig", group: int = 0) -> AttentionSpec:
    """One KV group's description; only for engines that are not refused."""
    return cast("AttentionSpec", kv_cache_config.kv_cache_groups[group].kv_cache_spec)


def window_tokens(spec: AttentionSpec) -> int | None:
    """Tokens whose blocks a group keeps, the newest included; None if it keeps all."""
    if not isinstance(spec, SlidingWindowSpec):
        return None
    return int(spec.sliding_window + spec.extra_retained_tokens)


def drops_blocks(kv_cache_config: "KVCacheConfig") -> bool:
    """Whether an engine has several KV groups, or one that drops what its window has passed."""
    groups = kv_cache_config.kv_cache_groups
    return len(groups) > 1 or window_tokens(groups[0].kv_cache_spec) is not None


def group_shapes(kv_cache_config: "KVCacheConfig") -> tuple[RecordShape, ...]:
    """Which records hold each group's part of a block."""
    groups = kv_cache_config.kv_cache_groups
    return tuple(
        RecordShape(group.kv_cache_spec.block_size, rank, len(groups))
        for rank, group in enumerate(groups)
    )


def _refuse_parallelism(parallel_config: Any) -> str:
    for kind in ("pipeline", "decode_context", "prefill_context"):
        size = getattr(parallel_config, f"{kind}_parallel_size", 1)
        if size > 1:
            name = kind.replace("_", "-")
            return f"{name} parallelism of {size} is not supported yet; use 1"
    return ""


def _refuse_ranks(vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig") -> str:
    size = num_ranks(vllm_config)
    if size == 1:
        return ""
    parallel_config = vllm_config.parallel_config
    fact = f"tensor parallelism of {size}"
    if size > MAX_PARTS:
        return f"{fact} is more than {MAX_PARTS}; use fewer ranks"
    if parallel_config.nnodes > 1:
        return f"{fact} over {parallel_config.nnodes} hosts is not supported yet; use one host"
    executor = parallel_config.distributed_executor_backend
    if executor != "mp":
        return (
            f"{fact} with executor {executor} may span hosts, which is not supported yet; use "
            "--distributed-executor-backend mp"
        )
    if drops_blocks(kv_cache_config):
        return f"{fact} with sliding windows is not supported yet; use 1"
    return ""


def _refuse_model(vllm_config: "VllmConfig") -> str:
    model_config = vllm_config.model_config
    speculation = vllm_config.speculative_config
    if model_config.runner_type == "pooling":
        return "a pooling model has no KV worth keeping; drop the connector"
    if speculation is not None and speculation.method not in _TOKEN_DRAFTERS:
        return (
            f"speculation with a draft model ({speculation.method}) is not supported yet; use "
            "ngram or none"
        )
    if vllm_config.weight_transfer_config is not None:
        return "weights that are updated in place have no identity; drop weight_transfer_config"
    return ""


def _refuse_groups(kv_cache_config: "KVCacheConfig") -> str:
    groups = kv_cache_config.kv_cache_groups
    if not groups:
        return "the model keeps no KV; drop the connector"
    if len(groups) > MAX_PARTS:
        return f"{len(groups)} KV groups are more than {MAX_PARTS}; serve it without the connector"
    reason = next(filter(None, map(_refuse_group, groups)), "")
    sizes = sorted({group.kv_cache_spec.block_size for group in groups})
    if not reason and len(sizes) > 1:
        return (
            f"KV groups with blocks of {' and '.join(map(str, sizes))} tokens are not supported "
            "yet; serve it without the connector"
        )
    return reason


def _refuse_group(group: Any) -> str:
    spec = group.kv_cache_spec
    if type(spec) not in _SERVED:
        kind = type(spec).__name__
        why = _STRANGERS.get(kind, "its KV is not known")
        return f"attention of kind {kind}: {why}; serve it without the connector"
    if group.host_resident or not group.enable_kv_transfer:
        return (
            f"a KV group that vLLM keeps in host memory ({group.layer_names[0]} and others) is not "
            "supported yet; serve it without the connector"
        )
    return _refuse_attention(spec)


def _refuse_attention(spec: AttentionSpec) -> str:
    if getattr(spec, "attention_chunk_size", None) is not None:
        return (
            f"attention within chunks of {spec.attention_chunk_size} tokens is not supported yet; "
            "serve it without the connector"
        )
    if getattr(spec, "non_causal", False):
        return "non-causal attention makes KV depend on later tokens; drop the connector"
    if spec.block_size % CHAIN_TOKENS:
        return f"block size {spec.block_size} is not a multiple of {CHAIN_TOKENS}; set --block-size"
    if spec.page_size_padded is not None:
        return (
            f"KV pages padded to {spec.page_size_padded} bytes are not supported yet; serve it "
            "without the connector"
        )
    if spec.tokens_per_state != 1:
        return (
            f"KV that merges {spec.tokens_per_state} tokens into one is not supported yet; serve "
            "it without the connector"
        )
    return ""
