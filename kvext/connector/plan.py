"""What one engine step shall move, as values that travel from scheduler to worker.

Which blocks may move is decided by the two functions here, which are pure: a block may be
saved only when all its tokens are accepted and computed by the end of the step, and loaded
only when it lies wholly beyond the engine's own hit and leaves the engine a token to compute.
"""

from dataclasses import dataclass

from kvext.protocol.digest import WeightsSnapshot

__all__ = [
    "AdapterGuard",
    "LoadJob",
    "SaveJob",
    "StepPlan",
    "loadable_blocks",
    "saveable_blocks",
]


@dataclass(frozen=True, slots=True)
class AdapterGuard:
    """The state of an adapter's files for which a namespace holds.

    The worker compares it with the state it saw when the engine read the adapter: only then do
    the engine's weights and the namespace's digest mean the same adapter.
    """

    adapter_id: int
    snapshot: WeightsSnapshot


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Blocks that one request needs from the tier.

    Attributes:
        load_id: Names the load in its report.
        request_id: Whose blocks.
        refs: The lease's references, `REF_BYTES` a block, of several ranks one after the other.
            Too few of them is a promise that cannot be kept any more: every block then fails and
            the engine recomputes.
        block_ids: Places in the engine's KV memory, one a reference.
        is_async: Whether the engine computes other requests meanwhile.
        guard: The adapter state that the blocks belong to, if any.
    """

    load_id: int
    request_id: str
    refs: bytes
    block_ids: tuple[int, ...]
    is_async: bool
    guard: AdapterGuard | None = None


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Full blocks of one request that are offered to the tier after the step's forward pass.

    Attributes:
        request_id: Whose blocks.
        keys: 32 bytes a block.
        namespace: Digest that the keys were derived from.
        block_ids: Places in the engine's KV memory, one a key.
        guard: The adapter state that the blocks were computed with, if any.
        save_id: Names the job in its report.
        first_block: Index of the first block within the request.
        is_shadow: Whether the blocks are to be compared with the tier's records of the same keys.
    """

    request_id: str
    keys: bytes
    namespace: bytes
    block_ids: tuple[int, ...]
    guard: AdapterGuard | None = None
    save_id: int = 0
    first_block: int = 0
    is_shadow: bool = False


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that one step shall move.

    Attributes:
        loads: Blocks to bring in.
        saves: Blocks to offer afterwards.
        failures_seen: Failed loads that the scheduler knew of when it made the plan. A worker
            that has seen more saves nothing: blocks may have been computed on garbage.
        step: Number that the worker repeats in its report, so that the step can be timed; or 0.
        weights_epoch: How often the engine's weights have changed. A load that began before the
            last change fails.
        num_tokens: What the step computes: behind how much its loads can hide.
    """

    loads: tuple[LoadJob, ...] = ()
    saves: tuple[SaveJob, ...] = ()
    failures_seen: int = 0
    step: int = 0
    weights_epoch: int = 0
    num_tokens: int = 0


def loadable_blocks(num_computed: int, num_tokens: int, block_tokens: int) -> range:
    """Blocks worth asking a tier for.

    Args:
        num_computed: Tokens that the engine has already; must end at a block's end.
        num_tokens: All of the request's tokens; at least one is left to compute.
        block_tokens: Tokens a block.

    Returns:
        Block indices within the request, empty when there are none.
    """
    if num_computed % block_tokens:
        return range(0)
    return range(num_computed // block_tokens, max(num_tokens - 1, 0) // block_tokens)


def saveable_blocks(num_accepted: int, num_computed: int, block_tokens: int) -> int:
    """Leading blocks of a request that are final once a step has run.

    Args:
        num_accepted: Tokens that are final; drafts and placeholders are none.
        num_computed: Tokens whose KV will then have been computed or loaded.
        block_tokens: Tokens a block.
    """
    return min(num_accepted, num_computed) // block_tokens
