"""Asking the tier what it has for a request, once it is known whose KV that would be."""

from collections.abc import Callable

from kvext.connector.identity import Identity, IdentityState
from kvext.connector.namespaces import NamespaceBook
from kvext.connector.plan import loadable_blocks
from kvext.connector.request import PendingMatch, RequestState
from kvext.connector.rules import NO_MATCH, Match, Matcher, PlanRules
from kvext.connector.tradeoff import Choice, LoadOrRecompute
from kvext.errors import IdentityError
from kvext.protocol.transfer import MissReason

__all__ = ["Lookup"]


class Lookup:
    """Resolves a request's namespace and finds its blocks."""

    __slots__ = ("_clock", "_matcher", "_namespaces", "_rules", "_tradeoff")

    def __init__(
        self,
        matcher: Matcher,
        namespaces: NamespaceBook,
        rules: PlanRules,
        tradeoff: LoadOrRecompute,
        clock: Callable[[], float],
    ) -> None:
        """Take what lookups need.

        Args:
            matcher: The tier.
            namespaces: Resolves a request's subject.
            rules: What does not change.
            tradeoff: Chooses what to do with a hit.
            clock: Monotonic time in seconds.
        """
        self._matcher = matcher
        self._namespaces = namespaces
        self._rules = rules
        self._tradeoff = tradeoff
        self._clock = clock

    def find(self, state: RequestState, num_computed: int, num_tokens: int) -> Match:
        """Look up a request's blocks; what is found is pinned in `state.match`.

        Args:
            state: The request; its counts get the reason of a miss.
            num_computed: Tokens of the engine's own hit.
            num_tokens: All the request's accepted tokens.

        Returns:
            What the engine shall be told.
        """
        if state.uncached or not state.may_load or self._is_bypassed(state):
            return NO_MATCH
        if state.subject.adapter is not None and not self._rules.sync_loads:
            state.counts.reason = "unsupported: loads for adapters with async scheduling"
            return NO_MATCH
        identity = self.identity(state)
        if identity.state is IdentityState.PENDING:
            if self._may_wait(state):
                return Match(must_wait=True)
            state.counts.reason = "identity_pending"
        if identity.state is not IdentityState.KNOWN:
            return NO_MATCH
        blocks = loadable_blocks(num_computed, num_tokens, self._rules.shape.block_tokens)
        if not blocks:
            short = num_tokens - num_computed < self._rules.shape.block_tokens
            state.counts.reason = MissReason.SUB_BLOCK if short else MissReason.LAST_TOKEN
            return NO_MATCH
        keys = self.keys(state, blocks, identity.digest)
        return self._pin(state, blocks, keys) if keys else NO_MATCH

    def identity(self, state: RequestState) -> Identity:
        """A request's namespace as far as it is known; once unknown, the request is uncached."""
        if state.resolution is not None:
            return state.resolution.identity
        resolution = self._namespaces.resolve(state.subject)
        if resolution.identity.state is IdentityState.KNOWN:
            state.resolution = resolution
        elif resolution.identity.state is IdentityState.UNKNOWN:
            state.refuse(resolution.identity.reason)
        return resolution.identity

    def keys(self, state: RequestState, blocks: range, namespace: bytes) -> bytes:
        """The keys of blocks, or none if the tokens cannot be named, which uncaches the request."""
        try:
            return state.keys(blocks, namespace, self._rules.shape.block_tokens)
        except IdentityError as error:
            state.refuse(str(error))
            return b""

    def _pin(self, state: RequestState, blocks: range, keys: bytes) -> Match:
        lease = self._matcher.match(keys, self._rules.shape)
        state.counts.reason = MissReason.NOT_FOUND if lease.num_blocks < len(blocks) else ""
        if lease.num_blocks == 0:
            lease.release()
            return NO_MATCH
        if state.choice is None:
            state.choice = self._tradeoff.choose(lease.num_blocks)
        if state.choice is Choice.RECOMPUTE:
            lease.release()
            state.counts.reason = MissReason.RECOMPUTE_FASTER
            return NO_MATCH
        # A worker learns which adapter the engine read only when the engine runs it.
        is_async = self._rules.async_loads and state.subject.adapter is None
        state.match = PendingMatch(lease, blocks.start, is_async)
        return Match(lease.num_blocks * self._rules.shape.block_tokens, is_async)

    def _is_bypassed(self, state: RequestState) -> bool:
        if self._matcher.bypassed:
            state.counts.reason = MissReason.BYPASSED
            return True
        return False

    def _may_wait(self, state: RequestState) -> bool:
        if state.subject.adapter is None:
            return False
        now_s = self._clock()
        if state.wait_until_s is None:
            state.wait_until_s = now_s + self._rules.adapter_wait_s
        return now_s < state.wait_until_s
