"""What an eviction policy is asked and what it answers.

A policy decides which blocks a cache of bounded size keeps. It is pure: it sees keys, sizes,
costs and the time that it is told, holds metadata alone, and answers with victims. It knows no
engine, no clock of its own and no bytes.

Invariant: after `access`, `evict` or `resize`, `size` is at most `capacity`, and whatever left
the cache was named as a victim exactly once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

__all__ = ["Access", "Admission", "EvictionPolicy", "Session"]


class Session(IntEnum):
    """What the application says of the conversation that a request belongs to."""

    UNKNOWN = 0
    """Nothing."""
    OPEN = 1
    """Another request will follow."""
    CLOSED = 2
    """This was its last request."""


@dataclass(frozen=True, slots=True)
class Access:
    """One request's blocks, told to a policy when the request is over.

    Attributes:
        now_ms: When, in milliseconds of any clock that never runs backwards; 0 or more.
        keys: Keys of the prompt's blocks, head first, 64 bits each; equal prefixes have equal
            keys. `array("Q")` spares a copy.
        input_tokens: Length of the prompt.
        output_tokens: Length of the answer; -1 where it is not known.
        partial_tail: The last block is not full, as some traces have it; it will hardly be
            asked for again.
        block_size: What each block takes of the capacity, in the capacity's unit.
        first_cost_s: What computing the first block costs, in seconds.
        cost_step_s: How much more each next block costs than the one before, in seconds:
            attention reads all blocks before it.
        session: What is known of the conversation.
        return_ms: In how many milliseconds the application expects to be back; -1 if it did not
            say.
    """

    now_ms: int
    keys: Sequence[int]
    input_tokens: int
    output_tokens: int = -1
    partial_tail: bool = False
    block_size: int = 1
    first_cost_s: float = 0.0
    cost_step_s: float = 0.0
    session: Session = Session.UNKNOWN
    return_ms: int = -1


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of an access.

    Attributes:
        num_hits: Blocks of the prompt's longest cached prefix, before the access.
        victims: Keys that must leave the cache now. A key of the access itself among them was
            not cached before and shall not be stored (bypass), or was, and leaves.
    """

    num_hits: int
    victims: Sequence[int]


class EvictionPolicy(Protocol):
    """Decides what a cache keeps. All sizes are in one unit of the caller's choice."""

    @property
    def capacity(self) -> int:
        """The most that the cache may hold."""
        ...

    @property
    def size(self) -> int:
        """What it holds now."""
        ...

    def access(self, access: Access) -> Admission:
        """Count the hits, note the access, take in the missing blocks, name the victims.

        Raises:
            ValueError: The time runs backwards, or a size is 0.
        """
        ...

    def evict(self, size: int) -> Sequence[int]:
        """Name victims of at least this size together, or all that there is."""
        ...

    def resize(self, capacity: int) -> Sequence[int]:
        """Change the capacity; name the victims if it shrank below the size."""
        ...

    def remove(self, keys: Iterable[int]) -> None:
        """Forget blocks that left the cache for other reasons; unknown ones are ignored."""
        ...

    def __contains__(self, key: int) -> bool:
        """Whether the cache holds this block."""
        ...
