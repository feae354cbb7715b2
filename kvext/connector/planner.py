"""The scheduler's half: what to look up, load and save, and what to do when a load failed.

An adapter calls `match` and `allocate` while its engine schedules, then `take_loads`,
`plan_saves` and `end_pass` to make the step's plan, and `learn` when the worker has reported.

Invariants: a match lives for one scheduling pass, a load's lease until its report, the
request's end or its deadline, so pins return to zero. Whatever `match` promised and `allocate`
accepted is in the plan, even if only to fail there. After a failed load, nothing is saved
until the plan is made by someone who knows of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kvext.connector.doubt import contain_failed_load
from kvext.connector.foreign import ForeignBlocks
from kvext.connector.ledger import InFlightLoad, LoadLedger
from kvext.connector.lookup import Lookup
from kvext.connector.namespaces import NamespaceBook, Subject
from kvext.connector.offers import Offers
from kvext.connector.plan import LoadJob, SaveJob, ScheduledRequest
from kvext.connector.report import LoadReport, WorkerReport
from kvext.connector.request import BlockKeys, PendingMatch, RequestState
from kvext.connector.rules import NO_MATCH, EngineBlocks, Match, Matcher, PlanRules
from kvext.connector.tradeoff import LoadOrRecompute
from kvext.protocol.key import ExtendChain
from kvext.protocol.tier import REF_BYTES

__all__ = ["Planner"]


class Planner:
    """Knows every live request and makes the plan of each step.

    Attributes:
        failures_seen: Failed loads that the worker has told of, for `StepPlan`.
        weights_epoch: How often the engine's weights have changed, for `StepPlan`.
        foreign: Finds KV that others brought in; to be settled before `plan_saves`.
    """

    def __init__(
        self,
        matcher: Matcher,
        engine: EngineBlocks,
        namespaces: NamespaceBook,
        rules: PlanRules,
        clock: Callable[[], float],
        extend: ExtendChain,
        block_keys: BlockKeys,
    ) -> None:
        """Begin with no requests.

        Args:
            matcher: The tier.
            engine: The engine's block tables.
            namespaces: Resolves a request's subject.
            rules: What does not change.
            clock: Monotonic time in seconds.
            extend: `extend_chain`, native or not.
            block_keys: `block_keys`, native or not.
        """
        self.tradeoff = LoadOrRecompute(rules, clock)
        self._lookup = Lookup(matcher, namespaces, rules, self.tradeoff, clock)
        self._engine = engine
        self._rules = rules
        self._clock = clock
        self._extend = extend
        self._block_keys = block_keys
        self._requests: dict[str, RequestState] = {}
        self._matched: dict[str, RequestState] = {}
        self._loads: list[LoadJob] = []
        self._ledger = LoadLedger(clock)
        self._block_tokens = rules.shape.block_tokens
        self._last_load_id = 0
        self.failures_seen = 0
        self.weights_epoch = 0
        self.foreign = ForeignBlocks(engine, self._block_tokens)
        self._offers = Offers(engine, self._lookup, self.foreign, self._block_tokens)

    @property
    def due_tokens(self) -> Mapping[str, int]:
        """By request, the computed tokens from which on `plan_saves` wants to see it."""
        return self._offers.due_tokens

    @property
    def num_leases(self) -> int:
        """Matches and loads that may pin blocks now."""
        return len(self._matched) + len(self._ledger)

    def begin(
        self,
        request_id: str,
        tokens: Sequence[int],
        subject: Subject,
        *,
        uncached: str = "",
        unread: str = "",
    ) -> None:
        """Meet a new request.

        Args:
            request_id: The engine's name for it.
            tokens: Its accepted tokens; the engine's live sequence, which grows.
            subject: Decides its namespace.
            uncached: Why the cache must not touch it, or empty.
            unread: Why nothing may be loaded for it, or empty.
        """
        self._drop(request_id)
        state = RequestState(tokens, subject, self._extend, self._block_keys)
        state.may_load = not unread
        state.counts.reason = unread
        if uncached:
            state.refuse(uncached)
        self._requests[request_id] = state
        self._offers.look_at(request_id)

    def match(self, request_id: str, num_computed: int, num_tokens: int) -> Match:
        """Look up what the tier has for a request and pin it until the pass ends.

        Args:
            request_id: A request that has begun.
            num_computed: Tokens of the engine's own hit.
            num_tokens: All its accepted tokens.

        Returns:
            What was found; a second call forgets the first.
        """
        state = self._requests.get(request_id)
        if state is None:
            return NO_MATCH
        state.release_match()
        state.local_tokens = state.expected_tokens = num_computed
        match = self._lookup.find(state, num_computed, num_tokens)
        if match.num_tokens:
            self._matched[request_id] = state
        return match

    def allocate(self, request_id: str, block_ids: Sequence[int], num_external: int) -> None:
        """The engine has given a request its blocks.

        Args:
            request_id: A request that has begun.
            block_ids: All its blocks, those of the engine's own hit first.
            num_external: Tokens that the engine expects to be loaded; may be fewer than found.
        """
        self._matched.pop(request_id, None)
        state = self._requests.get(request_id)
        if state is None:
            return
        if not state.is_admitted:
            state.is_admitted = True
            state.counts.local_tokens = state.local_tokens
        # After an asynchronous load the engine allocates again, without asking and for nothing new.
        state.expected_tokens = max(state.expected_tokens, state.local_tokens + num_external)
        self.foreign.admit(request_id, state, block_ids)
        self._offers.look_at(request_id)
        match = state.take_match()
        if match is None:
            return
        if num_external == 0:
            match.lease.release()
            return
        self._promise(request_id, state, match, block_ids, num_external)

    def take_loads(self) -> tuple[LoadJob, ...]:
        """The loads of this pass; each is handed out once."""
        loads, self._loads = tuple(self._loads), []
        return loads

    def plan_saves(self, scheduled: Iterable[ScheduledRequest]) -> tuple[SaveJob, ...]:
        """Choose the full, final blocks that have not been offered yet.

        Args:
            scheduled: The requests of this step that are due.

        Returns:
            What the worker shall offer after the forward pass.
        """
        if not self._rules.store:
            return ()
        return self._offers.plan(self._requests, scheduled)

    def distrust_memory(self) -> None:
        """Save nothing of what the engine holds now, nor what is computed on it."""
        self.foreign.distrust_all(self._requests)
        self._offers.look_at(*self._requests)

    def change_weights(self, reason: str) -> None:
        """The engine's weights are about to change: nothing computed so far is anybody's.

        Args:
            reason: For the responses of the live requests.
        """
        self.end_pass()
        self.weights_epoch += 1
        for state in self._requests.values():
            state.refuse(reason)
        self.distrust_memory()
        self._engine.forget(set(range(self._engine.num_blocks)))

    def end_pass(self) -> None:
        """Give back what was found but not taken in this pass, and loads past their deadline."""
        for state in self._matched.values():
            state.release_match()
        self._matched.clear()
        self._ledger.sweep()

    def learn(self, report: WorkerReport) -> None:
        """Hear what became of earlier plans.

        Args:
            report: The worker's.
        """
        self.tradeoff.learn(report)
        for store in report.stores:
            state = self._requests.get(store.request_id)
            if state is not None:
                state.counts.add_store(store)
        for load in report.loads:
            self._learn_load(load)
        if any(load.failures for load in report.loads):
            self._offers.look_at(*self._requests)
        if report.num_failures != self.failures_seen:
            self.failures_seen = report.num_failures
            # The worker has refused to save since; offering a block twice is harmless.
            for state in self._requests.values():
                state.next_save = 0
            self._offers.look_at(*self._requests)

    def finish(
        self, request_id: str, block_ids: Sequence[int], *, is_complete: bool
    ) -> dict[str, object]:
        """Part from a request.

        Args:
            request_id: Its name.
            block_ids: All its blocks, which the engine is about to free.
            is_complete: Whether it ended by itself. An engine never completes a request in a
                step whose load failed, so a load without a report has succeeded then.

        Returns:
            The request's counts, JSON-ready.
        """
        state = self._drop(request_id)
        if state is None:
            return {}
        for load_id, load in self._ledger.of_request(request_id):
            load.block_table = tuple(block_ids) or load.block_table
            if is_complete and not load.is_async:
                presumed = load.presumed(load_id, self._rules.record_bytes)
                state.counts.add_load(presumed, self._block_tokens)
        return state.counts.as_dict()

    def close(self) -> None:
        """Give every pin back."""
        self.end_pass()
        self._ledger.close_all()
        self._requests.clear()

    def _drop(self, request_id: str) -> RequestState | None:
        self._matched.pop(request_id, None)
        self.foreign.part(request_id)
        self._offers.due_tokens.pop(request_id, None)
        state = self._requests.pop(request_id, None)
        if state is not None:
            state.release_match()
        return state

    def _promise(
        self,
        request_id: str,
        state: RequestState,
        match: PendingMatch,
        block_ids: Sequence[int],
        num_external: int,
    ) -> None:
        first, num_blocks = match.first_block, num_external // self._block_tokens
        ids = tuple(block_ids[first : first + num_blocks])
        guard = None if state.resolution is None else state.resolution.guard
        self._last_load_id += 1
        # The engine counts on these blocks from now on. Should anything below fail, this job
        # without references does, too, and the engine recomputes.
        job = LoadJob(self._last_load_id, request_id, b"", ids, match.is_async, guard)
        self._loads.append(job)
        deadline_s = self._clock() + self._rules.lease_s
        load = InFlightLoad(
            request_id, match.lease, first, num_blocks, match.is_async, tuple(block_ids), deadline_s
        )
        self._ledger.open(job.load_id, load)
        refs = bytes(match.lease.refs[: num_blocks * REF_BYTES])
        self._loads[-1] = replace(job, refs=refs)

    def _learn_load(self, report: LoadReport) -> None:
        load = self._ledger.close(report.load_id)
        state = self._requests.get(report.request_id)
        if state is not None:
            state.counts.add_load(report, self._block_tokens)
            state.may_load = state.may_load and not report.failures
        if report.failures and load is not None and not load.is_async:
            contain_failed_load(
                self._requests,
                self._engine,
                report.request_id,
                load,
                report.num_usable,
                self._block_tokens,
            )
