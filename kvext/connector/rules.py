"""What the planner consumes: the tier's lookup, the engine's block tables, fixed rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvext.protocol.layout import RecordShape
from kvext.protocol.tier import Lease

__all__ = ["NO_MATCH", "CacheGroup", "EngineBlocks", "Match", "Matcher", "PlanRules"]


class Matcher(Protocol):
    """The part of a tier that a scheduler needs."""

    @property
    def bypassed(self) -> bool:
        """Whether it is switched off: nothing is matched and nothing stored."""
        ...

    def match(self, keys: bytes, shape: RecordShape) -> Lease:
        """Pin the longest prefix of `keys` that is stored in this shape."""
        ...

    def lookup(self, keys: bytes, shape: RecordShape) -> bytes:
        """One byte a key: 1 if it is stored in this shape. Pins nothing."""
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

    def block_ids(self, request_id: str, group: int = 0) -> Sequence[int]:
        """The blocks that a live request has now, in order; empty if it has none."""
        ...

    def block_ids_of(self, request_id: str, blocks: range, group: int = 0) -> Sequence[int]:
        """Some of them, by index within the request, at a cost that only these determine."""
        ...

    def forget(self, block_ids: set[int]) -> None:
        """Take blocks out of the engine's own prefix cache: their bytes are in doubt."""
        ...

    def rewind(self, request_id: str, num_tokens: int) -> None:
        """Have a live request compute everything behind its first `num_tokens` again."""
        ...


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers whose blocks an engine keeps and drops together.

    Attributes:
        shape: Which records hold this group's part of a block.
        record_bytes: Bytes of one of them.
        window_tokens: Tokens that the layers see, the newest included; None if they see all.
    """

    shape: RecordShape
    record_bytes: int
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What does not change while the engine runs.

    Attributes:
        shape: Which records this engine reads and writes.
        record_bytes: Bytes of one block, over all groups.
        async_loads: Whether other requests compute while blocks come in.
        sync_loads: Whether blocks may come in within a step; not if the engine plans a step before
            it has heard of the last one.
        store: Whether anything is saved.
        shadow_share: Of all hits, those that are computed and compared instead; nothing is
            compared that is not offered, so 0 without `store`.
        always_load: Load what is found even where computing it is expected to be faster.
        lease_s: How long a load may take.
        queued_blocks: Most blocks that are pinned for requests in the engine's queue.
        adapter_wait_s: How long a request may wait for its adapter's digest.
        groups: The KV groups of an engine that has several or drops blocks that lie behind a
            window; empty if there is one that keeps all, as `shape` and `record_bytes` say. Such
            an engine cannot be told which block failed, so its loads are asynchronous.
        null_block: What an engine's tables hold in place of a block that it has dropped.
    """

    shape: RecordShape
    record_bytes: int
    async_loads: bool = False
    sync_loads: bool = True
    store: bool = True
    shadow_share: float = 0.0
    always_load: bool = False
    lease_s: float = 30.0
    adapter_wait_s: float = 20.0
    queued_blocks: int = 0
    groups: tuple[CacheGroup, ...] = ()
    null_block: int = -1


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
