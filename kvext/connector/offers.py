"""Which blocks a step offers to the tier: full, final, ours, and each once."""

import sys
from collections.abc import Iterable, Mapping

from kvext.connector.admission import StoreGate
from kvext.connector.agenda import Agenda
from kvext.connector.doubt import settle_doubt
from kvext.connector.foreign import ForeignBlocks
from kvext.connector.lookup import Lookup
from kvext.connector.plan import SaveJob, saveable_blocks
from kvext.connector.request import RequestState
from kvext.connector.rules import EngineBlocks

__all__ = ["Offers"]


class Offers:
    """Makes the save jobs of each step."""

    __slots__ = (
        "_agenda",
        "_block_tokens",
        "_engine",
        "_foreign",
        "_gate",
        "_last_save_id",
        "_lookup",
    )

    def __init__(
        self,
        engine: EngineBlocks,
        lookup: Lookup,
        foreign: ForeignBlocks,
        agenda: Agenda,
        block_tokens: int,
        gate: StoreGate | None = None,
    ) -> None:
        """Take what choosing needs.

        Args:
            engine: The engine's block tables.
            lookup: Knows namespaces and keys.
            foreign: Blocks that must not be offered.
            agenda: Who is looked at when; whoever ends a request dismisses it.
            block_tokens: Tokens a block.
            gate: Keeps back what is not worth storing; None keeps nothing back.
        """
        self._gate = gate
        self._engine = engine
        self._lookup = lookup
        self._foreign = foreign
        self._block_tokens = block_tokens
        self._last_save_id = 0
        self._agenda = agenda

    def look_at(self, request_id: str, state: RequestState) -> None:
        """Have a request looked at in its next step, whatever it computes."""
        state.due_tokens = 0
        self._agenda.call(request_id)

    def look_at_all(self, requests: Mapping[str, RequestState]) -> None:
        """Have every request looked at in its next step; the engine's queue may be long."""
        for request_id, state in requests.items():
            if state.is_admitted:  # else it is once it has blocks
                self.look_at(request_id, state)

    def plan(
        self, requests: Mapping[str, RequestState], num_scheduled: Mapping[str, int]
    ) -> tuple[SaveJob, ...]:
        """Choose the blocks that the step makes final and that have not been offered yet.

        Args:
            requests: The live requests.
            num_scheduled: By request, the tokens that the step computes.

        Returns:
            What the worker shall offer after the forward pass.
        """
        jobs: list[SaveJob] = []
        chosen = self._agenda.choose(num_scheduled)
        state: RequestState | None = None
        try:
            for request_id in chosen:
                state = requests.get(request_id)
                if state is None:
                    self._agenda.dismiss(request_id)
                    continue
                job = self._look(request_id, state, num_scheduled[request_id])
                if job is not None:
                    jobs.append(job)
        except Exception:
            if state is not None:
                state.refuse("error: its blocks could not be offered; the engine's log says why")
            self._take_back(requests, chosen, jobs)
            raise
        return tuple(jobs)

    def _take_back(
        self, requests: Mapping[str, RequestState], chosen: Iterable[str], jobs: Iterable[SaveJob]
    ) -> None:
        """A plan has failed and nobody gets its jobs: have the next one choose the same blocks."""
        for job in jobs:
            state = requests[job.request_id]
            state.next_save = job.first_block
            state.counts.unreported_stores -= len(job.block_ids)
        for request_id in chosen:
            if request_id in requests:
                self.look_at(request_id, requests[request_id])

    def _look(self, request_id: str, state: RequestState, num_scheduled: int) -> SaveJob | None:
        """Offer what a step makes final of a request, and say when to look at it again."""
        before = self._engine.num_computed(request_id)
        after = before + num_scheduled
        if after < state.due_tokens:
            self._agenda.keep_off(request_id, self._num_steps(state, after))
            return None
        if state.doubt_from is not None:
            settle_doubt(state, before, self._block_tokens)
        if state.uncached or state.save_limit is not None:
            return self._look_closer(request_id, state, after)
        job = self._save(request_id, state, after)
        state.due_tokens = (state.next_save + 1) * self._block_tokens
        self._agenda.put_off(request_id, self._num_steps(state, after))
        return job

    def _look_closer(self, request_id: str, state: RequestState, after: int) -> SaveJob | None:
        """See what a request may offer of which something may not be offered."""
        if state.save_limit is None:
            state.due_tokens = sys.maxsize
            self._agenda.dismiss(request_id)
            return None
        self._foreign.follow(request_id, state)
        self.look_at(request_id, state)
        if state.uncached:
            return None
        return self._save(request_id, state, min(after, state.save_limit * self._block_tokens))

    def _num_steps(self, state: RequestState, after: int) -> int:
        """How many steps a request with `after` computed tokens has at least nothing to offer."""
        if after < len(state.tokens):
            return 1  # what is left of its prompt may be computed in one step
        return min(max(state.due_tokens - after, 1), self._block_tokens)

    def _save(self, request_id: str, state: RequestState, after: int) -> SaveJob | None:
        """Offer what is not offered yet of a request's first `after` tokens."""
        start = state.next_save
        stop = saveable_blocks(len(state.tokens), after, self._block_tokens)
        if stop <= start:
            return None
        namespace = state.resolution or self._lookup.namespace(state)
        if namespace is None:
            return None
        digest = namespace.identity.digest
        if self._gate is not None:
            state.next_save = stop
            stop = self._gate.limit(state, digest, stop)
            if stop <= start:
                return None
        blocks = range(start, stop)
        block_ids = tuple(self._engine.block_ids_of(request_id, blocks))
        keys = state.keys(blocks, digest, self._block_tokens)
        if not keys or len(block_ids) < stop - start:
            return None
        state.next_save = max(state.next_save, stop)
        state.counts.unreported_stores += stop - start
        self._last_save_id += 1
        return SaveJob(
            request_id, keys, digest, block_ids, namespace.guard, self._last_save_id, start
        )
