"""Requests for tests: by hand, from operations that Hypothesis draws, and as a fixed workload."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from kvext.tenancy.policies.splitmix import SplitMix64, mixed
from kvext.tenancy.policy import Access, Session


def prompt(keys: Sequence[int], now_ms: int = 0, *, block_size: int = 1) -> Access:
    return Access(now_ms, keys, input_tokens=16 * len(keys), block_size=block_size)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that goes on from an earlier prompt, of which it may drop the end."""

    wait_ms: int
    earlier: int
    num_dropped: int
    num_new: int
    block_size: int
    output_tokens: int
    partial_tail: bool
    repeats_a_key: bool
    session: Session
    return_ms: int
    cost_s: float


@dataclass(frozen=True, slots=True)
class Evict:
    size: int


@dataclass(frozen=True, slots=True)
class Resize:
    capacity: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Blocks of an earlier prompt, from this depth on, and one that nobody knows."""

    earlier: int
    depth: int
    num_blocks: int


Operation = Ask | Evict | Resize | Remove

_HOUR_MS = 3_600_000
_CAPACITIES = range(31)
# Waits at which bins of age and the lifetime of an index begin and end, among others.
_ASK_VALUES: dict[str, Sequence[Any]] = {
    "wait_ms": (0, 0, 1, 700, 1000, 2000, 5000, 30_000, 256_000, 3 * _HOUR_MS),
    "earlier": range(13),
    "num_dropped": (0, 0, 1, 2, 3, 5),
    "num_new": range(8),
    "block_size": (1, 1, 1, 2, 3),
    "output_tokens": (-1, 0, 9, 80, 4000),
    "partial_tail": (False, True),
    "repeats_a_key": (False, False, False, True),
    "session": tuple(Session),
    "return_ms": (-1, -1, 0, 9000, _HOUR_MS),
    "cost_s": (0.0, 0.25, 3.0),
}
_ASKS = st.builds(Ask, **{name: st.sampled_from(values) for name, values in _ASK_VALUES.items()})
OPERATIONS = st.lists(
    st.one_of(
        _ASKS,
        _ASKS,
        _ASKS,
        st.builds(Evict, st.integers(0, 9)),
        st.builds(Resize, st.sampled_from(_CAPACITIES)),
        st.builds(Remove, st.integers(0, 12), st.integers(0, 6), st.integers(0, 3)),
    ),
    max_size=40,
)


def long_operations(num_operations: int, capacity: int, seed: int) -> list[Operation]:
    """As Hypothesis might draw them, but more than it does, and in a cache that stays large."""
    random = SplitMix64(seed)
    operations: list[Operation] = []
    for _ in range(num_operations):
        kind = random.below(40)
        if kind == 0:
            operations.append(Evict(random.below(9)))
        elif kind == 1:
            operations.append(Resize(capacity // 2 + random.below(capacity // 2 + 1)))
        elif kind == 2:
            operations.append(Remove(random.below(12), random.below(6), random.below(3)))
        else:
            drawn = {
                name: values[random.below(len(values))] for name, values in _ASK_VALUES.items()
            }
            operations.append(Ask(**drawn))
    return operations


class Conversations:
    """Makes requests of `Ask`s: a tree of prompts whose equal prefixes have equal keys."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._prompts: list[tuple[int, ...]] = [()]
        self._num_keys = 0

    def access(self, ask: Ask) -> Access:
        self.now_ms += ask.wait_ms
        keys = self.earlier(ask.earlier)
        keys = keys[: max(0, len(keys) - ask.num_dropped)] + self._new_keys(ask.num_new)
        self._prompts.append(keys)
        if ask.repeats_a_key:
            keys = (*keys, *keys[:1])
        return Access(
            self.now_ms,
            keys,
            input_tokens=16 * len(keys),
            output_tokens=ask.output_tokens,
            partial_tail=ask.partial_tail,
            block_size=ask.block_size,
            first_cost_s=ask.cost_s,
            cost_step_s=ask.cost_s / 64,
            session=ask.session,
            return_ms=ask.return_ms,
        )

    def earlier(self, age: int) -> tuple[int, ...]:
        return self._prompts[-1 - age % len(self._prompts)]

    def removed(self, remove: Remove) -> list[int]:
        keys = self.earlier(remove.earlier)[remove.depth :][: remove.num_blocks]
        return [*keys, 2**64 - 1]

    def _new_keys(self, num_keys: int) -> tuple[int, ...]:
        first = self._num_keys + 1
        self._num_keys += num_keys
        return tuple(mixed(number) for number in range(first, first + num_keys))


def workload(num_requests: int, seed: int = 0) -> list[Access]:
    """Chats behind a few system prompts, between prompts that nobody asks for twice."""
    random = SplitMix64(seed)
    conversations: list[list[int]] = []
    num_keys = 0
    now_ms = 0
    accesses = []
    for _ in range(num_requests):
        now_ms += 300 + random.below(1500)
        kind = random.below(10)
        keys: list[int] = []
        if kind < 5 and conversations:
            age = random.below(min(30, len(conversations)))
            keys = conversations.pop(len(conversations) - 1 - age)[:-1]
        elif kind < 8:
            system_prompt = 1000 * (1 + random.below(5))
            keys = list(range(system_prompt, system_prompt + 3))
        num_new = 2 + random.below(6)
        keys = keys + [10_000 + num_keys + number for number in range(num_new)]
        num_keys += num_new
        if kind < 8:
            conversations.append(keys)
        accesses.append(
            Access(
                now_ms,
                keys,
                input_tokens=16 * len(keys) - 5,
                output_tokens=random.below(400),
                partial_tail=True,
            )
        )
    return accesses
