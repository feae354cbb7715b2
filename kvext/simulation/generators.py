"""Made-up traffic: seeded generators of requests whose shape is known.

Each is pure: the same arguments make the same requests. Keys count from 0 within one generator.

    unique  every prompt is new: a scanner, which no cache can serve
    loop    the same documents round and round: the worst case of LRU
    zipf    documents of which few are popular
    chat    conversations that grow turn by turn, with time to think between the turns
"""

import random
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Literal

import msgspec

from kvext.simulation.trace import Trace
from kvext.tenancy.policy import Access
from kvext.tenancy.recompute import RecomputeCost

__all__ = ["Chat", "Generator", "Loop", "Unique", "Zipf", "expected_blocks", "generate"]

_Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e8)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=10**8)]
_Some = Annotated[int, msgspec.Meta(ge=0, le=10**8)]
_Arrivals = Literal["poisson", "regular"]

_COST = RecomputeCost()


class _Traffic(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", kw_only=True
):
    duration_s: _Seconds | None = None
    """For how long requests arrive; None leaves it to the scenario."""
    arrivals: _Arrivals = "poisson"
    output_tokens: _Some = 256
    """Length of each answer."""


class Unique(_Traffic, frozen=True, tag="unique"):
    """Every prompt is new."""

    requests_per_second: _Rate
    blocks_per_prompt: _Count


class Loop(_Traffic, frozen=True, tag="loop"):
    """One document after the other, and again from the first."""

    requests_per_second: _Rate
    blocks_per_prompt: _Count
    documents: _Count


class Zipf(_Traffic, frozen=True, tag="zipf"):
    """The document of rank r is asked for in proportion to r ** -exponent."""

    requests_per_second: _Rate
    blocks_per_prompt: _Count
    documents: _Count
    exponent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0


class Chat(_Traffic, frozen=True, tag="chat"):
    """Conversations of a geometric number of turns; each turn sends all before it again."""

    sessions_per_second: _Rate
    first_blocks: _Count = 4
    """Blocks of a first turn besides the shared ones."""
    blocks_per_turn: _Count = 2
    """What each next turn adds."""
    shared_blocks: _Some = 0
    """Blocks that all conversations begin with."""
    mean_turns: Annotated[float, msgspec.Meta(ge=1, le=1e4)] = 4.0
    mean_think_s: _Seconds = 30.0
    """Mean of the exponential time between a turn and the next."""


Generator = Unique | Loop | Zipf | Chat


def expected_blocks(generator: Generator, duration_s: float) -> float:
    """Block accesses that a generator makes on average, before making them."""
    if not isinstance(generator, Chat):
        return generator.requests_per_second * duration_s * generator.blocks_per_prompt
    turns = generator.mean_turns
    # The mean of n (n - 1) / 2 turns added before is m (m - 1) for a geometric number.
    blocks = turns * (generator.shared_blocks + generator.first_blocks)
    blocks += generator.blocks_per_turn * turns * (turns - 1)
    return generator.sessions_per_second * duration_s * blocks


def generate(
    generator: Generator, *, duration_s: float, block_tokens: int, seed: int, name: str = "made up"
) -> Trace:
    """Make a generator's requests.

    Args:
        generator: What kind of traffic.
        duration_s: Requests arrive from 0 to this time.
        block_tokens: Tokens of a block, for the lengths and costs.
        seed: Of arrivals, lengths and choices.
        name: What the trace is called.

    Returns:
        The trace; it has no request if none arrives in so short a time.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation, no secret
    sessions: list[int] | None = None
    prompts: Iterable[tuple[int, Iterable[int]]]
    if isinstance(generator, Chat):
        turns = sorted(_turns(generator, duration_s, draw), key=lambda turn: turn.now_ms)
        prompts = ((turn.now_ms, turn.keys(generator.shared_blocks)) for turn in turns)
        sessions = [turn.session for turn in turns]
    else:
        prompts = _prompts(generator, duration_s, draw)
    first_cost_s, cost_step_s = _COST.first_block_s(block_tokens), _COST.block_step_s(block_tokens)
    accesses = [
        Access(
            now_ms=now_ms,
            keys=(keys := array("Q", blocks)),
            input_tokens=len(keys) * block_tokens,
            output_tokens=generator.output_tokens,
            first_cost_s=first_cost_s,
            cost_step_s=cost_step_s,
        )
        for now_ms, blocks in prompts
    ]
    return Trace(name, block_tokens, len(accesses), accesses, sessions)


def _prompts(
    generator: Unique | Loop | Zipf, duration_s: float, draw: random.Random
) -> Iterator[tuple[int, range]]:
    size = generator.blocks_per_prompt
    times = _arrivals(generator.requests_per_second, duration_s, generator.arrivals, draw)
    for now_ms, document in zip(times, _documents(generator, draw), strict=False):
        yield now_ms, range(document * size, (document + 1) * size)


def _documents(generator: Unique | Loop | Zipf, draw: random.Random) -> Iterator[int]:
    number = 0
    if not isinstance(generator, Zipf):
        while True:
            yield number
            number += 1
            if isinstance(generator, Loop):
                number %= generator.documents
    weights = ((rank + 1) ** -generator.exponent for rank in range(generator.documents))
    upto = array("d", accumulate(weights))
    while True:
        yield bisect_left(upto, draw.random() * upto[-1])


def _arrivals(
    per_second: float, duration_s: float, arrivals: _Arrivals, draw: random.Random
) -> Iterator[int]:
    """Milliseconds at which something arrives."""
    if arrivals == "regular":
        # Multiplied, not summed: the count must not depend on rounding.
        count = 0
        while (at_s := count / per_second) < duration_s:
            yield int(at_s * 1000)
            count += 1
        return
    at_s = draw.expovariate(per_second)
    while at_s < duration_s:
        yield int(at_s * 1000)
        at_s += draw.expovariate(per_second)


@dataclass(frozen=True, slots=True)
class _Turn:
    now_ms: int
    session: int
    first_key: int
    num_own: int
    """Blocks besides those that all conversations share."""

    def keys(self, num_shared: int) -> Iterator[int]:
        yield from range(num_shared)
        yield from range(self.first_key, self.first_key + self.num_own)


def _turns(chat: Chat, duration_s: float, draw: random.Random) -> Iterator[_Turn]:
    first_key = chat.shared_blocks
    starts = _arrivals(chat.sessions_per_second, duration_s, chat.arrivals, draw)
    for session, start_ms in enumerate(starts):
        now_ms, num_own = start_ms, chat.first_blocks
        yield _Turn(now_ms, session, first_key, num_own)
        while draw.random() >= 1 / chat.mean_turns:
            now_ms += int(draw.expovariate(1 / chat.mean_think_s) * 1000)
            if now_ms >= duration_s * 1000:
                break
            num_own += chat.blocks_per_turn
            yield _Turn(now_ms, session, first_key, num_own)
        first_key += num_own
