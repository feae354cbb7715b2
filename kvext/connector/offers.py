"""Which blocks a step offers to the tier: full, final, ours, and each once."""

import sys
from collections.abc import Iterable, Mapping

from kvext.connector.admission import StoreGate
from kvext.connector.agenda import Agenda
from kvext.connector.doubt import settle_doubt
from kvext.connector.foreign import ForeignBlocks
from kvext.connector.lookup import Lookup
from kvext.connector.places import place_in_group
from kvext.connector.plan import SaveJob, saveable_blocks
from kvext.connector.request import RequestState
from kvext.connector.rules import EngineBlocks, PlanRules
from kvext.connector.tradeoff import Choice

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
        "_rules",
    )

    def __init__(
        self,
        engine: EngineBlocks,
        lookup: Lookup,
        foreign: ForeignBlocks,
        agenda: Agenda,
        rules: PlanRules,
        gate: StoreGate | None = None,
    ) -> None:
        """Take what choosing needs.

        Args:
            engine: The engine's block tables.
            lookup: Knows namespaces and keys.
            foreign: Blocks that must not be offered.
            agenda: Who is looked at when; whoever ends a request dismisses it.
            rules: What does not change.
            gate: Keeps back what is not worth storing; None keeps nothing back.
        """
        self._gate = gate
        self._engine = engine
        self._lookup = lookup
        self._foreign = foreign
        self._rules = rules
        self._block_tokens = rules.shape.block_tokens
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
        is_shadow = state.choice is Choice.SHADOW
        if is_shadow:  # the engine's own hit may come from the tier and proves nothing
            num_local = state.local_tokens // self._block_tokens
            state.next_save = max(state.next_save, num_local)
        start = state.next_save
        stop = saveable_blocks(len(state.tokens), after, self._block_tokens)
        if stop <= start:
            return None
        namespace = state.resolution or self._lookup.namespace(state)
        if namespace is None:
            return None
        digest = namespace.identity.digest
        if self._gate is not None and not is_shadow:
            state.next_save = stop
            stop = self._gate.limit(state, digest, stop)
            if stop <= start:
                return None
        blocks = range(start, stop)
        if self._rules.groups:
            found = self._joint_blocks(request_id, state, blocks, digest)
        else:
            found = self._blocks(request_id, state, blocks, digest)
        if found is None:
            return None
        state.next_save = max(state.next_save, stop)
        keys, block_ids = found
        if not block_ids:
            return None
        state.counts.unreported_stores += len(block_ids)
        self._last_save_id += 1
        save_id, guard = self._last_save_id, namespace.guard
        return SaveJob(request_id, keys, digest, block_ids, guard, save_id, start, is_shadow)

    def _blocks(
        self, request_id: str, state: RequestState, blocks: range, namespace: bytes
    ) -> tuple[bytes, tuple[int, ...]] | None:
        """Keys and places of some blocks, or None if they cannot be told now."""
        block_ids = tuple(self._engine.block_ids_of(request_id, blocks))
        keys = state.keys(blocks, namespace, self._block_tokens)
        return (keys, block_ids) if keys and len(block_ids) == len(blocks) else None

    def _joint_blocks(
        self, request_id: str, state: RequestState, blocks: range, namespace: bytes
    ) -> tuple[bytes, tuple[int, ...]] | None:
        """The same for what all groups still hold of them, which may be nothing.

        A group drops blocks from the left once they lie behind its window. What it holds then is
        another request's, so nothing of a group is offered before the last dropped block.
        """
        made = state.group_keys(blocks.stop, namespace, self._block_tokens)
        if made is None:
            return None
        keys, places = bytearray(), []
        for number in range(len(self._rules.groups)):
            held = list(self._engine.block_ids_of(request_id, blocks, number))
            if len(held) < len(blocks):
                return None
            kept = blocks[_num_dropped(held, self._rules.null_block) :]
            keys += made.of(number, kept)
            ids = held[len(held) - len(kept) :]
            places += [place_in_group(self._engine.num_blocks, number, block) for block in ids]
        return bytes(keys), tuple(places)


def _num_dropped(held: list[int], null_block: int) -> int:
    """Blocks up to the last one that an engine has dropped."""
    if null_block not in held:
        return 0
    return len(held) - held[::-1].index(null_block)
