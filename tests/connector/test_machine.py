"""Random lives of a toy engine: whatever happens, the tier holds only what is true."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from kvext.testing.tier import FakeTier
from tests.connector.toy_engine import ToyEngine
from tests.connector.toy_parts import BLOCK_TOKENS, SHAPE, expected_records

_PROMPTS = [
    [variant if block >= fork else 0 for block in range(6) for _ in range(BLOCK_TOKENS)]
    for variant in (1, 2)
    for fork in (0, 2, 4)
]


class QueueingEngine(ToyEngine):
    """Pins what its queue will need."""

    queued_blocks = 4


class EngineLife(RuleBasedStateMachine):
    """Requests come, run, are preempted and aborted; blocks rot and are evicted."""

    def __init__(self) -> None:
        super().__init__()
        self.num_requests = 0
        self.right: dict[bytes, bytes] = {}
        self.engine: ToyEngine = ToyEngine(FakeTier())
        self.tier = self.engine.tier

    @initialize(
        capacity=st.sampled_from([0, 3, 8, 64]),
        num_blocks=st.sampled_from([8, 16, 40]),
        is_async=st.booleans(),
        lag=st.integers(0, 2),
        chunk_blocks=st.integers(1, 4),
        shadow_share=st.sampled_from([0.0, 0.3, 1.0]),
        layerwise=st.booleans(),
        pins_ahead=st.booleans(),
    )
    def begin(
        self,
        *,
        capacity: int,
        num_blocks: int,
        is_async: bool,
        lag: int,
        chunk_blocks: int,
        shadow_share: float,
        layerwise: bool,
        pins_ahead: bool,
    ) -> None:
        self.tier = FakeTier(capacity)
        self.engine = (QueueingEngine if pins_ahead else ToyEngine)(
            self.tier,
            num_blocks=num_blocks,
            async_loads=is_async,
            lag=lag,
            chunk_blocks=chunk_blocks,
            shadow_share=shadow_share,
            layerwise=layerwise,
        )

    def truth(self, tokens: list[int]) -> dict[bytes, bytes]:
        """What the tier may hold of a sequence."""
        return expected_records(tokens)

    def held(self) -> dict[bytes, bytes]:
        """What the tier holds."""
        return self.tier.records()

    @rule(prompt=st.sampled_from(_PROMPTS), tail=st.integers(0, BLOCK_TOKENS))
    def add(self, prompt: list[int], tail: int) -> None:
        tokens = [*prompt, *[9] * tail]
        self.num_requests += 1
        self.engine.add(f"r{self.num_requests}", tokens)
        self.right |= self.truth(tokens)

    @rule(count=st.integers(1, 2 * BLOCK_TOKENS), surplus=st.sampled_from([0, 0, 2]))
    def decode(self, count: int, surplus: int) -> None:
        """Whoever has computed all its tokens gets another, sometimes several."""
        for _ in range(count):
            for request in self.engine.requests.values():
                is_done = request.num_computed == len(request.tokens)
                if request.is_running and is_done and len(request.tokens) < 10 * BLOCK_TOKENS:
                    request.tokens += [8] * (1 + surplus)
                    self.right |= self.truth(request.tokens)
            self.engine.step()

    @rule(count=st.integers(1, 4))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.engine.step()

    @rule()
    def run_loads(self) -> None:
        self.engine.run_loads()

    @rule()
    def run_checks(self) -> None:
        self.engine.run_checks()

    @precondition(lambda self: bool(self.engine.requests))
    @rule(data=st.data(), is_complete=st.booleans())
    def end(self, *, data: st.DataObject, is_complete: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.engine.requests)))
        if is_complete:
            self.engine.hear_all()
        self.engine.end(name, is_complete=is_complete)

    @precondition(lambda self: bool(self.engine.requests))
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.engine.preempt(data.draw(st.sampled_from(sorted(self.engine.requests))))

    @precondition(lambda self: self.tier.num_records > 0)
    @rule(data=st.data())
    def rot(self, data: st.DataObject) -> None:
        records = sorted(self.tier.records())
        if records:
            self.tier.corrupt(data.draw(st.sampled_from(records)), SHAPE)

    @rule()
    def reset_prefix_cache(self) -> None:
        self.engine.reset_prefix_cache()

    @invariant()
    def the_tier_holds_only_the_truth(self) -> None:
        assert all(self.right[key] == data for key, data in self.held().items())

    @invariant()
    def nothing_true_is_condemned(self) -> None:
        assert not self.engine.condemned

    @invariant()
    def nothing_of_ours_has_failed(self) -> None:
        assert not self.engine.edge.failures

    @override
    def teardown(self) -> None:
        for _ in range(100):
            self.engine.run_loads()
            self.engine.run_checks()
            self.engine.step()
            self.engine.hear_all()
            for name in list(self.engine.requests):
                self.engine.end(name, is_complete=False)
        assert not self.engine.requests
        self.engine.planner.end_pass()
        assert self.tier.num_pins == 0


TestEngineLife = EngineLife.TestCase
TestEngineLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
