"""Blocks of queued requests stay in the tier until it is their requests' turn.

In memory that every process maps there is nothing to fetch ahead. What can go wrong while a
request waits is that others push its blocks out; so they are pinned, a bounded number of them
and for a bounded time.

Invariant: a request has pins here only between the end of the pass that left it in the queue and
its admission, its end or the pins' deadline, whatever comes first.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvext.connector.lookup import Lookup
from kvext.connector.request import RequestState
from kvext.connector.rules import Matcher, PlanRules
from kvext.protocol.key import KEY_BYTES
from kvext.protocol.tier import Lease

__all__ = ["QueuePins"]

_BLOCKS_A_PASS = 1024
"""Looked up ahead in one scheduling pass, or one request of more; a matter of 0.1 ms."""


@dataclass(frozen=True, slots=True)
class _Pins:
    lease: Lease
    num_blocks: int
    deadline_s: float


class QueuePins:
    """Pins ahead for requests that were not admitted in their first pass, first come first."""

    __slots__ = ("_clock", "_lookup", "_matcher", "_newcomers", "_num_blocks", "_pins", "_rules")

    def __init__(
        self, matcher: Matcher, lookup: Lookup, rules: PlanRules, clock: Callable[[], float]
    ) -> None:
        """Begin with nobody.

        Args:
            matcher: The tier.
            lookup: Knows a request's keys.
            rules: How many blocks, how long.
            clock: Monotonic time in seconds.
        """
        self._matcher = matcher
        self._lookup = lookup
        self._rules = rules
        self._clock = clock
        self._newcomers: dict[str, RequestState] = {}
        self._pins: dict[str, _Pins] = {}
        self._num_blocks = 0

    def __len__(self) -> int:
        """Requests with pins."""
        return len(self._pins)

    def arrive(self, request_id: str, state: RequestState) -> None:
        """A request has joined the queue."""
        if self._rules.queued_blocks:
            self._newcomers[request_id] = state

    def leave(self, request_id: str) -> None:
        """A request was admitted, or has ended."""
        self._newcomers.pop(request_id, None)
        pins = self._pins.pop(request_id, None)
        if pins is not None:
            self._num_blocks -= pins.num_blocks
            pins.lease.release()

    def end_pass(self) -> None:
        """Pin for who was left in the queue, unpin for who has been there for too long."""
        if self._pins:
            now_s = self._clock()
            for request_id in [
                name for name, pins in self._pins.items() if pins.deadline_s <= now_s
            ]:
                self.leave(request_id)
        if self._newcomers:
            self._pin()

    def close(self) -> None:
        """Give everything back; who is queued is not pinned for again."""
        self._newcomers.clear()
        for request_id in list(self._pins):
            self.leave(request_id)

    def _pin(self) -> None:
        budget = _BLOCKS_A_PASS
        while self._newcomers and budget > 0:
            room = self._rules.queued_blocks - self._num_blocks
            if room <= 0:
                return
            request_id, state = next(iter(self._newcomers.items()))
            del self._newcomers[request_id]
            keys = self._lookup.keys_ahead(state)
            budget -= len(keys) // KEY_BYTES
            lease = self._matcher.match(keys[: room * KEY_BYTES], self._rules.shape)
            num_blocks = lease.num_blocks
            if num_blocks:
                deadline_s = self._clock() + self._rules.lease_s
                self._pins[request_id] = _Pins(lease, num_blocks, deadline_s)
                self._num_blocks += num_blocks
