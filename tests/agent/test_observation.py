"""From snapshots to accesses: none invented, none but the unseeable lost, time never back."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvext.agent.observation import Watch
from tests.agent.rows import Row, records

_KEYS = st.integers(0, 8)


@dataclass(slots=True)
class _Block:
    extent: int
    last: int
    previous: int = 0
    hits: int = 0
    untold: list[int] = field(default_factory=list)


class WatchMachine(RuleBasedStateMachine):
    """A pool of a few blocks, watched now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1
        self.blocks: dict[int, _Block] = {}
        self.known: set[int] = set()
        self.watch = Watch()
        self.told: list[int] = []

    @rule(tenths=st.integers(0, 3))
    def wait(self, tenths: int) -> None:
        self.now += tenths

    @rule(key=_KEYS)
    def access(self, key: int) -> None:
        block = self.blocks.get(key)
        if block is None:
            self.blocks[key] = _Block(extent=key, last=self.now, untold=[self.now])
            return
        block.hits += 1
        if block.last != self.now:
            block.previous, block.last = block.last, self.now
            block.untold.append(self.now)

    @rule(key=_KEYS)
    def evict(self, key: int) -> None:
        self.blocks.pop(key, None)
        self.now += 1  # stored again in the same tenth it would look as if nothing had happened

    @rule()
    def look(self) -> None:
        rows = [
            Row(key, block.extent, block.last, block.previous, block.hits)
            for key, block in self.blocks.items()
        ]
        accesses, gone = self.watch.look(records(rows))
        told: dict[int, list[int]] = {}
        for seen in accesses:
            assert len(set(seen.keys.tolist())) == len(seen.keys)
            self.told.append(seen.at_tenths)
            for key in seen.keys.tolist():
                told.setdefault(key, []).append(seen.at_tenths)
        for key, block in self.blocks.items():
            # A slot tells of two accesses; of those before them nobody knows.
            assert told.pop(key, []) == block.untold[-2:]
            block.untold = []
        assert not told
        assert set(gone.tolist()) == self.known - set(self.blocks)
        self.known = set(self.blocks)

    @invariant()
    def time_does_not_go_back(self) -> None:
        assert self.told == sorted(self.told)


TestWatch = WatchMachine.TestCase
TestWatch.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_clock_that_was_set_back_loses_no_access() -> None:
    watch = Watch()
    watch.look(records([Row(1, 1, last=1000)]))
    (seen,), _ = watch.look(records([Row(1, 1, last=10, previous=1000, hits=1)]))
    assert (seen.at_tenths, seen.keys.tolist()) == (1000, [1])


def test_blocks_of_one_tenth_are_one_access_head_first() -> None:
    rows = [Row(30, 6), Row(20, 5), Row(10, 9, hits=1), Row(40, 7, last=2)]
    accesses, _ = Watch().look(records(rows))
    assert [seen.keys.tolist() for seen in accesses] == [[10, 20, 30], [40]]


def test_shards_of_one_block_are_one_block() -> None:
    (seen,), _ = Watch().look(records([Row(1, extent=1, last=3), Row(1, extent=2, last=3)]))
    assert seen.keys.tolist() == [1]
