"""kvext in a vLLM worker: attaches to the pool and copies what each step's plan says."""

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

from kvext.assembly import open_pool
from kvext.config import Config
from kvext.connector.edge import Edge
from kvext.connector.joint_mover import JointMover
from kvext.connector.mover import AbsentMover, BlockMover, DirectMover
from kvext.connector.plan import AdapterGuard, StepPlan
from kvext.connector.ranks import own_loads
from kvext.connector.report import WorkerReport
from kvext.connector.shadow import unforeseeable
from kvext.connector.shadow_checks import ShadowChecks
from kvext.connector.transfers import LAYERWISE_FROM_BYTES, Transfers
from kvext.errors import KvextError
from kvext.pool import Pages, Pool, roam
from kvext.protocol.layout import RecordShape
from kvext.vllm.adapter_watch import AdapterWatch
from kvext.vllm.identity import model_label
from kvext.vllm.memory import EngineMemory, MemoryRefusal, describe_memory
from kvext.vllm.messages import KvextHandshake
from kvext.vllm.shadow import TorchVerifier, condemn, element_type
from kvext.vllm.staging import StagedMover
from kvext.vllm.support import drops_blocks, group_shapes, num_ranks, refusal

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

__all__ = ["WorkerSide"]


class WorkerSide:
    """One worker's end; does nothing until `open`, and nothing at all if that is refused."""

    def __init__(
        self,
        vllm_config: "VllmConfig",
        kv_cache_config: "KVCacheConfig",
        config: Config,
        edge: Edge,
    ) -> None:
        """Keep what `open` needs."""
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._config = config
        self._edge = edge
        self._num_ranks = num_ranks(vllm_config)
        self._rank = 0
        self._is_joint = drops_blocks(kv_cache_config)
        self._pool: Pool | None = None
        self._watch: AdapterWatch | None = None
        # One thread is enough: it copies natively, and its thread starts with the first load.
        # It leaves the core that vLLM has bound this thread to, where it would slow computing down.
        self._executor = ThreadPoolExecutor(1, "kvext-load", initializer=roam)
        self._comparer = ThreadPoolExecutor(1, "kvext-shadow", initializer=roam)
        self._transfers = self._make_transfers(AbsentMover())
        self.handshake = KvextHandshake(refusal="the worker could not attach; see its log")

    @property
    def is_shard(self) -> bool:
        """Whether other workers hold the rest of each block."""
        return self._num_ranks > 1

    def open(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """Attach to the pool, or note why this worker does not serve.

        Args:
            kv_caches: Layer name to `kv_BHNC`.
        """
        memory = self._find_memory(kv_caches)
        if isinstance(memory, MemoryRefusal):
            self.handshake = KvextHandshake(refusal=memory.reason)
            return
        label = f"{model_label(self._vllm_config)} worker"
        if self.is_shard:
            self._rank = get_tensor_model_parallel_rank()
            label += f" {self._rank}"
        try:
            pool = open_pool(self._config, memory.record_bytes, label)
        except KvextError as error:
            self.handshake = KvextHandshake(refusal=str(error))
            return
        self._pool = pool
        if self._vllm_config.lora_config is not None:
            self._watch = AdapterWatch()
            self._watch.open()
        shadow = None if memory.groups or self.is_shard else self._make_shadow(pool, memory)
        self._transfers = self._make_transfers(self._make_mover(pool, memory), shadow)
        group_bytes = tuple(group.record_bytes for group in memory.groups)
        self.handshake = KvextHandshake(memory.layout, memory.record_bytes, group_bytes)

    def start(self, plan: StepPlan) -> None:
        """Do the step's synchronous loads, or begin them, and begin its asynchronous ones."""
        self._transfers.start(
            own_loads(plan, self._rank, self._num_ranks) if self.is_shard else plan
        )

    def wait_for_layer(self, layer: str) -> None:
        """Return once the step may use a layer's KV."""
        self._transfers.wait_for_layer(layer)

    def overlap_from(self, num_bytes: float) -> None:
        """Let loads of this size and larger overlap computing; infinity stands for none."""
        self._transfers.layerwise_from_bytes = num_bytes
        self._transfers.layerwise_from_tokens = 0

    def pace_loads(self, bytes_per_s: float, latency_s: float = 0.0) -> None:
        """Model slower memory: see `Pool.pace_loads`."""
        if self._pool is not None:
            self._pool.pace_loads(bytes_per_s, latency_s)

    def save(self, plan: StepPlan) -> None:
        """Offer the step's blocks to the pool, after the forward pass."""
        self._transfers.save(plan)

    def finished(self) -> set[str]:
        """Requests whose asynchronous load has ended."""
        return self._transfers.finished()

    def failed(self) -> set[str]:
        """Requests of which the engine must compute all, because it cannot be told which block."""
        failed = self._transfers.take_failed_requests()
        return failed if self._is_joint else set()

    def take_failed_blocks(self) -> set[int]:
        """Blocks that the engine must recompute."""
        failed = self._transfers.take_failed_blocks()
        return set() if self._is_joint else failed

    def take_report(self) -> WorkerReport | None:
        """What happened since the last report."""
        return self._transfers.take_report(self._watch.take_news() if self._watch else ())

    def close(self) -> None:
        """Finish the copy that runs, detach from the pool."""
        self._transfers.close()
        for threads in (self._executor, self._comparer):
            threads.shutdown(wait=True, cancel_futures=True)
        self._transfers = self._make_transfers(AbsentMover())
        if self._watch is not None:
            self._watch.close()
        if self._pool is not None:
            self._pool.close()

    def _find_memory(self, kv_caches: Mapping[str, torch.Tensor]) -> EngineMemory | MemoryRefusal:
        reason = refusal(self._vllm_config, self._kv_cache_config)
        if reason:
            return MemoryRefusal(reason)
        return describe_memory(kv_caches, self._vllm_config, self._kv_cache_config)

    def _make_transfers(self, mover: BlockMover, shadow: ShadowChecks | None = None) -> Transfers:
        return Transfers(
            mover,
            self._edge,
            self._holds,
            time.monotonic,
            self._executor,
            load_wait_s=self._config.lease_s,
            layerwise_from_bytes=(
                math.inf if self._config.load == "blocking" else LAYERWISE_FROM_BYTES
            ),
            shadow=shadow,
        )

    def _make_shadow(self, pool: Pool, memory: EngineMemory) -> ShadowChecks:
        verifier = TorchVerifier(
            pool,
            memory.tensors,
            group_shapes(self._kv_cache_config)[0],
            element_type(self._vllm_config, memory.tensors[0]),
            unforeseeable,
        )
        release = f"kvext pool release {self._config.pool_name} --folder {pool.path.parent}"
        return ShadowChecks(verifier, partial(condemn, pool), self._edge, self._comparer, release)

    def _make_mover(self, pool: Pool, memory: EngineMemory) -> BlockMover:
        shapes = group_shapes(self._kv_cache_config)
        if self.is_shard:
            shapes = (replace(shapes[0], rank=self._rank, world=self._num_ranks),)
        if not memory.groups:
            return self._make_group_mover(pool, memory, shapes[0])
        movers = [
            self._make_group_mover(pool, group, shape)
            for group, shape in zip(memory.groups, shapes, strict=True)
        ]
        return JointMover(movers, memory.num_blocks)

    def _make_group_mover(self, pool: Pool, memory: EngineMemory, shape: RecordShape) -> BlockMover:
        if not memory.is_host:
            return StagedMover(pool, memory.tensors, shape)
        addresses = [tensor.data_ptr() for tensor in memory.tensors]
        pages = Pages(addresses, memory.piece_bytes, memory.num_blocks)
        return DirectMover(pool, pages, shape, memory.record_bytes, memory.layers)

    def _holds(self, guard: AdapterGuard) -> bool:
        return self._watch is not None and self._watch.holds(guard)
