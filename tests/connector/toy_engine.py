"""An engine small enough to be checked: paged KV, prefix cache, preemption, failed loads.

A block's bytes are a hash of its tokens and of all blocks before it as they lie in memory, so
garbage spreads as it does in a transformer. Scheduling follows vLLM: a request is looked up
while nothing of it is computed, failed blocks truncate it, a step's results may be heard of
only after later steps were planned (`lag`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from kvext.connector.adapters import AdapterBook
from kvext.connector.admission import StoreJudge
from kvext.connector.edge import Edge
from kvext.connector.identity import DigestQueue, Identity
from kvext.connector.mover import DirectMover
from kvext.connector.namespaces import NamespaceBook, Subject
from kvext.connector.plan import StepPlan
from kvext.connector.planner import Planner
from kvext.connector.report import WorkerReport
from kvext.connector.rules import Matcher, PlanRules
from kvext.connector.shadow_checks import ShadowChecks
from kvext.connector.transfers import Transfers
from kvext.protocol.digest import WeightsSnapshot
from kvext.testing.tier import FakePages, FakeTier
from tests.connector.attentive import AttentivePlanner
from tests.connector.toy_parts import (
    BLOCK_TOKENS,
    LAYERS,
    LAYOUT,
    MODEL,
    PIECE_BYTES,
    SHAPE,
    ManualClock,
    ManualExecutor,
    ToyVerifier,
    block_bytes,
    extend_keys,
)

PROMPT = list(range(100, 100 + 5 * BLOCK_TOKENS + 3))
"""Five full blocks and three tokens."""


@dataclass
class ToyRequest:
    request_id: str
    tokens: list[int]
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    is_loading: bool = False
    is_running: bool = False
    num_stale_steps: int = 0


@dataclass
class StepResult:
    num_scheduled: dict[str, int]
    failed_blocks: set[int]
    finished_loads: set[str]
    report: WorkerReport | None


def no_adapter(path: str) -> WeightsSnapshot:
    raise AssertionError(path)


class ToyEngine:
    """Planner and transfers around a toy forward pass.

    Attributes:
        queued_blocks: Most blocks that are pinned for requests that it cannot admit yet.
        waits: Whether it waits for each layer before it computes.
        judge: Says what is worth storing.
    """

    queued_blocks = 0
    judge: StoreJudge | None = None

    def __init__(  # noqa: PLR0913 - each argument is one circumstance
        self,
        tier: FakeTier,
        *,
        num_blocks: int = 32,
        async_loads: bool = False,
        lag: int = 0,
        chunk_blocks: int = 4,
        token_s: float = 0.0,
        clock: ManualClock | None = None,
        layerwise: bool = False,
        shadow_share: float = 0.0,
    ) -> None:
        self.condemned: list[bytes] = []
        self._comparer = ManualExecutor()
        self._shadow_share = shadow_share
        self.tier = tier
        self.clock = clock or ManualClock()
        self._token_s = token_s
        self.requests: dict[str, ToyRequest] = {}
        self.responses: dict[str, dict[str, object]] = {}
        self.forgotten: set[int] = set()
        self.edge = Edge()
        self.waits = True
        self._pages = FakePages(
            tuple(np.zeros((num_blocks, PIECE_BYTES // len(LAYERS)), np.uint8) for _ in LAYERS)
        )
        self._free = deque(range(num_blocks))
        self._owners: dict[int, int] = {}
        self._cached: dict[tuple[int, ...], int] = {}
        self._lag = lag
        self._chunk_blocks = chunk_blocks
        self._results: deque[StepResult] = deque()
        self._executor = ManualExecutor()
        layers = LAYERS if layerwise else {}
        mover = DirectMover(tier, self._pages, SHAPE, PIECE_BYTES, layers)
        verifier = ToyVerifier(tier, self._pages)
        self.transfers = Transfers(
            mover,
            self.edge,
            lambda _: True,
            self.clock,
            self._executor,
            layerwise_from_bytes=PIECE_BYTES,
            layerwise_from_tokens=0,
            shadow=ShadowChecks(verifier, self._condemn, self.edge, self._comparer),
        )
        self.planner = self._make_planner(async_loads=async_loads)

    def _make_planner(self, *, async_loads: bool) -> Planner:
        adapters = AdapterBook(DigestQueue(self.edge), no_adapter, lambda _: b"")
        namespaces = NamespaceBook(
            lambda: Identity.known(MODEL), LAYOUT, adapters, "toy", lambda *_: True
        )
        rules = PlanRules(
            SHAPE,
            PIECE_BYTES,
            async_loads=async_loads,
            lease_s=10.0,
            queued_blocks=self.queued_blocks,
            shadow_share=self._shadow_share,
        )
        return AttentivePlanner(
            self.matcher,
            self,
            namespaces,
            rules,
            self.clock,
            extend_keys,
            judge=self.judge,
            draw=Random(4).random,  # noqa: S311 - a machine's lives must be replayed
        )

    def _condemn(self, namespace: bytes) -> str:
        self.condemned.append(namespace)
        self.tier.set_bypass(True)
        return "toy"

    # What the planner asks

    @property
    def matcher(self) -> Matcher:
        return self.tier

    @property
    def num_blocks(self) -> int:
        return len(self._pages.layers[0])

    def num_computed(self, request_id: str) -> int:
        return self.requests[request_id].num_computed

    def block_ids(self, request_id: str, group: int = 0) -> Sequence[int]:  # noqa: ARG002
        request = self.requests.get(request_id)
        return [] if request is None else request.blocks

    def block_ids_of(self, request_id: str, blocks: range, group: int = 0) -> Sequence[int]:
        return self.block_ids(request_id, group)[blocks.start : blocks.stop]

    def forget(self, block_ids: set[int]) -> None:
        self.forgotten |= block_ids
        self._cached = {
            prefix: block for prefix, block in self._cached.items() if block not in block_ids
        }

    def rewind(self, request_id: str, num_tokens: int) -> None:
        request = self.requests[request_id]
        request.num_computed = min(request.num_computed, num_tokens)

    # What a test does

    def add(self, request_id: str, tokens: Sequence[int]) -> ToyRequest:
        request = ToyRequest(request_id, list(tokens))
        self.requests[request_id] = request
        self.planner.begin(request_id, request.tokens, Subject())
        return request

    def step(self) -> StepPlan:
        """Plan, run and, `lag` steps later, hear of one step."""
        scheduled: dict[str, int] = {}
        for request in list(self.requests.values()):
            self._schedule(request, scheduled)
        plan = StepPlan(
            self.planner.take_loads(),
            self.planner.plan_saves(scheduled),
            self.planner.failures_seen,
            self.planner.tradeoff.plan_step(sum(scheduled.values()), len(scheduled)),
            weights_epoch=self.planner.weights_epoch,
        )
        self.planner.end_pass()
        self._run(plan, scheduled)
        while len(self._results) > self._lag:
            self._hear(self._results.popleft())
        return plan

    def hear_all(self) -> None:
        while self._results:
            self._hear(self._results.popleft())

    def run_loads(self) -> None:
        """Do the asynchronous loads, so that the next step hears of them."""
        self._executor.run_all()

    def run_checks(self) -> None:
        """Do the comparisons that were begun, so that the next step tells of them."""
        self._comparer.run_all()

    def preempt(self, request_id: str) -> None:
        request = self.requests[request_id]
        if request.is_running and not request.is_loading:
            self._release(request)
            request.num_stale_steps = len(self._results)

    def end(self, request_id: str, *, is_complete: bool = True) -> None:
        request = self.requests[request_id]
        if request.is_loading:
            return
        counts = self.planner.finish(request_id, request.blocks, is_complete=is_complete)
        self.responses[request_id] = counts
        self._release(request)
        del self.requests[request_id]

    def reset_prefix_cache(self) -> None:
        self._cached.clear()

    def memory(self, block_id: int) -> bytes:
        return self._pages.read(block_id)

    # Scheduling

    def _schedule(self, request: ToyRequest, scheduled: dict[str, int]) -> None:
        if request.is_loading or request.num_stale_steps:
            return
        if not request.is_running and request.num_computed == 0 and not self._admit(request):
            return
        if request.is_loading:
            return
        request.is_running = True
        while len(request.blocks) * BLOCK_TOKENS < len(request.tokens) and self._free:
            request.blocks.append(self._allocate())
        room = len(request.blocks) * BLOCK_TOKENS
        left = min(len(request.tokens), room) - request.num_computed
        if left > 0:
            scheduled[request.request_id] = min(left, self._chunk_blocks * BLOCK_TOKENS)

    def _admit(self, request: ToyRequest) -> bool:
        local = self._local_hit(request)
        num_local = len(local) * BLOCK_TOKENS
        match = self.planner.match(request.request_id, num_local, len(request.tokens))
        needed = -(-len(request.tokens) // BLOCK_TOKENS) + 1
        for block in local:
            self._owners[block] = self._owners.get(block, 0) + 1
            if block in self._free:
                self._free.remove(block)
        if len(self._free) < needed - len(local):
            request.blocks = local
            self._release(request)
            return False
        request.blocks = local + [self._allocate() for _ in range(needed - len(local))]
        self.planner.allocate(request.request_id, lambda: request.blocks, match.num_tokens)
        request.num_computed = num_local + match.num_tokens
        request.is_loading = match.is_async and match.num_tokens > 0
        if not request.is_loading:
            self._cache(request, request.num_computed)
        return True

    def _local_hit(self, request: ToyRequest) -> list[int]:
        hit: list[int] = []
        for index in range((len(request.tokens) - 1) // BLOCK_TOKENS):
            block = self._cached.get(tuple(request.tokens[: (index + 1) * BLOCK_TOKENS]))
            if block is None:
                break
            hit.append(block)
        return hit

    def _allocate(self) -> int:
        block = self._free.popleft()
        self._cached = {prefix: held for prefix, held in self._cached.items() if held != block}
        self._owners[block] = 1
        return block

    def _cache(self, request: ToyRequest, num_tokens: int) -> None:
        for index in range(num_tokens // BLOCK_TOKENS):
            prefix = tuple(request.tokens[: (index + 1) * BLOCK_TOKENS])
            if request.blocks[index] not in self.forgotten:
                self._cached.setdefault(prefix, request.blocks[index])

    def _release(self, request: ToyRequest) -> None:
        for block in request.blocks:
            self._owners[block] -= 1
            if self._owners[block] == 0:
                self._free.append(block)
                self.forgotten.discard(block)
        request.blocks = []
        request.num_computed = 0
        request.is_running = False

    # The worker

    def _run(self, plan: StepPlan, scheduled: dict[str, int]) -> None:
        self.transfers.start(plan)
        for layer in LAYERS if self.waits else ():
            self.transfers.wait_for_layer(layer)
        for name, count in scheduled.items():
            request = self.requests[name]
            self._forward(request, request.num_computed + count)
            request.num_computed += count
            self.clock.now_s += count * self._token_s
            self._cache(request, request.num_computed)
        self.transfers.save(plan)
        finished = self.transfers.finished()
        self._results.append(
            StepResult(
                scheduled,
                self.transfers.take_failed_blocks(),
                finished,
                self.transfers.take_report(),
            )
        )

    def _forward(self, request: ToyRequest, stop_tokens: int) -> None:
        for index in range(request.num_computed // BLOCK_TOKENS, stop_tokens // BLOCK_TOKENS):
            previous = b"".join(self.memory(block) for block in request.blocks[:index])
            tokens = request.tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
            self._pages.write(request.blocks[index], block_bytes(previous, tokens))

    # What the engine does with a step's results

    def _hear(self, result: StepResult) -> None:
        marked: set[int] = set()
        for request in self.requests.values():
            request.num_stale_steps = max(request.num_stale_steps - 1, 0)
            if request.is_running or request.is_loading:
                self._truncate(request, result, marked)
        if result.report is not None:
            self.planner.learn(result.report)
        for name in result.finished_loads:
            request = self.requests[name]
            request.is_loading = False
            if request.num_computed == 0:
                self._release(request)
            else:
                request.is_running = True
                self._cache(request, request.num_computed)

    def _truncate(self, request: ToyRequest, result: StepResult, marked: set[int]) -> None:
        """As vLLM does: the first request with a failed block recomputes it, sharers wait."""
        computed = request.num_computed - result.num_scheduled.get(request.request_id, 0)
        affected = own = False
        for index in range(-(-computed // BLOCK_TOKENS)):
            block = request.blocks[index]
            if block not in result.failed_blocks:
                continue
            affected = True
            if block not in marked and not own:
                own = True
                request.num_computed = index * BLOCK_TOKENS
            marked.add(block)
        if affected and not own:
            request.num_computed = computed


def warm(tier: FakeTier) -> None:
    engine = ToyEngine(tier)
    engine.add("cold", PROMPT)
    engine.step()
    engine.step()
    engine.end("cold")


def warm_tier() -> FakeTier:
    tier = FakeTier()
    warm(tier)
    return tier
