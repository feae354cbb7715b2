"""What a vLLM engine's configuration and its worker's memory mean to the planner."""

from typing import TYPE_CHECKING

from kvext.config import Config
from kvext.connector.rules import CacheGroup, PlanRules
from kvext.protocol.layout import RecordShape
from kvext.vllm.messages import KvextHandshake
from kvext.vllm.support import attention_spec, group_shapes, num_ranks, window_tokens

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

__all__ = ["plan_rules"]

_QUEUED_PART = 8
"""One of so many blocks of the pool may be pinned for this engine's queue."""


def plan_rules(
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    config: Config,
    handshake: KvextHandshake,
    *,
    num_extents: int,
    null_block: int,
) -> PlanRules:
    """Put together what does not change while the engine runs.

    Args:
        vllm_config: vLLM's configuration.
        kv_cache_config: How vLLM divides its KV memory.
        config: kvext's options.
        handshake: What the worker found.
        num_extents: Records that the pool can hold.
        null_block: What vLLM's tables hold in place of a block that it has dropped.
    """
    transfer = vllm_config.kv_transfer_config
    groups = _groups(kv_cache_config, handshake)
    ranks = num_ranks(vllm_config)
    # vLLM takes back one step when a synchronous load has failed. With asynchronous scheduling the
    # next one runs already; of several groups it cannot be told which block has failed; and one
    # rank must not compute on what another has failed to load.
    async_steps = bool(vllm_config.scheduler_config.async_scheduling)
    between = async_steps or bool(groups) or ranks > 1
    stores = config.store and transfer is not None and transfer.is_kv_producer
    return PlanRules(
        RecordShape(attention_spec(kv_cache_config).block_size),
        sum(handshake.group_bytes) or handshake.record_bytes * ranks,
        async_loads=between or config.load == "async",
        sync_loads=not between,
        store=stores,
        # What a window has dropped cannot be compared any more; nor does one rank's verdict bind
        # the others.
        shadow_share=config.shadow_share if stores and not groups and ranks == 1 else 0.0,
        always_load=config.always_load,
        lease_s=config.lease_s,
        adapter_wait_s=config.digest_wait_s,
        # Pins for the queue would be for whole prefixes, which windows do not need.
        queued_blocks=0 if groups else num_extents // ranks // _QUEUED_PART,
        groups=groups,
        null_block=null_block,
    )


def _groups(kv_cache_config: "KVCacheConfig", handshake: KvextHandshake) -> tuple[CacheGroup, ...]:
    """The KV groups, if the worker moves them one by one."""
    if not handshake.group_bytes:
        return ()
    parts = zip(group_shapes(kv_cache_config), handshake.group_bytes, strict=True)
    return tuple(
        CacheGroup(shape, num_bytes, window_tokens(attention_spec(kv_cache_config, number)))
        for number, (shape, num_bytes) in enumerate(parts)
    )
