"""Which blocks are offered, and when: the numbers that an engine moves, without any KV."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from kvext.connector.adapters import AdapterBook
from kvext.connector.edge import Edge
from kvext.connector.identity import DigestQueue, Identity
from kvext.connector.namespaces import NamespaceBook, Subject
from kvext.connector.planner import Planner
from kvext.connector.rules import PlanRules
from kvext.protocol.layout import RecordShape
from kvext.testing.tier import FakeTier
from tests.connector.attentive import AttentivePlanner
from tests.connector.toy_engine import no_adapter
from tests.connector.toy_parts import (
    LAYOUT,
    MODEL,
    ManualClock,
    extend_keys,
)

_BLOCKS = range(64)
_NAMES = "abcdef"


@dataclass
class Counted:
    tokens: list[int]
    num_computed: int = 0
    num_placeholders: int = 0
    is_running: bool = False


@dataclass
class Numbers:
    """Counts tokens as vLLM does: drafts are computed before it is known which are accepted.

    With `lag` a step is planned before the last one's tokens are known; placeholders stand for
    them.
    """

    random: Random
    lag: int
    chance_of_drafts: float
    chance_of_rest: float
    sequences: dict[str, Counted] = field(default_factory=dict)
    outcomes: deque[list[tuple[str, Counted, int]]] = field(default_factory=deque)

    num_blocks = len(_BLOCKS)

    def num_computed(self, request_id: str) -> int:
        return self.sequences[request_id].num_computed

    def block_ids(self, request_id: str, group: int = 0) -> Sequence[int]:  # noqa: ARG002
        return _BLOCKS if request_id in self.sequences else ()

    def block_ids_of(self, request_id: str, blocks: range, group: int = 0) -> Sequence[int]:
        return self.block_ids(request_id, group)[blocks.start : blocks.stop]

    def forget(self, block_ids: set[int]) -> None:
        raise AssertionError(block_ids)

    def rewind(self, request_id: str, num_tokens: int) -> None:
        raise AssertionError(request_id, num_tokens)

    def step(self, planner: Planner) -> None:
        num_scheduled: dict[str, int] = {}
        outcome: list[tuple[str, Counted, int]] = []
        for name, sequence in self.sequences.items():
            if self.random.random() < self.chance_of_rest:
                continue
            if not sequence.is_running:
                planner.match(name, 0, len(sequence.tokens))
                planner.allocate(name, lambda: _BLOCKS, 0)
                sequence.is_running = True
            count, num_drafts = self._choose(sequence)
            if count > 0:
                num_scheduled[name] = count
                outcome.append((name, sequence, num_drafts))
        planner.plan_saves(num_scheduled)
        planner.end_pass()
        self._run(num_scheduled, outcome)

    def preempt(self, name: str) -> None:
        sequence = self.sequences[name]
        sequence.is_running, sequence.num_computed, sequence.num_placeholders = False, 0, 0

    def _choose(self, sequence: Counted) -> tuple[int, int]:
        """How many tokens of a sequence a step computes, and how many of them are drafts."""
        left = len(sequence.tokens) + sequence.num_placeholders - sequence.num_computed
        num_drafts = 0
        if left == 1 and self.random.random() < self.chance_of_drafts:
            num_drafts = self.random.randint(1, 5)
        count = min(left + num_drafts, self.random.choice([2, 24, 99]))
        return count, max(count - left, 0)

    def _run(self, num_scheduled: dict[str, int], outcome: list[tuple[str, Counted, int]]) -> None:
        ready = []
        for name, sequence, num_drafts in outcome:
            sequence.num_computed += num_scheduled[name]
            if sequence.num_computed >= len(sequence.tokens) + sequence.num_placeholders:
                sequence.num_placeholders += 1 + num_drafts
                ready.append((name, sequence, num_drafts))
        self.outcomes.append(ready)
        while len(self.outcomes) > self.lag:
            for name, sequence, num_drafts in self.outcomes.popleft():
                if self.sequences.get(name) is sequence:
                    self._accept(sequence, num_drafts)

    def _accept(self, sequence: Counted, num_drafts: int) -> None:
        num_accepted = self.random.randint(0, num_drafts)
        sequence.tokens += [8] * (num_accepted + 1)
        sequence.num_computed -= num_drafts - num_accepted
        sequence.num_placeholders -= num_drafts + 1


def make_planner(numbers: Numbers, model: Callable[[], Identity], block_tokens: int) -> Planner:
    book = AdapterBook(DigestQueue(Edge()), no_adapter, lambda _: b"")
    namespaces = NamespaceBook(model, LAYOUT, book, "numbers", lambda *_: True)
    rules = PlanRules(RecordShape(block_tokens), 1)
    return AttentivePlanner(FakeTier(), numbers, namespaces, rules, ManualClock(), extend_keys)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1]),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([16, 48]),
    st.sampled_from([0, 20]),
)
def test_nothing_that_is_final_is_left_out(
    seed: int,
    lag: int,
    chance_of_drafts: float,
    chance_of_rest: float,
    block_tokens: int,
    known_from: int,
) -> None:
    random = Random(seed)  # noqa: S311 - thousands of draws from Hypothesis would exhaust its buffer
    numbers = Numbers(random, lag, chance_of_drafts, chance_of_rest)
    identity = Identity.pending()
    planner = make_planner(numbers, lambda: identity, block_tokens)
    for number in range(120):
        if number >= known_from:
            identity = Identity.known(MODEL)
        name = random.choice(_NAMES)
        action = random.randrange(20)
        if action < 4 and name not in numbers.sequences:
            tokens = [7] * random.choice([1, 15, 16, 17, 70])
            numbers.sequences[name] = Counted(tokens)
            planner.begin(name, tokens, Subject())
        elif action == 4 and name in numbers.sequences:
            planner.finish(name, [], is_complete=False)
            del numbers.sequences[name]
        elif action == 5 and name in numbers.sequences and not lag:
            numbers.preempt(name)
        numbers.step(planner)


class Unsliceable(list[int]):
    """Tokens of a kind that nobody has foreseen."""

    @override
    def __getitem__(self, span: object) -> list[int]:  # type: ignore[override]
        raise TypeError(span)


def test_request_that_nobody_has_foreseen_costs_the_others_one_step() -> None:
    numbers = Numbers(Random(0), 0, 0.0, 0.0)  # noqa: S311 - not asked
    planner = make_planner(numbers, lambda: Identity.known(MODEL), 16)
    sequences = {"before": [1] * 32, "odd": Unsliceable([2] * 32), "behind": [3] * 32}
    for name, tokens in sequences.items():
        numbers.sequences[name] = Counted(tokens)
        planner.begin(name, tokens, Subject())
        planner.allocate(name, lambda: _BLOCKS, 0)
    with pytest.raises(TypeError):
        planner.plan_saves(dict.fromkeys(sequences, 32))
    for sequence in numbers.sequences.values():
        sequence.num_computed = 32
    jobs = planner.plan_saves(dict.fromkeys(sequences, 1))
    assert sorted((job.request_id, job.first_block, len(job.block_ids)) for job in jobs) == [
        ("before", 0, 2),
        ("behind", 0, 2),
    ]
    ends = {name: planner.finish(name, [], is_complete=True) for name in sequences}
    assert ends["before"]["unreported_stores"] == 2
    assert "error" in str(ends["odd"]["reason"])
