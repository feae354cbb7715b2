"""What kvext relies on in vLLM, written down so that a changed vLLM is noticed before it is used.

None of it is a stable interface. Methods that kvext overrides must still exist with the same
parameters, functions that it calls must take its arguments, and what it reads must be there. If
anything of that is not so, the engine runs uncached and says which hook changed.
"""

from collections.abc import Iterator

from kvext.vllm.contract import Call, Read

__all__ = ["CALLED", "READ", "WRAPPED", "changed_hooks"]

_BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
_CONFIG = "vllm.config"

CALLED = (
    Call(
        f"{_BASE}:KVConnectorBase_V1",
        "__init__",
        ("self", "vllm_config", "role", "kv_cache_config"),
    ),
    Call(
        "vllm.distributed.kv_transfer.kv_connector.factory:KVConnectorFactory",
        "register_connector",
        ("name", "module_path", "class_name"),
    ),
    Call(
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics:KVConnectorPromMetrics",
        "__init__",
        ("self", "vllm_config", "metric_types", "labelnames", "per_engine_labelvalues"),
    ),
    Call("vllm.v1.core.kv_cache_manager:KVCacheManager", "get_block_ids", ("self", "request_id")),
    Call("vllm.v1.core.kv_cache_manager:KVCacheManager", "get_blocks", ("self", "request_id")),
    Call("vllm.v1.core.kv_cache_manager:KVCacheManager", "evict_blocks", ("self", "block_ids")),
    Call("vllm.v1.core.kv_cache_manager:KVCacheBlocks", "get_block_ids", ("self",)),
    Call(
        "vllm.v1.core.kv_cache_utils",
        "generate_block_hash_extra_keys",
        ("request", "start_token_idx", "end_token_idx", "start_mm_idx"),
    ),
    Call("vllm.v1.core.kv_cache_utils", "maybe_convert_block_hash", ("hash_bytes",)),
    Call("vllm.v1.core.kv_cache_utils", "to_event_extra_keys", ("extra_keys",)),
    Call("vllm.distributed.kv_transfer", "get_kv_transfer_group", ()),
    Call("vllm.distributed.parallel_state", "get_tensor_model_parallel_rank", ()),
    Call("vllm.v1.attention.backend:AttentionBackend", "get_name", ()),
    Call("vllm.platforms.interface:Platform", "get_device_name", ()),
    Call("vllm.platforms.interface:Platform", "fp8_dtype", ()),
    Call("vllm.utils.torch_utils", "current_stream", ()),
)

WRAPPED = (
    Call("vllm.lora.worker_manager:WorkerLoRAManager", "_load_adapter", ("self", "lora_request")),
    Call("vllm.v1.core.kv_cache_utils", "_gen_lora_extra_hash_keys", ("request",)),
    Call(
        "vllm.v1.engine.core:EngineCore",
        "collective_rpc",
        ("self", "method", "timeout", "args", "kwargs"),
    ),
    Call("vllm.v1.engine.core:EngineCore", "sleep", ("self", "level")),
)
"""Their wrappers look for themselves and say what is lost, so these alone refuse no engine."""

