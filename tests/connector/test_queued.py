"""A queued request's blocks are still there when its turn comes, and its pins go back."""

import pytest
from typing_extensions import override

from kvext.connector.namespaces import Subject
from kvext.connector.planner import Planner
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.layout import RecordShape
from kvext.testing.tier import FakeLease, FakeTier
from tests.connector.toy_engine import PROMPT, ToyEngine, warm
from tests.connector.toy_parts import BLOCK_TOKENS

CAPACITY = 12
NUM_BLOCKS = 5
"""That `PROMPT` fills."""


class QueueingEngine(ToyEngine):
    """Pins for its queue as many blocks as two prompts have."""

    queued_blocks = 2 * NUM_BLOCKS


class ForgetfulEngine(ToyEngine):
    """Pins nothing: the control."""


@pytest.fixture
def tier() -> FakeTier:
    tier = FakeTier(CAPACITY)
    warm(tier)
    return tier


def put_under_pressure(tier: FakeTier) -> None:
    """Let another engine store more than the tier can hold."""
    other = ToyEngine(tier)
    for number in range(4):
        name = f"other-{number}"
        other.add(name, [1000 * (number + 1) + at for at in range(6 * BLOCK_TOKENS)])
        for _ in range(3):
            other.step()
        other.end(name)


def queue(planner: Planner, *names: str) -> None:
    for name in names:
        planner.begin(name, PROMPT, Subject())
    planner.end_pass()


@pytest.mark.parametrize(("kind", "found"), [(QueueingEngine, NUM_BLOCKS), (ForgetfulEngine, 0)])
def test_what_a_queued_request_will_need_survives_pressure(
    tier: FakeTier, kind: type[ToyEngine], found: int
) -> None:
    engine = kind(tier)
    queue(engine.planner, "b")
    put_under_pressure(tier)
    match = engine.planner.match("b", 0, len(PROMPT))
    assert match.num_tokens == found * BLOCK_TOKENS


def test_an_admitted_request_keeps_only_the_pins_of_its_load(tier: FakeTier) -> None:
    engine = QueueingEngine(tier)
    request = engine.add("b", PROMPT)
    engine.planner.end_pass()
    assert tier.num_pins == NUM_BLOCKS
    engine.step()
    assert request.is_running
    engine.step()
    assert tier.num_pins == 0


def test_an_aborted_request_gives_its_pins_back(tier: FakeTier) -> None:
    engine = QueueingEngine(tier)
    queue(engine.planner, "b")
    assert engine.planner.num_leases == 1
    engine.planner.finish("b", (), is_complete=False)
    assert (tier.num_pins, engine.planner.num_leases) == (0, 0)


def test_pins_end_at_their_deadline_and_are_not_renewed(tier: FakeTier) -> None:
    engine = QueueingEngine(tier)
    queue(engine.planner, "b")
    engine.clock.now_s = 9.9
    engine.planner.end_pass()
    assert tier.num_pins == NUM_BLOCKS
    engine.clock.now_s = 10.0
    engine.planner.end_pass()
    engine.planner.end_pass()
    assert tier.num_pins == 0


def test_a_long_queue_pins_no_more_than_its_bound_and_who_came_first_goes_first(
    tier: FakeTier,
) -> None:
    engine = QueueingEngine(tier)
    queue(engine.planner, "a", "b", "c")
    assert tier.num_pins == 2 * NUM_BLOCKS
    engine.planner.finish("a", (), is_complete=False)
    assert tier.num_pins == NUM_BLOCKS
    engine.planner.end_pass()
    assert tier.num_pins == 2 * NUM_BLOCKS


def test_new_weights_give_the_queues_pins_back(tier: FakeTier) -> None:
    engine = QueueingEngine(tier)
    queue(engine.planner, "b")
    engine.planner.change_weights("new weights")
    engine.planner.end_pass()
    assert tier.num_pins == 0


def test_a_bypassed_tier_is_not_asked_for_the_queue(tier: FakeTier) -> None:
    engine = QueueingEngine(tier)
    tier.set_bypass(True)
    queue(engine.planner, "b")
    assert tier.num_pins == 0


class CountingTier(FakeTier):
    """Notes how many blocks it is asked for, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    @override
    def match(self, keys: bytes, shape: RecordShape) -> FakeLease:
        self.asked.append(len(keys) // KEY_BYTES)
        return super().match(keys, shape)


def test_a_request_admitted_in_its_first_pass_is_looked_up_once() -> None:
    tier = CountingTier()
    warm(tier)
    tier.asked.clear()
    engine = QueueingEngine(tier)
    engine.add("b", PROMPT)
    engine.step()
    assert tier.asked == [NUM_BLOCKS]


def test_who_does_not_fit_wholly_has_its_beginning_pinned(tier: FakeTier) -> None:
    class NarrowEngine(ToyEngine):
        queued_blocks = NUM_BLOCKS + 2

    engine = NarrowEngine(tier)
    queue(engine.planner, "a", "b")
    assert tier.num_pins == NUM_BLOCKS + 2
