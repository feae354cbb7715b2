"""What the planner consumes: the tier's lookup, the engine's block tables, fixed rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import Lease

__all__ = ["NO_MATCH", "EngineBlocks", "Match", "Matcher", "PlanRules"]


class Matcher(Protocol):
    """The part of a tier that a scheduler needs."""

    @property
    def bypassed(self) -> bool:
        """Whether it is switched off: nothing is matched and nothing stored."""
        ...

    def match(self, keys: bytes, shape: RecordShape) -> Lease:
        """Pin the longest prefix of `keys` that is stored in this shape."""
        ...


class EngineBlocks(Protocol):
    """The engine's own bookkeeping of KV memory."""

    @property
    def num_blocks(self) -> int:
        """Blocks in all; their ids are below this."""
        ...

    def num_computed(self, request_id: str) -> int:
        """A live request's tokens that have KV, or get it in steps that are planned already."""
        ...

    def block_ids(self, request_id: str) -> Sequence[int]:
        """The blocks that a live request has now, in order; empty if it has none."""
        ...

    def block_ids_of(self, request_id: str, blocks: range) -> Sequence[int]:
        """Some of them, by index within the request, at a cost that only these determine."""
        ...

    def forget(self, block_ids: set[int]) -> None:
        """Take blocks out of the engine's own prefix cache: their bytes are in doubt."""
        ...

    def rewind(self, request_id: str, num_tokens: int) -> None:
        """Have a live request compute everything behind its first `num_tokens` again."""
        ...


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What does not change while the engine runs.

    Attributes:
        shape: Which records this engine reads and writes.
        record_bytes: Bytes of one block.
        async_loads: Whether other requests compute while blocks come in.
        sync_loads: Whether blocks may come in within a step; not if the engine plans a step before
            it has heard of the last one.
        store: Whether anything is saved.
        always_load: Load what is found even where computing it is expected to be faster.
        lease_s: How long a load may take.
        queued_blocks: Most blocks that are pinned for requests in the engine's queue.
        adapter_wait_s: How long a request may wait for its adapter's digest.
    """

    shape: RecordShape
    record_bytes: int
    async_loads: bool = False
    sync_loads: bool = True
    store: bool = True
    always_load: bool = False
    lease_s: float = 30.0
    adapter_wait_s: float = 20.0
    queued_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """What the tier has beyond the engine's own hit.

    Attributes:
        num_tokens: Tokens that can be loaded.
        is_async: Whether they come in between steps.
        must_wait: Ask again in the next pass; the rest is meaningless.
    """

    num_tokens: int = 0
    is_async: bool = False
    must_wait: bool = False


NO_MATCH = Match()
