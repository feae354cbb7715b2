"""Asking the tier what it has for a request, once it is known whose KV that would be."""

from collections.abc import Callable

from kvext.connector.decisions import Decisions
from kvext.connector.identity import IdentityState
from kvext.connector.joint import pin_joint_hit
from kvext.connector.namespaces import NamespaceBook, Resolution
from kvext.connector.plan import loadable_blocks
from kvext.connector.request import PendingMatch, RequestState
from kvext.connector.rules import NO_MATCH, Match, Matcher, PlanRules
from kvext.connector.shadow import ShadowSampler
from kvext.connector.tradeoff import Choice, LoadOrRecompute
from kvext.protocol.tier import Lease
from kvext.protocol.transfer import LoadWay, MissReason

__all__ = ["Lookup"]


class Lookup:
    """Resolves a request's namespace and finds its blocks."""

    __slots__ = (
        "_block_tokens",
        "_clock",
        "_decisions",
        "_matcher",
        "_namespaces",
        "_rules",
        "_shadows",
        "_tradeoff",
    )

    def __init__(
        self,
        matcher: Matcher,
        namespaces: NamespaceBook,
        rules: PlanRules,
        tradeoff: LoadOrRecompute,
        shadows: ShadowSampler,
        decisions: Decisions,
        clock: Callable[[], float],
    ) -> None:
        """Take what lookups need.

        Args:
            matcher: The tier.
            namespaces: Resolves a request's subject.
            rules: What does not change.
            tradeoff: Chooses what to do with a hit.
            shadows: Chooses which of the loads are computed and compared instead.
            decisions: Hears of hits that are not loaded.
            clock: Monotonic time in seconds.
        """
        self._matcher = matcher
        self._namespaces = namespaces
        self._rules = rules
        self._block_tokens = rules.shape.block_tokens
        self._tradeoff = tradeoff
        self._shadows = shadows
        self._decisions = decisions
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
        if state.uncached or not state.may_load:
            return NO_MATCH
        reason = ""
        if self._matcher.bypassed:
            reason = MissReason.BYPASSED
        elif state.subject.adapter is not None and not self._rules.sync_loads:
            why = "several KV groups" if self._rules.groups else "async scheduling"
            reason = f"unsupported: loads for adapters with {why}"
        if reason:
            state.counts.reason = reason
            return NO_MATCH
        namespace = state.resolution or self.namespace(state)
        if namespace is None:
            return self._unnamed(state)
        blocks = loadable_blocks(num_computed, num_tokens, self._block_tokens)
        if not blocks:
            short = num_tokens - num_computed < self._block_tokens
            state.counts.reason = MissReason.SUB_BLOCK if short else MissReason.LAST_TOKEN
            return NO_MATCH
        search = self._search_groups if self._rules.groups else self._search
        return search(state, blocks, namespace.identity.digest)

    def keys_ahead(self, state: RequestState) -> bytes:
        """The keys that a request will be looked up by, if that is known while it waits."""
        if state.uncached or not state.may_load or self._matcher.bypassed:
            return b""
        namespace = self.namespace(state)
        blocks = loadable_blocks(0, len(state.tokens), self._block_tokens)
        if namespace is None or not blocks:
            return b""
        return state.keys(blocks, namespace.identity.digest, self._block_tokens)

    def namespace(self, state: RequestState) -> Resolution | None:
        """A request's namespace if it is known; once it never will be, the request is uncached."""
        if state.resolution is None:
            resolution = self._namespaces.resolve(state.subject)
            if resolution.identity.state is IdentityState.KNOWN:
                state.resolution = resolution
            elif resolution.identity.state is IdentityState.UNKNOWN:
                state.refuse(resolution.identity.reason)
        return state.resolution

    def _search(self, state: RequestState, blocks: range, namespace: bytes) -> Match:
        keys = state.keys(blocks, namespace, self._block_tokens)
        if not keys:
            return NO_MATCH
        lease = self._matcher.match(keys, self._rules.shape)
        num_found = lease.num_blocks
        state.counts.reason = MissReason.NOT_FOUND if num_found < len(blocks) else ""
        return self._take(state, blocks, lease) if num_found else NO_MATCH

    def _search_groups(self, state: RequestState, blocks: range, namespace: bytes) -> Match:
        """The same in an engine with several KV groups."""
        keys = state.group_keys(blocks.stop, namespace, self._block_tokens)
        if keys is None:
            return NO_MATCH
        lease = pin_joint_hit(self._matcher, self._rules.groups, keys, blocks)
        if lease is None:
            state.counts.reason = MissReason.NOT_FOUND
            return NO_MATCH
        state.counts.reason = MissReason.NOT_FOUND if lease.num_blocks < len(blocks) else ""
        return self._take(state, blocks, lease, lease.num_bytes)

    def _take(
        self, state: RequestState, blocks: range, lease: Lease, num_bytes: int | None = None
    ) -> Match:
        num_blocks = lease.num_blocks
        if state.choice is None:
            state.choice = self._tradeoff.choose(num_blocks, num_bytes)
            if state.choice is Choice.RECOMPUTE:
                self._decisions.recompute(state)
            elif self._shadows.choose():
                state.choice = Choice.SHADOW
                self._decisions.recompute(state, LoadWay.SHADOW)
        if state.choice is not Choice.LOAD:
            lease.release()
            is_shadow = state.choice is Choice.SHADOW
            state.counts.reason = MissReason.SHADOW if is_shadow else MissReason.RECOMPUTE_FASTER
            return NO_MATCH
        # A worker learns which adapter the engine read only when the engine runs it.
        is_async = self._rules.async_loads and state.subject.adapter is None
        state.match = PendingMatch(lease, blocks.start, is_async)
        return Match(num_blocks * self._block_tokens, is_async)

    def _unnamed(self, state: RequestState) -> Match:
        """The answer for a request whose namespace is pending, or will never be known."""
        if state.uncached:
            return NO_MATCH
        if self._may_wait(state):
            return Match(must_wait=True)
        state.counts.reason = "identity_pending"
        return NO_MATCH

    def _may_wait(self, state: RequestState) -> bool:
        if state.subject.adapter is None:
            return False
        now_s = self._clock()
        if state.wait_until_s is None:
            state.wait_until_s = now_s + self._rules.adapter_wait_s
        return now_s < state.wait_until_s
