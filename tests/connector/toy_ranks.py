"""The toy engine with several ranks, which exchange what they compute.

A rank's shard is a hash of all ranks' shards before it, so what one rank lacks spoils the others.
Each rank loads in its own time.
"""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from typing_extensions import override

from kvext.connector.mover import DirectMover
from kvext.connector.plan import StepPlan
from kvext.connector.ranks import AllRanks, RankReports, own_loads
from kvext.connector.report import WorkerReport
from kvext.connector.rules import Matcher
from kvext.connector.transfers import Transfers
from kvext.protocol.layout import RecordShape
from kvext.testing.tier import FakePages, FakeTier
from tests.connector.toy_engine import StepResult, ToyEngine, ToyRequest
from tests.connector.toy_parts import (
    BLOCK_TOKENS,
    PIECE_BYTES,
    ManualExecutor,
    block_bytes,
    expected_records,
)


def shard_of(rank: int, num_ranks: int) -> RecordShape:
    return RecordShape(BLOCK_TOKENS, rank, num_ranks)


def shard_bytes(rank: int, previous: bytes, tokens: Sequence[int]) -> bytes:
    return block_bytes(bytes([rank]) + previous, tokens)


def shard_records(tokens: Sequence[int], num_ranks: int) -> list[dict[bytes, bytes]]:
    """By rank, what every full block of a sequence must hold, by key."""
    records: list[dict[bytes, bytes]] = [{} for _ in range(num_ranks)]
    previous = b""
    for index, key in enumerate(expected_records(tokens)):
        new = tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
        shards = [shard_bytes(rank, previous, new) for rank in range(num_ranks)]
        for held, shard in zip(records, shards, strict=True):
            held[key] = shard
        previous += b"".join(shards)
    return records


class RankedEngine(ToyEngine):
    """One planner, and pages and transfers for each rank."""

    def __init__(self, tier: FakeTier, num_ranks: int = 2, **circumstances: Any) -> None:
        self.num_ranks = num_ranks
        super().__init__(tier, async_loads=True, **circumstances)
        self._shards = [
            FakePages((np.zeros((self.num_blocks, PIECE_BYTES), np.uint8),))
            for _ in range(num_ranks)
        ]
        self._executors = [ManualExecutor() for _ in range(num_ranks)]
        self._workers = [
            Transfers(
                DirectMover(tier, pages, shard_of(rank, num_ranks), PIECE_BYTES),
                self.edge,
                lambda _: True,
                self.clock,
                self._executors[rank],
            )
            for rank, pages in enumerate(self._shards)
        ]
        self._joined = RankReports(num_ranks)
        self._num_finished: Counter[str] = Counter()

    @property
    @override
    def matcher(self) -> Matcher:
        return AllRanks(self.tier, self.num_ranks)

    @override
    def memory(self, block_id: int) -> bytes:
        return b"".join(pages.read(block_id) for pages in self._shards)

    @override
    def run_loads(self) -> None:
        for rank in range(self.num_ranks):
            self.run_loads_of(rank)

    def run_loads_of(self, rank: int) -> None:
        self._executors[rank].run_all()

    @override
    def _run(self, plan: StepPlan, scheduled: dict[str, int]) -> None:
        for rank, worker in enumerate(self._workers):
            worker.start(own_loads(plan, rank, self.num_ranks))
        for name, count in scheduled.items():
            request = self.requests[name]
            self._forward(request, request.num_computed + count)
            request.num_computed += count
            self._cache(request, request.num_computed)
        for worker in self._workers:
            worker.save(plan)
            self._num_finished.update(worker.finished())
        failed = set[int]().union(*(worker.take_failed_blocks() for worker in self._workers))
        self._results.append(StepResult(scheduled, failed, self._finished(), self._report()))

    def _finished(self) -> set[str]:
        """As vLLM counts: a load has ended once it has on every rank."""
        done = {name for name, count in self._num_finished.items() if count == self.num_ranks}
        for name in done:
            del self._num_finished[name]
        return done

    def _report(self) -> WorkerReport | None:
        told = [report for worker in self._workers if (report := worker.take_report())]
        return self._joined.join(reduce(WorkerReport.merged, told)) if told else None

    @override
    def _forward(self, request: ToyRequest, stop_tokens: int) -> None:
        for index in range(request.num_computed // BLOCK_TOKENS, stop_tokens // BLOCK_TOKENS):
            previous = b"".join(self.memory(block) for block in request.blocks[:index])
            tokens = request.tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
            for rank, pages in enumerate(self._shards):
                pages.write(request.blocks[index], shard_bytes(rank, previous, tokens))
