"""kvext in vLLM's scheduler: looks up and pins; copies nothing itself."""

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvext.assembly import open_pool
from kvext.config import Config
from kvext.connector.adapters import AdapterBook
from kvext.connector.edge import Edge
from kvext.connector.identity import DigestQueue, Identity, IdentityState, Ticket
from kvext.connector.namespaces import NamespaceBook
from kvext.connector.plan import SaveJob, StepPlan
from kvext.connector.planner import Planner
from kvext.connector.report import WorkerReport
from kvext.connector.rules import NO_MATCH, Match, PlanRules
from kvext.errors import KvextError
from kvext.pool import Pool, block_keys
from kvext.protocol.layout import KVLayout, RecordShape
from kvext.vllm.epoch import process_epoch
from kvext.vllm.identity import (
    adapter_digest,
    adapter_snapshot,
    engine_model_digest,
    model_label,
)
from kvext.vllm.messages import KvextHandshake
from kvext.vllm.requests import (
    VllmBlocks,
    ended_by_itself,
    extend_request_chain,
    scheduled_requests,
    subject_of,
    uncached_reason,
)
from kvext.vllm.support import attention_spec, refusal

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

__all__ = ["SchedulerSide"]

_logger = logging.getLogger(__name__)


class SchedulerSide:
    """The scheduler's end; answers "nothing" until the worker has attached."""

    def __init__(
        self,
        vllm_config: "VllmConfig",
        kv_cache_config: "KVCacheConfig",
        config: Config,
        edge: Edge,
    ) -> None:
        """Keep what `open` and `meet_worker` need."""
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._config = config
        self._edge = edge
        self._queue = DigestQueue(edge)
        self._model: Ticket | None = None
        self._blocks: VllmBlocks | None = None
        self._pool: Pool | None = None
        self._planner: Planner | None = None
        self._requests: dict[str, Request] = {}
        self._refusal = "no worker has attached"

    @property
    def refusal(self) -> str:
        """Why this engine runs uncached; empty if it does not."""
        return self._refusal

    def open(self) -> None:
        """Begin to digest the weights."""
        if refusal(self._vllm_config, self._kv_cache_config):
            return  # the worker finds the same and says so
        _logger.info("kvext: digesting the weights, so that only the same model shares its KV")
        epoch = process_epoch()
        self._model = self._queue.submit(lambda: engine_model_digest(self._vllm_config, epoch))

    def bind(self, manager: "KVCacheManager") -> None:
        """Learn where vLLM keeps its block tables."""
        self._blocks = VllmBlocks(manager)

    def meet_worker(self, handshake: KvextHandshake) -> None:
        """Attach to the pool as the worker did, or say why this engine runs uncached."""
        if handshake.layout is None or self._blocks is None or self._model is None:
            self._refuse(handshake.refusal)
            return
        try:
            pool = open_pool(
                self._config,
                handshake.record_bytes,
                f"{model_label(self._vllm_config)} scheduler",
            )
        except KvextError as error:
            self._refuse(str(error))
            return
        self._pool = pool
        self._planner = self._make_planner(
            pool, self._blocks, self._model, handshake.layout, handshake.record_bytes
        )
        self._refusal = ""
        self._await_digest(self._model)

    def begin(self, request: "Request") -> None:
        """Meet a new request."""
        if self._planner is None:
            return
        self._requests[request.request_id] = request
        transfer = self._vllm_config.kv_transfer_config
        reads = transfer is not None and transfer.is_kv_consumer
        self._planner.begin(
            request.request_id,
            request.all_token_ids,
            subject_of(request),
            uncached=uncached_reason(request),
            may_load=reads and not request.skip_reading_prefix_cache,
        )

    def match(self, request: "Request", num_computed: int) -> Match:
        """Look up what the pool has beyond vLLM's own hit."""
        if self._planner is None:
            return NO_MATCH
        return self._planner.match(request.request_id, num_computed, request.num_tokens)

    def allocate(self, request_id: str, block_ids: list[int], num_external: int) -> None:
        """Learn which blocks vLLM has given a request."""
        if self._planner is not None:
            self._planner.allocate(request_id, block_ids, num_external)

    def plan(self, output: "SchedulerOutput") -> StepPlan:
        """Make the step's plan; promised loads are in it whatever else goes wrong."""
        planner = self._planner
        if planner is None:
            return StepPlan()
        loads = planner.take_loads()
        nothing: tuple[SaveJob, ...] = ()
        saves = self._edge.attempt(
            "plan saves",
            lambda: planner.plan_saves(scheduled_requests(self._requests, output)),
            nothing,
        )
        self._edge.attempt("give pins back", planner.end_pass, None)
        return StepPlan(loads, saves, planner.failures_seen)

    def learn(self, report: WorkerReport) -> None:
        """Hear what the worker did."""
        if self._planner is not None:
            self._planner.learn(report)

    def take_report(self) -> None:
        """The scheduler does no transfers to tell of."""

    def finish(self, request: "Request", block_ids: list[int]) -> Mapping[str, object]:
        """Part from a request; returns its counts for the response."""
        self._requests.pop(request.request_id, None)
        if self._planner is None:
            return {"reason": self._refusal}
        return self._planner.finish(
            request.request_id, block_ids, is_complete=ended_by_itself(request)
        )

    def close(self) -> None:
        """Give all pins back and detach."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        self._queue.close()
        if self._pool is not None:
            self._pool.close()

    def _make_planner(
        self, pool: Pool, blocks: VllmBlocks, model: Ticket, layout: KVLayout, record_bytes: int
    ) -> Planner:
        transfer = self._vllm_config.kv_transfer_config
        rules = PlanRules(
            RecordShape(attention_spec(self._kv_cache_config).block_size),
            record_bytes,
            async_loads=self._config.load == "async",
            store=self._config.store and transfer is not None and transfer.is_kv_producer,
            lease_s=self._config.lease_s,
            adapter_wait_s=self._config.digest_wait_s,
        )
        namespaces = NamespaceBook(
            lambda: model.identity,
            layout,
            AdapterBook(self._queue, adapter_snapshot, adapter_digest),
            model_label(self._vllm_config),
            lambda digest, label: self._edge.attempt(
                "name a namespace", lambda: pool.name_namespace(digest, label), None
            ),
        )
        return Planner(
            pool, blocks, namespaces, rules, time.monotonic, extend_request_chain, block_keys
        )

    def _await_digest(self, model: Ticket) -> None:
        identity: Identity = model.wait(self._config.digest_wait_s)
        if identity.state is IdentityState.UNKNOWN:
            self._warn(identity.reason)
        elif identity.state is IdentityState.PENDING:
            _logger.warning(
                "kvext: the weights' digest is not ready after %g s; the engine serves uncached "
                "until it is. Raise digest_wait_s to wait longer",
                self._config.digest_wait_s,
            )

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        self._warn(reason)

    def _warn(self, reason: str) -> None:
        _logger.warning("kvext: this engine runs without the shared cache: %s", reason)
