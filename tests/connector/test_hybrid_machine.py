"""Random lives of a toy engine with several KV groups: the tier holds only what is true."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from kvext.testing.tier import FakeTier
from tests.connector.toy_hybrid import HybridEngine, Window, groups_of, hybrid_records
from tests.connector.toy_parts import BLOCK_TOKENS

_PROMPTS = [
    [variant if block >= fork else 0 for block in range(6) for _ in range(BLOCK_TOKENS)]
    for variant in (1, 2)
    for fork in (0, 2, 4)
]


class HybridLife(RuleBasedStateMachine):
    """Requests come, run, are preempted and aborted; blocks rot and are evicted."""

    def __init__(self) -> None:
        super().__init__()
        self.num_requests = 0
        self.right: dict[bytes, bytes] = {}
        self.windows: list[Window] = [None]
        self.engine = HybridEngine(FakeTier(), self.windows)

    @initialize(
        capacity=st.sampled_from([0, 5, 20, 200]),
        num_blocks=st.sampled_from([24, 40, 100]),
        windows=st.lists(st.sampled_from([None, 1, 16, 17, 24, 40]), min_size=1, max_size=3),
        lag=st.integers(0, 2),
        chunk_blocks=st.integers(1, 4),
    )
    def begin(
        self, *, capacity: int, num_blocks: int, windows: list[Window], lag: int, chunk_blocks: int
    ) -> None:
        self.windows = windows
        self.engine = HybridEngine(FakeTier(capacity), windows, num_blocks, lag, chunk_blocks)

    @rule(prompt=st.sampled_from(_PROMPTS), tail=st.integers(0, BLOCK_TOKENS))
    def add(self, prompt: list[int], tail: int) -> None:
        tokens = [*prompt, *[9] * tail]
        self.num_requests += 1
        self.engine.add(f"r{self.num_requests}", tokens)
        self.right |= hybrid_records(self.windows, tokens)

    @rule(count=st.integers(1, 2 * BLOCK_TOKENS), surplus=st.sampled_from([0, 0, 2]))
    def decode(self, count: int, surplus: int) -> None:
        """Whoever has computed all its tokens gets another, sometimes several."""
        for _ in range(count):
            for request in self.engine.requests.values():
                is_done = request.num_computed == len(request.tokens)
                if request.is_running and is_done and len(request.tokens) < 10 * BLOCK_TOKENS:
                    request.tokens += [8] * (1 + surplus)
            self.engine.step()
        for request in self.engine.requests.values():
            self.right |= hybrid_records(self.windows, request.tokens)

    @rule(count=st.integers(1, 4), is_quick=st.booleans())
    def step(self, *, count: int, is_quick: bool) -> None:
        for _ in range(count):
            self.engine.step()
            if is_quick:
                self.engine.run_loads()

    @rule()
    def run_loads(self) -> None:
        self.engine.run_loads()

    @rule(prompt=st.sampled_from(_PROMPTS), tail=st.integers(0, BLOCK_TOKENS))
    def pass_through(self, prompt: list[int], tail: int) -> None:
        """A request that finds what it can in the tier alone, and goes."""
        self.engine.reset_prefix_cache()
        self.add(prompt, tail)
        for _ in range(10):
            self.engine.step()
            self.engine.run_loads()
        self.engine.hear_all()
        self.engine.end(f"r{self.num_requests}")

    @precondition(lambda self: bool(self.engine.requests))
    @rule(data=st.data(), is_complete=st.booleans())
    def end(self, *, data: st.DataObject, is_complete: bool) -> None:
        self.engine.hear_all()
        name = data.draw(st.sampled_from(sorted(self.engine.requests)))
        self.engine.end(name, is_complete=is_complete)

    @precondition(lambda self: bool(self.engine.requests))
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.engine.preempt(data.draw(st.sampled_from(sorted(self.engine.requests))))

    @precondition(lambda self: bool(self.engine.tier.records()))
    @rule(data=st.data(), is_gone=st.booleans())
    def lose(self, *, data: st.DataObject, is_gone: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.engine.tier.records())))
        for group in groups_of(self.windows):
            if self.engine.tier.lookup(key, group.shape) == b"\1":
                act = self.engine.tier.drop if is_gone else self.engine.tier.corrupt
                act(key, group.shape)

    @rule()
    def reset_prefix_cache(self) -> None:
        self.engine.reset_prefix_cache()

    @invariant()
    def the_tier_holds_only_the_truth(self) -> None:
        assert all(self.right[key] == data for key, data in self.engine.tier.records().items())

    @invariant()
    def nothing_of_ours_has_failed(self) -> None:
        assert not self.engine.edge.failures

    @override
    def teardown(self) -> None:
        for _ in range(100):
            self.engine.run_loads()
            self.engine.step()
            self.engine.hear_all()
            for name in list(self.engine.requests):
                self.engine.end(name, is_complete=False)
        assert not self.engine.requests
        self.engine.planner.end_pass()
        assert self.engine.tier.num_pins == 0


TestHybridLife = HybridLife.TestCase
TestHybridLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
