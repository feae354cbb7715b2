"""`KvextConnector`: vLLM's connector interface, translated and nothing more.

vLLM makes one in its scheduler process and one in its worker. Every call goes through an
`Edge`, so that a fault of ours is a miss for vLLM, never an error.
"""

import functools
import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)

from kvext.config import load_config
from kvext.connector.edge import Edge
from kvext.connector.plan import StepPlan
from kvext.connector.report import WorkerReport
from kvext.connector.rules import NO_MATCH
from kvext.vllm.company import is_handshake_free, response_name
from kvext.vllm.compat import host_hit_source, is_tested
from kvext.vllm.epoch import mark_idle
from kvext.vllm.messages import KvextHandshake, KvextPlan, KvextReport
from kvext.vllm.scheduler_side import SchedulerSide
from kvext.vllm.stats import KvextMetrics, KvextStats
from kvext.vllm.worker_side import WorkerSide

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
        KVConnectorPromMetrics,
        KVConnectorStats,
    )
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

__all__ = ["KvextConnector"]

_logger = logging.getLogger(__name__)


class KvextConnector(KVConnectorBase_V1, SupportsHMA):
    """Keeps vLLM's KV in a pool of memory that other engines of the host share."""

    _cache_hit_source = host_hit_source()

    def __init__(
        self, vllm_config: "VllmConfig", role: KVConnectorRole, kv_cache_config: "KVCacheConfig"
    ) -> None:
        """Read the options; in the scheduler, begin to digest the weights.

        Raises:
            ConfigError: An option is unknown or impossible; the engine does not start.
        """
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = self._kv_transfer_config
        config = load_config(transfer.kv_connector_extra_config)
        self._pool_name = config.pool_name
        self._edge = Edge()
        self._told_faults: Counter[str] = Counter()
        self._stats = KvextStats()
        self._report: WorkerReport | None = None
        self._handshake: KvextHandshake | None = None
        self._response_name = "kvext"
        self._side: WorkerSide | SchedulerSide
        if role is KVConnectorRole.WORKER:
            self._side = self._worker = WorkerSide(vllm_config, kv_cache_config, config, self._edge)
            return
        self._side = self._scheduler = SchedulerSide(
            vllm_config, kv_cache_config, config, self._edge
        )
        self._edge.attempt("begin the digest", self._scheduler.open, None)
        if not is_tested():
            _logger.info("kvext: not tested with this vLLM, but every hook is as in one that is")
        if transfer.kv_load_failure_policy != "recompute":
            _logger.warning(
                "kvext: kv_load_failure_policy is %r, so a block that cannot be loaded fails its "
                'request; set it to "recompute"',
                transfer.kv_load_failure_policy,
            )

    @property
    @override
    def requires_kv_delivery(self) -> bool:
        return False

    # Worker process

    @override
    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._edge.attempt("attach to the pool", lambda: self._worker.open(kv_caches), None)
        self._handshake = self._worker.handshake

    @override
    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return self._worker.handshake if is_handshake_free(self, get_kv_transfer_group()) else None

    @override
    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        self._worker.start(self._bound_plan())

    @override
    def wait_for_layer_load(self, layer_name: str) -> None:
        self._worker.wait_for_layer(layer_name)

    @override
    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: "AttentionMetadata",
        **kwargs: Any,
    ) -> None:
        """Blocks are saved whole, after the forward pass."""

    @override
    def wait_for_save(self) -> None:
        plan = self._bound_plan()
        self._edge.attempt("save blocks", self._worker.save, None, plan)

    @override
    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return None, self._worker.finished() or None

    @override
    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        finished = self._worker.finished()
        return KVConnectorTransferResults(set(), finished, self._worker.failed())

    @override
    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.take_failed_blocks()

    @override
    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        self._collect()
        report, self._report = self._report, None
        handshake, self._handshake = self._handshake, None
        if report is None and handshake is None:
            return None
        return KvextReport(report or WorkerReport((), (), 0), handshake)

    # Scheduler process

    @override
    def set_xfer_handshake_metadata(
        self, metadata: dict[int, KVConnectorHandshakeMetadata]
    ) -> None:
        met = [value for value in metadata.values() if isinstance(value, KvextHandshake)]
        if met:
            joined = functools.reduce(KvextHandshake.joined, met)
            self._edge.attempt(
                "attach to the pool", lambda: self._scheduler.meet_worker(joined), None
            )

    @override
    def bind_kv_cache_manager(self, kv_cache_manager: "KVCacheManager") -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduler.bind(kv_cache_manager)
        self._response_name = response_name(kv_cache_manager, self._pool_name)

    @override
    def on_new_request(self, request: "Request") -> None:
        self._edge.attempt("meet a request", self._scheduler.begin, None, request)

    @override
    def get_num_new_matched_tokens(
        self, request: "Request", num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        match = self._edge.attempt(
            "look up a request", self._scheduler.match, NO_MATCH, request, num_computed_tokens
        )
        return (None if match.must_wait else match.num_tokens), match.is_async

    @override
    def update_state_after_alloc(
        self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int
    ) -> None:
        self._edge.attempt(
            "plan a load",
            self._scheduler.allocate,
            None,
            request.request_id,
            lambda: blocks.get_block_ids()[0],
            num_external_tokens,
        )

    @override
    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        return KvextPlan(self._scheduler.plan(scheduler_output))

    @override
    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, KvextReport):
            handshake = meta.handshake
            if handshake is not None:
                self._edge.attempt(
                    "attach to the pool", lambda: self._scheduler.meet_late(handshake), None
                )
            self._edge.attempt("learn from the worker", self._scheduler.learn, None, meta.report)

    @override
    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        ids = block_ids[0] if block_ids else []
        nothing: dict[str, object] = {}
        counts = self._edge.attempt(
            "part from a request", self._scheduler.finish, nothing, request, ids
        )
        return False, {self._response_name: counts}

    @override
    def take_events(self) -> "Iterable[KVCacheEvent]":
        nothing: list[KVCacheEvent] = []
        return self._edge.attempt("tell of the pool", self._scheduler.take_events, nothing)

    @override
    def reset_cache(self) -> bool:
        _logger.info("kvext: the pool is shared and keeps its blocks; see `kvext pool clear`")
        return True

    # Both

    @override
    def get_kv_connector_stats(self) -> "KVConnectorStats | None":
        self._collect()
        if self._edge.failures:
            faults = self._edge.failures - self._told_faults
            self._told_faults += faults
            self._stats.add_reasons("faults", faults)
        stats, self._stats = self._stats, KvextStats()
        return None if stats.is_empty() else stats

    @classmethod
    @override
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> "KVConnectorStats | None":
        return KvextStats(data=data or {})

    @classmethod
    @override
    def build_prom_metrics(
        cls,
        vllm_config: "VllmConfig",
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> "KVConnectorPromMetrics | None":
        return KvextMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @override
    def shutdown(self) -> None:
        self._edge.attempt("shut down", self._side.close, None)
        mark_idle()

    def _collect(self) -> None:
        """Take what the worker has done into the statistics and the next report."""
        report = self._side.take_report()
        if report is not None:
            is_worker = self.role is KVConnectorRole.WORKER
            if not (is_worker and self._worker.is_shard):  # of shards the scheduler counts blocks
                self._stats.aggregate(KvextStats.of(report))
            if is_worker:
                self._report = report if self._report is None else self._report.merged(report)

    def _bound_plan(self) -> StepPlan:
        meta = self._connector_metadata
        return meta.plan if isinstance(meta, KvextPlan) else StepPlan()
