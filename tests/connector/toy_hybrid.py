"""A toy engine with several KV groups: full attention and sliding windows over one set of blocks.

A block's bytes are a hash of its tokens and of all that its tokens see, in every group, as it lies
in memory: a block that is missing, stale or another request's spreads as it does in a transformer.
Tables, windows, the local prefix cache and failed loads follow vLLM.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from kvext.connector.adapters import AdapterBook
from kvext.connector.edge import Edge
from kvext.connector.group_keys import GroupKeys
from kvext.connector.identity import DigestQueue, Identity
from kvext.connector.joint_mover import JointMover
from kvext.connector.mover import DirectMover
from kvext.connector.namespaces import NamespaceBook, Subject
from kvext.connector.plan import StepPlan
from kvext.connector.report import WorkerReport
from kvext.connector.rules import CacheGroup, PlanRules
from kvext.connector.transfers import Transfers
from kvext.protocol.key import Namespace, TokenChain, block_keys, extend_chain, part_digest
from kvext.protocol.layout import RecordShape
from kvext.testing.tier import FakePages, FakeTier
from tests.connector.attentive import AttentivePlanner
from tests.connector.toy_engine import no_adapter
from tests.connector.toy_parts import (
    BLOCK_TOKENS,
    LAYOUT,
    MODEL,
    PIECE_BYTES,
    ManualClock,
    ManualExecutor,
    block_bytes,
    extend_keys,
)

NULL = 0
Window = int | None


@dataclass
class HybridRequest:
    request_id: str
    tokens: list[int]
    tables: list[list[int]]
    num_computed: int = 0
    num_in_flight: int = 0
    is_loading: bool = False
    is_running: bool = False


@dataclass
class HybridResult:
    num_scheduled: dict[str, int]
    finished: set[str]
    failed: set[str]
    report: WorkerReport | None


def seen_blocks(window: Window, token: int) -> range:
    """Whole blocks before a block's first token that hold something which that token sees."""
    first = 0 if window is None else max(0, token - window + 1)
    return range(first // BLOCK_TOKENS, token // BLOCK_TOKENS)


def groups_of(windows: Sequence[Window]) -> tuple[CacheGroup, ...]:
    world = len(windows)
    return tuple(
        CacheGroup(RecordShape(BLOCK_TOKENS, rank, world), PIECE_BYTES, window)
        for rank, window in enumerate(windows)
    )


def hybrid_records(windows: Sequence[Window], tokens: Sequence[int]) -> dict[bytes, bytes]:
    """What every full block of a sequence must hold in every group, by key."""
    num_blocks = len(tokens) // BLOCK_TOKENS
    chain = TokenChain(extend_chain)
    chain.advance(tokens, num_blocks * BLOCK_TOKENS)
    links = chain.links(0, num_blocks * BLOCK_TOKENS)
    namespace = Namespace(MODEL, LAYOUT, None, "").digest()
    truth: list[list[bytes]] = [[] for _ in windows]
    for index in range(num_blocks):
        new = tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
        made = [
            block_value(windows, group, index, new, lambda number, block: truth[number][block])
            for group in range(len(windows))
        ]
        for group, value in enumerate(made):
            truth[group].append(value)
    records: dict[bytes, bytes] = {}
    for group, values in enumerate(truth):
        keys = block_keys(part_digest(namespace, group, len(windows)), links, 1)
        for index, value in enumerate(values):
            records[keys[32 * index : 32 * index + 32]] = value
    return records


def block_value(
    windows: Sequence[Window],
    group: int,
    index: int,
    new: Sequence[int],
    read: Callable[[int, int], bytes],
) -> bytes:
    """A block's bytes from what its tokens see; `read` gives a block of a group."""
    seen = b"".join(
        read(number, block)
        for number, window in enumerate(windows)
        for block in seen_blocks(window, index * BLOCK_TOKENS)
    )
    return block_bytes(bytes([group]) + seen, new)


@dataclass
class HybridEngine:
    """Planner and transfers around the toy."""

    tier: FakeTier
    windows: Sequence[Window]
    num_blocks: int = 64
    lag: int = 0
    chunk_blocks: int = 4
    requests: dict[str, HybridRequest] = field(default_factory=dict)
    responses: dict[str, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edge, self.clock = Edge(), ManualClock()
        self._pages = FakePages((np.zeros((self.num_blocks, PIECE_BYTES), np.uint8),))
        self._free = deque(range(1, self.num_blocks))
        self._owners = dict.fromkeys(range(self.num_blocks), 0)
        self._cached: dict[tuple[int, tuple[int, ...]], int] = {}
        self._results: deque[HybridResult] = deque()
        self._executor = ManualExecutor()
        groups = groups_of(self.windows)
        movers = [DirectMover(self.tier, self._pages, g.shape, g.record_bytes) for g in groups]
        self.transfers = Transfers(
            JointMover(movers, self.num_blocks),
            self.edge,
            lambda _: True,
            self.clock,
            self._executor,
        )
        adapters = AdapterBook(DigestQueue(self.edge), no_adapter, lambda _: b"")
        namespaces = NamespaceBook(
            lambda: Identity.known(MODEL), LAYOUT, adapters, "toy", lambda *_: True
        )
        rules = PlanRules(
            RecordShape(BLOCK_TOKENS),
            PIECE_BYTES * len(groups),
            async_loads=True,
            sync_loads=False,
            lease_s=10.0,
            groups=groups,
            null_block=NULL,
        )
        make_keys = partial(
            GroupKeys, num_groups=len(groups), extend_links=extend_chain, block_keys=block_keys
        )
        self.planner = AttentivePlanner(
            self.tier, self, namespaces, rules, self.clock, extend_keys, make_keys
        )

    # What the planner asks

    def num_computed(self, request_id: str) -> int:
        return self.requests[request_id].num_computed

    def block_ids(self, request_id: str, group: int = 0) -> Sequence[int]:
        request = self.requests.get(request_id)
        return [] if request is None else request.tables[group]

    def block_ids_of(self, request_id: str, blocks: range, group: int = 0) -> Sequence[int]:
        return self.block_ids(request_id, group)[blocks.start : blocks.stop]

    def forget(self, block_ids: set[int]) -> None:
        self._cached = {k: block for k, block in self._cached.items() if block not in block_ids}

    def rewind(self, request_id: str, num_tokens: int) -> None:
        raise AssertionError(request_id, num_tokens)

    # What a test does

    def add(self, request_id: str, tokens: Sequence[int]) -> HybridRequest:
        request = HybridRequest(request_id, list(tokens), [[] for _ in self.windows])
        self.requests[request_id] = request
        self.planner.begin(request_id, request.tokens, Subject())
        return request

    def step(self) -> StepPlan:
        scheduled: dict[str, int] = {}
        for request in list(self.requests.values()):
            self._schedule(request, scheduled)
        plan = StepPlan(
            self.planner.take_loads(),
            self.planner.plan_saves(scheduled),
            self.planner.failures_seen,
            weights_epoch=self.planner.weights_epoch,
        )
        self.planner.end_pass()
        self._run(plan, scheduled)
        while len(self._results) > self.lag:
            self._hear(self._results.popleft())
        return plan

    def run_loads(self) -> None:
        self._executor.run_all()

    def hear_all(self) -> None:
        while self._results:
            self._hear(self._results.popleft())

    def finish_all(self, num_steps: int = 30) -> None:
        """Run until everything is computed, then end everybody."""
        for _ in range(num_steps):
            self.step()
            self.run_loads()
        self.hear_all()
        for name in list(self.requests):
            self.end(name)

    def preempt(self, request_id: str) -> None:
        request = self.requests[request_id]
        if request.is_running and not request.num_in_flight:
            self._release(request)

    def end(self, request_id: str, *, is_complete: bool = True) -> None:
        request = self.requests[request_id]
        if request.is_loading or request.num_in_flight:
            return
        self.responses[request_id] = self.planner.finish(
            request_id, request.tables[0], is_complete=is_complete
        )
        self._release(request)
        del self.requests[request_id]

    def reset_prefix_cache(self) -> None:
        self._cached.clear()

    def memory(self, block_id: int) -> bytes:
        return self._pages.read(block_id)

    # Scheduling

    def _schedule(self, request: HybridRequest, scheduled: dict[str, int]) -> None:
        if request.is_loading:
            return
        if not request.is_running and request.num_computed == 0 and not self._admit(request):
            return
        if request.is_loading:
            return
        request.is_running = True
        self._slide(request)
        left = min(len(request.tokens) - request.num_computed, self.chunk_blocks * BLOCK_TOKENS)
        stop = -(-(request.num_computed + left) // BLOCK_TOKENS)
        missing = sum(max(0, stop - len(table)) for table in request.tables)
        if left <= 0 or missing > len(self._free):
            return
        for table in request.tables:
            table += [self._allocate() for _ in range(stop - len(table))]
        scheduled[request.request_id] = left
        request.num_in_flight += left

    def _admit(self, request: HybridRequest) -> bool:
        num_local, local = self._local_hit(request)
        tokens = num_local * BLOCK_TOKENS
        match = self.planner.match(request.request_id, tokens, len(request.tokens))
        total = tokens + match.num_tokens
        stop = total // BLOCK_TOKENS
        tables: list[list[int]] = []
        for window, held in zip(self.windows, local, strict=True):
            skipped = 0 if window is None else max(0, total - window + 1) // BLOCK_TOKENS
            tables.append([NULL] * skipped + held[skipped:])
        for block in (block for table in tables for block in table if block != NULL):
            self._owners[block] += 1
            if block in self._free:
                self._free.remove(block)
        request.tables = tables
        if sum(stop - len(table) for table in tables) > len(self._free):
            self._release(request)
            return False
        for table in tables:
            table += [self._allocate() for _ in range(stop - len(table))]
        self.planner.allocate(request.request_id, lambda: tables[0], match.num_tokens)
        request.num_computed = total
        request.is_loading = match.num_tokens > 0
        return True

    def _local_hit(self, request: HybridRequest) -> tuple[int, list[list[int]]]:
        for stop in range((len(request.tokens) - 1) // BLOCK_TOKENS, 0, -1):
            tables = [self._local_table(request, group, stop) for group in range(len(self.windows))]
            held = [table for table in tables if table is not None]
            if len(held) == len(tables):
                return stop, held
        return 0, [[] for _ in self.windows]

    def _local_table(self, request: HybridRequest, group: int, stop: int) -> list[int] | None:
        needed = seen_blocks(self.windows[group], stop * BLOCK_TOKENS)
        table = [NULL] * needed.start
        for index in needed:
            prefix = tuple(request.tokens[: (index + 1) * BLOCK_TOKENS])
            block = self._cached.get((group, prefix))
            if block is None:
                return None
            table.append(block)
        return table

    def _slide(self, request: HybridRequest) -> None:
        # A toy block is written when it is full, so what its first token sees stays until then.
        processed = (request.num_computed - request.num_in_flight) // BLOCK_TOKENS * BLOCK_TOKENS
        for window, table in zip(self.windows, request.tables, strict=True):
            if window is not None:
                for index in range(min(max(0, processed - window + 1) // BLOCK_TOKENS, len(table))):
                    self._drop(table[index])
                    table[index] = NULL

    def _allocate(self) -> int:
        block = self._free.popleft()
        self._cached = {k: held for k, held in self._cached.items() if held != block}
        self._owners[block] = 1
        return block

    def _drop(self, block: int) -> None:
        if block != NULL:
            self._owners[block] -= 1
            if self._owners[block] == 0:
                self._free.append(block)

    def _cache(self, request: HybridRequest) -> None:
        for group, table in enumerate(request.tables):
            for index in range(request.num_computed // BLOCK_TOKENS):
                if table[index] != NULL:
                    prefix = tuple(request.tokens[: (index + 1) * BLOCK_TOKENS])
                    self._cached.setdefault((group, prefix), table[index])

    def _release(self, request: HybridRequest) -> None:
        for table in request.tables:
            for block in table:
                self._drop(block)
        request.tables = [[] for _ in self.windows]
        request.num_computed = 0
        request.is_running = False

    # The worker

    def _run(self, plan: StepPlan, scheduled: dict[str, int]) -> None:
        self.transfers.start(plan)
        for name, count in scheduled.items():
            request = self.requests[name]
            self._forward(request, request.num_computed + count)
            request.num_computed += count
            self._cache(request)
        self.transfers.save(plan)
        finished = self.transfers.finished()
        failed = self.transfers.take_failed_requests()
        self._results.append(
            HybridResult(scheduled, finished, failed, self.transfers.take_report())
        )

    def _forward(self, request: HybridRequest, stop_tokens: int) -> None:
        for index in range(request.num_computed // BLOCK_TOKENS, stop_tokens // BLOCK_TOKENS):
            new = request.tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
            made = [
                block_value(self.windows, group, index, new, partial(self._read, request))
                for group in range(len(self.windows))
            ]
            for table, value in zip(request.tables, made, strict=True):
                self._pages.write(table[index], value)

    def _read(self, request: HybridRequest, group: int, index: int) -> bytes:
        block = request.tables[group][index]
        assert block != NULL, "the engine reads a block that it has dropped or was not given"
        return self.memory(block)

    # What the engine does with a step's results

    def _hear(self, result: HybridResult) -> None:
        for name, count in result.num_scheduled.items():
            self.requests[name].num_in_flight -= count
        if result.report is not None:
            self.planner.learn(result.report)
        for name in result.finished:
            request = self.requests[name]
            request.is_loading = False
            if name in result.failed:
                self._release(request)
            else:
                request.is_running = True
                self._cache(request)
