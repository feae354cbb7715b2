"""Which vLLM engines kvext serves; the others run uncached, and one warning says why."""

from typing import TYPE_CHECKING, Any, cast

from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

from kvext.protocol.key import CHAIN_TOKENS

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

__all__ = ["attention_spec", "refusal"]

_TOKEN_DRAFTERS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Speculation that has no model, and so no KV, of its own."""


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
        or ""
    )


def attention_spec(kv_cache_config: "KVCacheConfig") -> FullAttentionSpec:
    """The one KV group's description; only for engines that are not refused."""
    spec = kv_cache_config.kv_cache_groups[0].kv_cache_spec
    return cast("FullAttentionSpec", spec)


def _refuse_parallelism(parallel_config: Any) -> str:
    for kind in ("tensor", "pipeline", "decode_context", "prefill_context"):
        size = getattr(parallel_config, f"{kind}_parallel_size", 1)
        if size > 1:
            name = kind.replace("_", "-")
            return f"{name} parallelism of {size} is not supported yet; use 1"
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
    if len(groups) != 1:
        return (
            f"a model with {len(groups)} KV groups (hybrid or sliding-window attention) is not "
            "supported yet; serve it without the connector"
        )
    spec = groups[0].kv_cache_spec
    if type(spec) not in (FullAttentionSpec, MLAAttentionSpec):
        return (
            f"attention of kind {type(spec).__name__} is not supported yet; serve it without the "
            "connector"
        )
    return _refuse_attention(spec)


def _refuse_attention(spec: FullAttentionSpec) -> str:
    if spec.sliding_window is not None or spec.attention_chunk_size is not None:
        return "windowed attention is not supported yet; serve it without the connector"
    if spec.non_causal:
        return "non-causal attention makes KV depend on later tokens; drop the connector"
    if spec.block_size % CHAIN_TOKENS:
        return f"block size {spec.block_size} is not a multiple of {CHAIN_TOKENS}; set --block-size"
    if spec.page_size_padded is not None:
        return "padded KV pages are not supported yet; serve it without the connector"
    if getattr(spec, "tokens_per_state", 1) != 1:
        return (
            f"KV that merges {spec.tokens_per_state} tokens into one is not supported yet; serve "
            "it without the connector"
        )
    return ""
