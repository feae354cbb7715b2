"""Random lives of a toy engine of several ranks: no rank's shard is ever computed on garbage."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import initialize, precondition, rule
from typing_extensions import override

from kvext.testing.tier import FakeTier
from tests.connector.test_machine import EngineLife
from tests.connector.toy_ranks import RankedEngine, shard_of, shard_records


class RankedLife(EngineLife):
    """As the life of one rank, whose loads end at any time."""

    @override
    @initialize(
        capacity=st.sampled_from([0, 7, 20, 128]),
        num_blocks=st.sampled_from([8, 16, 40]),
        lag=st.integers(0, 2),
        chunk_blocks=st.integers(1, 4),
        num_ranks=st.integers(2, 3),
    )
    def begin(
        self, *, capacity: int, num_blocks: int, lag: int, chunk_blocks: int, num_ranks: int
    ) -> None:
        self.tier = FakeTier(capacity)
        self.engine = self.ranked = RankedEngine(
            self.tier, num_ranks, num_blocks=num_blocks, lag=lag, chunk_blocks=chunk_blocks
        )

    @override
    def truth(self, tokens: list[int]) -> dict[bytes, bytes]:
        shards = shard_records(tokens, self.ranked.num_ranks)
        return {
            key + bytes([rank]): data
            for rank, records in enumerate(shards)
            for key, data in records.items()
        }

    @override
    def held(self) -> dict[bytes, bytes]:
        return {
            key + bytes([rank]): data
            for rank in range(self.ranked.num_ranks)
            for key, data in self.tier.records(shard_of(rank, self.ranked.num_ranks)).items()
        }

    @rule(rank=st.integers(0, 1))
    def run_loads_of(self, rank: int) -> None:
        self.ranked.run_loads_of(rank)

    @override
    @precondition(lambda self: self.tier.num_records > 0)
    @rule(data=st.data())
    def rot(self, data: st.DataObject) -> None:
        self._lose(data, is_gone=False)

    @precondition(lambda self: self.tier.num_records > 0)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        self._lose(data, is_gone=True)

    def _lose(self, data: st.DataObject, *, is_gone: bool) -> None:
        names = sorted(self.held())
        if names:
            name = data.draw(st.sampled_from(names))
            act = self.tier.drop if is_gone else self.tier.corrupt
            act(name[:-1], shard_of(name[-1], self.ranked.num_ranks))


TestRankedLife = RankedLife.TestCase
TestRankedLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
