"""The scheduler's half: what to look up, load and save, and what to do when a load failed.

An adapter calls `match` and `allocate` while its engine schedules, then `take_loads`,
`plan_saves` and `end_pass` to make the step's plan, and `learn` when the worker has reported.

Invariants: a match lives for one scheduling pass, so pins return to zero. Whatever `match`
promised and `allocate` accepted is in the plan. After a failed load, nothing is saved until the
plan is made by someone who knows of it.
"""

from collections.abc import Callable, Mapping, Sequence

from kvext.connector.admission import StoreGate, StoreJudge
from kvext.connector.agenda import Agenda
from kvext.connector.decisions import Decisions
from kvext.connector.foreign import ForeignBlocks
from kvext.connector.group_keys import MakeGroupKeys
from kvext.connector.lookup import Lookup
from kvext.connector.namespaces import NamespaceBook, Subject
from kvext.connector.offers import Offers
from kvext.connector.plan import LoadJob, SaveJob
from kvext.connector.promises import Promises
from kvext.connector.queued import QueuePins
from kvext.connector.report import WorkerReport
from kvext.connector.request import ExtendKeys, RequestState, TokenList
from kvext.connector.rules import NO_MATCH, EngineBlocks, Match, Matcher, PlanRules
from kvext.connector.shadow import CheckReport, ShadowSampler, unforeseeable
from kvext.connector.tradeoff import Choice, LoadOrRecompute

__all__ = ["Planner"]


