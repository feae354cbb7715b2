"""kvext in vLLM's scheduler: looks up and pins; copies nothing itself."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kvext.assembly import make_store_judge, open_pool
from kvext.config import Config
from kvext.connector.adapters import AdapterBook
from kvext.connector.edge import Edge
from kvext.connector.group_keys import GroupKeys
from kvext.connector.identity import DigestQueue, Identity, IdentityState
from kvext.connector.namespaces import NamespaceBook
from kvext.connector.plan import SaveJob, StepPlan
from kvext.connector.planner import Planner
from kvext.connector.ranks import AllRanks, RankReports
from kvext.connector.report import WorkerReport
from kvext.connector.rules import NO_MATCH, Match, Matcher
from kvext.errors import KvextError
from kvext.pool import Pool, block_keys, extend_chain, extend_keys
from kvext.protocol.layout import KVLayout
from kvext.vllm.adapter_hashes import AdapterHashes
from kvext.vllm.epoch import process_epoch
from kvext.vllm.identity import (
    adapter_digest,
    adapter_snapshot,
    model_label,
)
from kvext.vllm.kv_events import PoolEvents, open_events
from kvext.vllm.messages import KvextHandshake
from kvext.vllm.model_identity import ModelIdentity
from kvext.vllm.requests import (
    VllmBlocks,
    ended_by_itself,
    subject_of,
    uncached_reason,
    unread_reason,
)
from kvext.vllm.rules import plan_rules
from kvext.vllm.support import num_ranks, refusal
from kvext.vllm.weights_watch import WeightsWatch

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
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
        self._model: ModelIdentity | None = None
        self._watch: WeightsWatch | None = None
        self._blocks: VllmBlocks | None = None
        self._pool: Pool | None = None
        self._planner: Planner | None = None
        self._hashes: AdapterHashes | None = None
        self._events: PoolEvents | None = None
        self._requests: dict[str, Request] = {}
        self._num_ranks = num_ranks(vllm_config)
        self._ranks = RankReports(self._num_ranks)
        self._counted: WorkerReport | None = None
        transfer = vllm_config.kv_transfer_config
        self._reads = transfer is not None and transfer.is_kv_consumer
        self._has_met = False
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
        model = ModelIdentity(self._vllm_config, self._queue, process_epoch())
        self._watch = WeightsWatch(
            self._edge,
            lambda what, can_return: self._forget_weights(model, what, can_return=can_return),
            model.reload,
        )
        if self._watch.open():
            self._model = model

    def bind(self, manager: "KVCacheManager") -> None:
        """Learn where vLLM keeps its block tables."""
        self._blocks = VllmBlocks(manager, self._requests)

    def meet_worker(self, handshake: KvextHandshake, *, is_late: bool = False) -> None:
        """Attach to the pool as the worker did, or say why this engine runs uncached.

        Args:
            handshake: The worker's.
            is_late: Whether the engine serves already, so that nothing may be awaited.
        """
        self._has_met = True
        if handshake.layout is None or self._blocks is None or self._model is None:
            self._refuse(handshake.refusal or "its weights cannot be watched")
            return
        if handshake.num_ranks != self._num_ranks:
            self._refuse(
                f"{handshake.num_ranks} of {self._num_ranks} ranks told of their KV; see their logs"
            )
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
        matcher = pool if self._num_ranks == 1 else AllRanks(pool, self._num_ranks)
        self._planner = self._make_planner(
            pool, matcher, self._blocks, self._model, handshake.layout, handshake
        )
        self._refusal = ""
        self._events = open_events(self._vllm_config, self._kv_cache_config, matcher)
        if self._vllm_config.lora_config is not None:
            self._hashes = AdapterHashes(self._edge)
            self._hashes.open()
        self._await_digest(self._model, 0 if is_late else self._config.digest_wait_s)

    def meet_late(self, handshake: KvextHandshake) -> None:
        """Meet the worker by its first report, if another connector's handshake came instead.

        What the engine has computed or loaded by then, nobody has watched.
        """
        if self._planner is None and not self._has_met:
            self.meet_worker(handshake, is_late=True)
            if self._planner is not None:
                self._planner.distrust_memory()

    def begin(self, request: "Request") -> None:
        """Meet a new request."""
        if self._planner is None:
            return
        self._requests[request.request_id] = request
        self._planner.begin(
            request.request_id,
            request.all_token_ids,
            subject_of(request),
            uncached=uncached_reason(request, num_ranks=self._num_ranks),
            unread=unread_reason(request, reads=self._reads),
        )

    def match(self, request: "Request", num_computed: int) -> Match:
        """Look up what the pool has beyond vLLM's own hit."""
        if self._planner is None:
            return NO_MATCH
        return self._planner.match(request.request_id, num_computed, request.num_tokens)

    def allocate(
        self, request_id: str, block_ids: Callable[[], Sequence[int]], num_external: int
    ) -> None:
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
        counts = output.num_scheduled_tokens
        saves = self._edge.attempt("plan saves", planner.plan_saves, nothing, counts)
        if saves and self._events is not None:
            self._edge.attempt("name saves in events", self._name_saves, None, self._events, saves)
        self._edge.attempt("give pins back", planner.end_pass, None)
        num_tokens = output.total_num_scheduled_tokens
        step = planner.tradeoff.plan_step(num_tokens, len(counts))
        return StepPlan(
            loads, saves, planner.failures_seen, step, planner.weights_epoch, num_tokens
        )

    def _name_saves(self, events: PoolEvents, saves: Sequence[SaveJob]) -> None:
        for job in saves:
            events.offer(self._requests[job.request_id], job)

    def learn(self, report: WorkerReport) -> None:
        """Hear what the worker did."""
        if self._num_ranks > 1:
            report = self._ranks.join(report)
            self._counted = report if self._counted is None else self._counted.merged(report)
        if self._planner is not None:
            self._planner.learn(report)
        if self._hashes is not None:
            for read in report.adapters:
                self._hashes.note(read)
        if self._events is not None:
            for store in report.stores:
                self._events.learn(store)

    def take_events(self) -> "list[KVCacheEvent]":
        """What came to the pool and what left it since the last call."""
        return [] if self._events is None else self._events.take()

    def take_report(self) -> WorkerReport | None:
        """What is counted here since the last call: decisions, and what several ranks did."""
        counted, self._counted = self._counted, None
        decided = None if self._planner is None else self._planner.decisions.take()
        return counted.merged(decided) if counted and decided else counted or decided

    def finish(self, request: "Request", block_ids: list[int]) -> dict[str, object]:
        """Part from a request; returns its counts for the response."""
        self._requests.pop(request.request_id, None)
        if self._planner is None:
            return {"reason": self._refusal}
        is_complete = ended_by_itself(request)
        return self._planner.finish(request.request_id, block_ids, is_complete=is_complete)

    def close(self) -> None:
        """Give all pins back and detach."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if self._watch is not None:
            self._watch.close()
        if self._hashes is not None:
            self._hashes.close()
        self._queue.close()
        if self._pool is not None:
            self._pool.close()

    def _forget_weights(self, model: ModelIdentity, what: str, *, can_return: bool) -> None:
        reason = model.forget(what, can_return=can_return)
        if self._planner is not None:
            self._planner.change_weights(reason)

    def _make_planner(
        self,
        pool: Pool,
        matcher: Matcher,
        blocks: VllmBlocks,
        model: ModelIdentity,
        layout: KVLayout,
        handshake: KvextHandshake,
    ) -> Planner:
        rules = plan_rules(
            self._vllm_config,
            self._kv_cache_config,
            self._config,
            handshake,
            num_extents=pool.num_extents,
            null_block=blocks.null_block,
        )
        namespaces = NamespaceBook(
            lambda: model.identity,
            layout,
            AdapterBook(
                self._queue,
                adapter_snapshot,
                lambda path: adapter_digest(path, self._vllm_config.lora_config),
            ),
            model_label(self._vllm_config),
            partial(self._name_namespace, pool),
        )
        make_group_keys = partial(
            GroupKeys,
            num_groups=len(rules.groups),
            extend_links=extend_chain,
            block_keys=block_keys,
        )
        return Planner(
            matcher,
            blocks,
            namespaces,
            rules,
            time.monotonic,
            extend_keys,
            make_group_keys,
            judge=make_store_judge(self._config, pool, rules.shape.block_tokens),
        )

    def _name_namespace(self, pool: Pool, digest: bytes, label: str, weights: bytes) -> bool:
        def name() -> bool:
            pool.name_namespace(digest, label, weights)
            return True

        was_named = False
        return self._edge.attempt("name a namespace", name, was_named)

    def _await_digest(self, model: ModelIdentity, wait_s: float) -> None:
        identity: Identity = model.wait(wait_s)
        if identity.state is IdentityState.UNKNOWN:
            self._warn(identity.reason)
        elif identity.state is IdentityState.PENDING:
            _logger.warning(
                "kvext: the weights' digest is not ready after %g s; the engine serves uncached "
                "until it is. Raise digest_wait_s to wait longer",
                wait_s,
            )

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        self._warn(reason)

    def _warn(self, reason: str) -> None:
        _logger.warning("kvext: this engine runs without the shared cache: %s", reason)
