"""Which blocks a step offers to the tier: full, final, ours, and each once."""

import sys
from collections.abc import Iterable, Mapping

from kvext.connector.doubt import settle_doubt
from kvext.connector.foreign import ForeignBlocks
from kvext.connector.identity import IdentityState
from kvext.connector.lookup import Lookup
from kvext.connector.plan import SaveJob, ScheduledRequest, saveable_blocks
from kvext.connector.request import RequestState
from kvext.connector.rules import EngineBlocks

__all__ = ["Offers"]


class Offers:
    """Makes the save jobs of each step.

    Attributes:
        due_tokens: By request, how many computed tokens make it worth a look. Most steps of most
            requests only decode one token more, and an engine may have hundreds of them.
    """

    __slots__ = (
        "_block_tokens",
        "_engine",
        "_foreign",
        "_last_save_id",
        "_lookup",
        "due_tokens",
    )

    def __init__(
        self, engine: EngineBlocks, lookup: Lookup, foreign: ForeignBlocks, block_tokens: int
    ) -> None:
        """Take what choosing needs.

        Args:
            engine: The engine's block tables.
            lookup: Knows namespaces and keys.
            foreign: Blocks that must not be offered.
            block_tokens: Tokens a block.
        """
        self._engine = engine
        self._lookup = lookup
        self._foreign = foreign
        self._block_tokens = block_tokens
        self._last_save_id = 0
        self.due_tokens: dict[str, int] = {}

    def look_at(self, *request_ids: str) -> None:
        """Have requests looked at in their next step, whatever they compute."""
        for request_id in request_ids:
            self.due_tokens[request_id] = 0

    def plan(
        self, requests: Mapping[str, RequestState], scheduled: Iterable[ScheduledRequest]
    ) -> tuple[SaveJob, ...]:
        """Choose the blocks that the step makes final and that have not been offered yet.

        Args:
            requests: The live requests.
            scheduled: The requests of this step; others compute nothing.

        Returns:
            What the worker shall offer after the forward pass.
        """
        jobs: list[SaveJob] = []
        for request in scheduled:
            state = requests.get(request.request_id)
            if state is None:
                continue
            settle_doubt(state, request, self._block_tokens)
            self._foreign.follow(request.request_id, state)
            if state.uncached:
                if state.save_limit is None:
                    self.due_tokens[request.request_id] = sys.maxsize
                continue
            stop = saveable_blocks(request, self._block_tokens)
            if state.save_limit is not None:
                stop = min(stop, state.save_limit)
            if stop > state.next_save:
                job = self._save(request.request_id, state, range(state.next_save, stop))
                if job is not None:
                    jobs.append(job)
            if state.save_limit is None:
                self.due_tokens[request.request_id] = (state.next_save + 1) * self._block_tokens
        return tuple(jobs)

    def _save(self, request_id: str, state: RequestState, blocks: range) -> SaveJob | None:
        identity = self._lookup.identity(state)
        if identity.state is not IdentityState.KNOWN or state.resolution is None:
            return None
        block_ids = self._engine.block_ids_of(request_id, blocks)
        keys = self._lookup.keys(state, blocks, identity.digest)
        if not keys or len(block_ids) < len(blocks):
            return None
        state.next_save = blocks.stop
        state.counts.unreported_stores += len(blocks)
        self._last_save_id += 1
        return SaveJob(
            request_id,
            keys,
            identity.digest,
            tuple(block_ids),
            state.resolution.guard,
            self._last_save_id,
            blocks.start,
        )