READ = (
    Read(f"{_BASE}:KVConnectorBase_V1", ("_connector_metadata", "_kv_transfer_config")),
    Read(f"{_BASE}:KVConnectorRole", ("SCHEDULER", "WORKER")),
    Read(
        "vllm.v1.request:Request",
        (
            "all_token_ids",
            "block_hashes",
            "cache_salt",
            "lora_request",
            "mm_features",
            "num_computed_tokens",
            "num_in_flight_tokens",
            "num_tokens",
            "pooling_params",
            "prompt_embeds",
            "prompt_is_token_ids",
            "request_id",
            "resumable",
            "session_id",
            "skip_reading_prefix_cache",
            "status",
        ),
    ),
    Read(
        "vllm.v1.request:RequestStatus",
        ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_REPETITION"),
    ),
    Read("vllm.lora.request:LoRARequest", ("lora_int_id", "lora_name", "lora_path")),
    Read(
        "vllm.v1.core.sched.output:SchedulerOutput",
        ("num_scheduled_tokens", "total_num_scheduled_tokens"),
    ),
    Read(
        "vllm.distributed.kv_events:BlockStored",
        (
            "block_hashes",
            "block_size",
            "extra_keys",
            "group_idx",
            "locality",
            "lora_id",
            "lora_name",
            "medium",
            "ownership",
            "parent_block_hash",
            "session_id",
            "token_ids",
        ),
    ),
    Read(
        "vllm.distributed.kv_events:BlockRemoved",
        ("block_hashes", "group_idx", "locality", "medium", "ownership"),
    ),
    Read("vllm.v1.outputs:KVConnectorOutput", ("kv_connector_worker_meta",)),
    Read("vllm.v1.core.kv_cache_manager:KVCacheManager", ("block_pool",)),
    Read("vllm.v1.core.block_pool:BlockPool", ("null_block", "num_gpu_blocks")),
    Read("vllm.v1.core.kv_cache_utils:KVCacheBlock", ("block_id",)),
    Read("vllm.v1.kv_cache_interface:KVCacheConfig", ("kv_cache_groups", "num_blocks")),
    Read(
        "vllm.v1.kv_cache_interface:KVCacheGroupSpec",
        ("enable_kv_transfer", "host_resident", "kv_cache_spec", "layer_names"),
    ),
    Read(
        "vllm.v1.kv_cache_interface:AttentionSpec",
        (
            "block_size",
            "dtype",
            "head_size",
            "head_size_v",
            "kv_quant_mode",
            "num_kv_heads",
            "page_size_padded",
            "tokens_per_state",
        ),
    ),
    Read("vllm.v1.kv_cache_interface:FullAttentionSpec", ("attention_chunk_size", "non_causal")),
    Read("vllm.v1.kv_cache_interface:MLAAttentionSpec", ("cache_dtype_str",)),
    Read(
        "vllm.v1.kv_cache_interface:SlidingWindowSpec", ("extra_retained_tokens", "sliding_window")
    ),
    Read(
        f"{_BASE}:KVConnectorTransferResults",
        ("failed_recving", "finished_recving", "finished_sending"),
    ),
    Read(
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics:KVConnectorPromMetrics",
        ("_counter_cls", "per_engine_labelvalues"),
    ),
    Read("vllm.distributed.kv_transfer.kv_connector.v1.metrics:KVConnectorStats", ("data",)),
    Read(
        f"{_CONFIG}:VllmConfig",
        (
            "cache_config",
            "compilation_config",
            "kv_events_config",
            "kv_transfer_config",
            "load_config",
            "lora_config",
            "model_config",
            "parallel_config",
            "scheduler_config",
            "speculative_config",
            "weight_transfer_config",
        ),
    ),
    Read(
        f"{_CONFIG}:ModelConfig",
        (
            "dtype",
            "hf_config",
            "max_model_len",
            "model",
            "model_weights",
            "quantization",
            "quantization_config",
            "revision",
            "runner_type",
            "served_model_name",
        ),
    ),
    Read(f"{_CONFIG}:LoadConfig", ("download_dir", "load_format")),
    Read(f"{_CONFIG}:LoRAConfig", ("lora_dtype",)),
    Read(f"{_CONFIG}:CacheConfig", ("cache_dtype",)),
    Read(f"{_CONFIG}:SchedulerConfig", ("async_scheduling",)),
    Read(f"{_CONFIG}:SpeculativeConfig", ("method",)),
    Read(f"{_CONFIG}:CompilationConfig", ("static_forward_context",)),
    Read(
        f"{_CONFIG}:ParallelConfig",
        (
            "decode_context_parallel_size",
            "distributed_executor_backend",
            "nnodes",
            "pipeline_parallel_size",
            "prefill_context_parallel_size",
            "tensor_parallel_size",
        ),
    ),
    Read(
        f"{_CONFIG}:KVTransferConfig",
        (
            "is_kv_consumer",
            "is_kv_producer",
            "kv_connector_extra_config",
            "kv_load_failure_policy",
        ),
    ),
)


def changed_hooks() -> Iterator[str]:
    """What vLLM no longer has, among all that kvext calls and reads."""
    yield from filter(None, (hook.change() for hook in (*CALLED, *READ)))
