"""Loads that the engine counts on, from the promise in a plan to the worker's report.

Invariant: whatever the engine was promised is in the plan, even if only to fail there; and no
lease outlives its load's report, its request's end or its deadline.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kvext.connector.doubt import contain_failed_load
from kvext.connector.ledger import InFlightLoad, LoadLedger
from kvext.connector.places import place_in_group
from kvext.connector.plan import LoadJob
from kvext.connector.ranks import leading_refs
from kvext.connector.reach import needed_blocks
from kvext.connector.report import LoadReport
from kvext.connector.request import PendingMatch, RequestState
from kvext.connector.rules import EngineBlocks, PlanRules

__all__ = ["Promises"]

_NOWHERE = (0,)
"""A block without a reference: such a job fails, whatever the block."""


class Promises:
    """Makes the load jobs of each pass and hears what became of them."""

    __slots__ = (
        "_block_tokens",
        "_clock",
        "_engine",
        "_last_load_id",
        "_ledger",
        "_loads",
        "_rules",
    )

    def __init__(self, engine: EngineBlocks, rules: PlanRules, clock: Callable[[], float]) -> None:
        """Begin with nothing promised.

        Args:
            engine: The engine's block tables.
            rules: What does not change.
            clock: Monotonic time in seconds.
        """
        self._engine = engine
        self._rules = rules
        self._clock = clock
        self._block_tokens = rules.shape.block_tokens
        self._last_load_id = 0
        self._loads: list[LoadJob] = []
        self._ledger = LoadLedger(clock)

    def __len__(self) -> int:
        """Loads in flight."""
        return len(self._ledger)

    def make(
        self,
        request_id: str,
        state: RequestState,
        match: PendingMatch,
        block_ids: Sequence[int],
        num_external: int,
    ) -> None:
        """The engine has accepted what was found.

        Args:
            request_id: Whose load.
            state: The request.
            match: What was found; its lease is ours from now on.
            block_ids: All the request's blocks.
            num_external: Tokens that the engine expects to be loaded; may be fewer than found.
        """
        first, num_blocks = match.first_block, num_external // self._block_tokens
        blocks = range(first, first + num_blocks)
        is_joint = bool(self._rules.groups)
        ids = _NOWHERE if is_joint else tuple(block_ids[first : blocks.stop])
        guard = None if state.resolution is None else state.resolution.guard
        state.was_promised = True
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
        if is_joint:
            if num_blocks == match.lease.num_blocks:  # a shorter one needs other blocks
                ids = self._joint_ids(request_id, blocks)
                self._loads[-1] = replace(job, refs=match.lease.refs, block_ids=ids)
            return
        self._loads[-1] = replace(job, refs=leading_refs(match.lease, num_blocks))

    def take(self) -> tuple[LoadJob, ...]:
        """The loads of this pass; each is handed out once."""
        if not self._loads:
            return ()
        loads, self._loads = tuple(self._loads), []
        return loads

    def learn(self, requests: Mapping[str, RequestState], report: LoadReport) -> None:
        """Hear what became of one load.

        Args:
            requests: The live requests.
            report: The worker's.
        """
        load = self._ledger.close(report.load_id)
        state = requests.get(report.request_id)
        if state is not None:
            told = report
            if self._rules.groups:  # its blocks are those of all groups; and it is all or nothing
                is_usable = load is not None and not report.failures
                told = replace(report, num_usable=load.num_blocks if load and is_usable else 0)
            state.counts.add_load(told, self._block_tokens)
            state.may_load = state.may_load and not report.failures
        if report.failures and load is not None and not load.is_async:
            contain_failed_load(
                requests,
                self._engine,
                report.request_id,
                load,
                report.num_usable,
                self._block_tokens,
            )

    def part(
        self, request_id: str, state: RequestState, block_ids: Sequence[int], *, is_complete: bool
    ) -> None:
        """A request has ended, maybe before its load was reported.

        Args:
            request_id: Its name.
            state: The request; gets the counts of loads that must have succeeded.
            block_ids: All its blocks, which the engine is about to free.
            is_complete: Whether it ended by itself. An engine never completes a request in a
                step whose load failed, so a load without a report has succeeded then.
        """
        for load_id, load in self._ledger.of_request(request_id):
            load.block_table = tuple(block_ids) or load.block_table
            if is_complete and not load.is_async:
                presumed = load.presumed(load_id, self._rules.record_bytes)
                state.counts.add_load(presumed, self._block_tokens)

    def _joint_ids(self, request_id: str, blocks: range) -> tuple[int, ...]:
        """Where to load what each group needs, in the order of a `JointLease`'s references."""
        ids: list[int] = []
        for number, group in enumerate(self._rules.groups):
            needed = needed_blocks(group, blocks.start, blocks.stop)
            held = self._engine.block_ids_of(request_id, needed, number)
            if self._rules.null_block in held or len(held) < len(needed):
                msg = f"group {number} of request {request_id} has no room for what was found"
                raise RuntimeError(msg)
            ids += [place_in_group(self._engine.num_blocks, number, block) for block in held]
        return tuple(ids)

    def sweep(self) -> None:
        """Give back the leases of loads past their deadline."""
        self._ledger.sweep()

    def close(self) -> None:
        """Give everything back."""
        self._ledger.close_all()