class Planner:
    """Knows every live request and makes the plan of each step.

    Attributes:
        failures_seen: Failed loads that the worker has told of, for `StepPlan`.
        weights_epoch: How often the engine's weights have changed, for `StepPlan`.
        tradeoff: Measures and chooses.
        decisions: What was decided against, for the metrics.
    """

    def __init__(  # noqa: PLR0913 - everything that it works with comes from outside
        self,
        matcher: Matcher,
        engine: EngineBlocks,
        namespaces: NamespaceBook,
        rules: PlanRules,
        clock: Callable[[], float],
        extend: ExtendKeys,
        make_group_keys: MakeGroupKeys | None = None,
        *,
        judge: StoreJudge | None = None,
        draw: Callable[[], float] = unforeseeable,
    ) -> None:
        """Begin with no requests.

        Args:
            matcher: The tier.
            engine: The engine's block tables.
            namespaces: Resolves a request's subject.
            rules: What does not change.
            clock: Monotonic time in seconds.
            extend: `extend_keys`, native or not.
            make_group_keys: Begins a request's keys, for engines with several KV groups.
            judge: Says which blocks are worth storing; None stands for all.
            draw: A random number in [0, 1) that clients cannot foresee.
        """
        self.tradeoff = LoadOrRecompute(rules, clock)
        self.decisions = Decisions()
        self._shadows = ShadowSampler(rules.shadow_share, draw, lambda: len(self._requests))
        self._lookup = Lookup(
            matcher, namespaces, rules, self.tradeoff, self._shadows, self.decisions, clock
        )
        self._queued = QueuePins(matcher, self._lookup, rules, clock)
        self._engine = engine
        self._rules = rules
        self._extend = extend
        self._make_group_keys = make_group_keys
        self._requests: dict[str, RequestState] = {}
        self._matched: dict[str, RequestState] = {}
        self._promises = Promises(engine, rules, clock)
        self.failures_seen = 0
        self.weights_epoch = 0
        self._foreign = ForeignBlocks(engine, rules)
        self._agenda = Agenda()
        block_tokens = rules.shape.block_tokens
        gate = None if judge is None else StoreGate(judge, self.decisions, block_tokens)
        self._offers = Offers(engine, self._lookup, self._foreign, self._agenda, rules, gate)

    @property
    def num_leases(self) -> int:
        """Matches and loads that may pin blocks now."""
        return len(self._matched) + len(self._promises) + len(self._queued)

    def begin(
        self,
        request_id: str,
        tokens: TokenList,
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
        state = RequestState(tokens, subject, self._extend, self._make_group_keys)
        state.may_load = not unread
        state.counts.reason = unread
        if uncached:
            state.refuse(uncached)
        self._requests[request_id] = state
        self._queued.arrive(request_id, state)

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
        if state.match is not None:
            state.release_match()
        state.local_tokens = state.expected_tokens = num_computed
        match = self._lookup.find(state, num_computed, num_tokens)
        if match.num_tokens:
            self._matched[request_id] = state
        return match

    def allocate(
        self, request_id: str, block_ids: Callable[[], Sequence[int]], num_external: int
    ) -> None:
        """The engine has given a request its blocks.

        Args:
            request_id: A request that has begun.
            block_ids: Gives all its blocks, those of the engine's own hit first.
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
        self._foreign.admit(request_id, state, block_ids)
        self._offers.look_at(request_id, state)
        match, state.match = state.match, None
        if match is not None and num_external == 0:
            match.lease.release()
        elif match is not None:
            self._promises.make(request_id, state, match, block_ids(), num_external)
        self._queued.leave(request_id)

    def take_loads(self) -> tuple[LoadJob, ...]:
        """The loads of this pass; each is handed out once."""
        return self._promises.take()

    def plan_saves(self, num_scheduled: Mapping[str, int]) -> tuple[SaveJob, ...]:
        """Choose the full, final blocks that have not been offered yet.

        Args:
            num_scheduled: By request, the tokens that the step computes; the engine's own
                counts do not include them yet.

        Returns:
            What the worker shall offer after the forward pass.
        """
        self._foreign.settle()
        if not self._rules.store:
            return ()
        return self._offers.plan(self._requests, num_scheduled)

    def distrust_memory(self) -> None:
        """Save nothing of what the engine holds now, nor what is computed on it."""
        self._foreign.distrust_all(self._requests)
        self._offers.look_at_all(self._requests)

    def change_weights(self, reason: str) -> None:
        """The engine's weights are about to change: nothing computed so far is anybody's.

        Args:
            reason: For the responses of the live requests.
        """
        self.end_pass()
        self._queued.close()
        self.weights_epoch += 1
        for state in self._requests.values():
            state.refuse(reason)
        self.distrust_memory()
        self._engine.forget(set(range(self._engine.num_blocks)))

    def end_pass(self) -> None:
        """Give back what was found but not taken in this pass, and loads past their deadline."""
        if self._matched:
            for state in self._matched.values():
                state.release_match()
            self._matched.clear()
        self._promises.sweep()
        self._queued.end_pass()

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
        has_failed = report.num_failures != self.failures_seen
        for load in report.loads:
            self._promises.learn(self._requests, load)
            has_failed = has_failed or bool(load.failures)
        for check in report.checks:
            self._hear_check(check)
        if report.num_failures != self.failures_seen:
            self.failures_seen = report.num_failures
            # The worker has refused to save since; offering a block twice is harmless.
            for state in self._requests.values():
                state.next_save = 0
        if has_failed:
            self._offers.look_at_all(self._requests)

    def _hear_check(self, check: CheckReport) -> None:
        state = self._requests.get(check.request_id)
        if state is not None:
            state.counts.add_check(check)
        if check.num_failed:
            # Blocks that were loaded before are as doubtful, and the engine would reuse them.
            self.distrust_memory()
            self._engine.forget(set(range(self._engine.num_blocks)))

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
        if state.was_promised:
            self._promises.part(request_id, state, block_ids, is_complete=is_complete)
        return state.counts.as_dict()

    def close(self) -> None:
        """Give every pin back."""
        self.end_pass()
        self._queued.close()
        self._promises.close()
        self._requests.clear()

    def _drop(self, request_id: str) -> RequestState | None:
        self._matched.pop(request_id, None)
        self._queued.leave(request_id)
        self._foreign.part(request_id)
        self._agenda.dismiss(request_id)
        state = self._requests.pop(request_id, None)
        if state is not None:
            if state.match is not None:
                state.release_match()
            if state.choice is Choice.SHADOW:
                self._shadows.part()
        return state
