"""One cache that tenants share: to each what it was promised, the rest where it saves most.

Every owner has a policy of its own; a request is routed to its owner's. Targets say how much each
should hold, and together they are the capacity. Space that an owner does not use is lent to others
and comes back when it wants it: victims come from the owner furthest above its target.

Invariant: the sizes together are at most the capacity after each call; no owner exceeds its
ceiling; none loses blocks to another unless it holds more than its floor, or never had a hit
(`Tuning.useless_after`); whatever left was named once.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from kvext.tenancy.fairness import Fairness, TenantFairness
from kvext.tenancy.owner import Owner
from kvext.tenancy.policies import DEFAULT_POLICY, make_policy
from kvext.tenancy.policy import Access, Admission, EvictionPolicy
from kvext.tenancy.retention import Retention
from kvext.tenancy.shares import DEFAULT_TENANT, Basis, Share, check_shares, entitlements
from kvext.tenancy.targets import Demand, find_targets, saved_at
from kvext.tenancy.tenant_cache import TenantCache
from kvext.tenancy.tuning import Tuning

__all__ = ["SharedCache"]


class SharedCache:
    """Decides what a cache of several tenants keeps; keys of different tenants must differ."""

    def __init__(  # noqa: PLR0913 - each is an operator's choice
        self,
        capacity: int,
        shares: Sequence[Share],
        *,
        policy: str = DEFAULT_POLICY,
        basis: Basis = Basis.EQUAL,
        class_weights: Mapping[str, float] | None = None,
        seed: int = 0,
        by_seconds: bool = False,
        block_tokens: int = 512,
        tuning: Tuning | None = None,
    ) -> None:
        """Begin empty.

        Args:
            capacity: The most that all tenants hold together, in the unit of `Access.block_size`.
            shares: One for each tenant. Others are charged to the tenant `DEFAULT_TENANT`, which
                has a share like anyone's if it is not among them.
            policy: Name of the policy within each tenant.
            basis: What a tenant's entitlement is measured by.
            class_weights: Weight of each class, for `Basis.CLASS`.
            seed: Of the policies.
            by_seconds: Whether policies weigh hits by the cost of computing the block again.
            block_tokens: Tokens of a block, for retention by ranges of tokens.
            tuning: The numbers by which it decides.

        Raises:
            SharesConflict: The shares cannot hold together.
            UnknownPolicy: There is no such policy.
        """
        check_shares(shares, capacity, basis=basis, class_weights=class_weights)
        self._capacity = capacity
        self._shares = {share.tenant: share for share in shares}
        self._policy = policy
        self._basis = basis
        self._class_weights = class_weights
        self._seed = seed
        self._by_seconds = by_seconds
        self._block_tokens = block_tokens
        self._tuning = tuning or Tuning()
        self._make(policy, 0)  # so that an unknown one is refused now
        self._headroom = int(capacity * self._tuning.headroom)
        self._growth = max(1, int(capacity * self._tuning.growth))
        self._owners: dict[str, Owner] = {}
        self._retaining: dict[str, Owner] = {}
        self._next_expiry_ms = math.inf
        self._size = 0
        self._now_ms: int | None = None
        self._next_ms = 0

    @property
    def capacity(self) -> int:
        """The most that all tenants hold together."""
        return self._capacity

    @property
    def size(self) -> int:
        """What they hold now."""
        return self._size

    def held(self, tenant: str) -> int:
        """What one tenant holds now."""
        owner = self._owners.get(tenant)
        return owner.cache.size if owner else 0

    def target(self, tenant: str) -> int:
        """What one tenant should hold."""
        owner = self._owners.get(tenant)
        return owner.target if owner else 0

    def contains(self, tenant: str, key: int) -> bool:
        """Whether a tenant holds this block."""
        owner = self._owners.get(tenant)
        return owner is not None and key in owner.cache

    def access(self, tenant: str, access: Access, retention: Retention | None = None) -> Admission:
        """Serve a tenant's request: count the hits, take in what is missing, name the victims.

        Args:
            tenant: Whose request it is.
            access: The request.
            retention: How long its blocks are worth keeping; None is as any others.

        Returns:
            The hits, and all blocks that must leave, of whichever tenant.

        Raises:
            ValueError: The time runs backwards.
        """
        now_ms = access.now_ms
        self._set_time(now_ms)
        owner = self._owner(tenant)
        gone = self._expire(spared=owner)
        if owner.arrive(now_ms) or now_ms >= self._next_ms:
            self._rebalance(now_ms)
        self._set_limit(owner, len(access.keys) * access.block_size, now_ms, gone)
        if retention is not None:
            self._retaining[owner.share.tenant] = owner
        before = owner.cache.size
        admission = owner.cache.access(access, retention)
        self._size += owner.cache.size - before
        if self._retaining:
            self._next_expiry_ms = min(self._next_expiry_ms, owner.cache.next_expiry_ms)
        if gone or self._size > self._capacity:
            gone.extend(admission.victims)
            self._reclaim(now_ms, gone)
            admission = Admission(admission.num_hits, gone)
        if retention is None or retention.store:
            owner.note(access, admission.num_hits)
        return admission

    def expire(self, now_ms: int) -> Sequence[int]:
        """Name the blocks whose time is over.

        Raises:
            ValueError: The time runs backwards.
        """
        self._set_time(now_ms)
        return self._expire()

    def _set_time(self, now_ms: int) -> None:
        if self._now_ms is not None and now_ms < self._now_ms:
            raise ValueError("the time runs backwards")
        self._now_ms = now_ms

    def _expire(self, spared: Owner | None = None) -> list[int]:
        """Name the blocks whose time is over, but for an owner that does it by itself."""
        now_ms = self._now_ms or 0
        gone: list[int] = []
        if now_ms < self._next_expiry_ms:
            return gone
        for owner in self._retaining.values():
            if owner is spared:
                continue
            before = owner.cache.size
            gone.extend(owner.cache.expire(now_ms))
            self._size += owner.cache.size - before
        self._next_expiry_ms = min(each.cache.next_expiry_ms for each in self._retaining.values())
        return gone

    def remove(self, tenant: str, keys: Iterable[int]) -> None:
        """Forget a tenant's blocks that left for other reasons; unknown ones are ignored."""
        owner = self._owners.get(tenant)
        if owner is not None:
            before = owner.cache.size
            owner.cache.remove(keys)
            self._size += owner.cache.size - before

    def fairness(self) -> Fairness:
        """How the tenants fare against being alone in their entitlement, over the time of late."""
        return Fairness(
            {
                name: TenantFairness(owner.shadows.shared(), owner.shadows.alone())
                for name, owner in self._owners.items()
            },
            num_blocks=sum(owner.shadows.num_blocks for owner in self._owners.values()),
            num_shadowed=sum(owner.shadows.num_shadowed for owner in self._owners.values()),
        )

    def _make(self, policy: str, capacity: int) -> EvictionPolicy:
        return make_policy(policy, capacity, seed=self._seed, by_seconds=self._by_seconds)

    def _owner(self, tenant: str) -> Owner:
        name = tenant if tenant in self._shares else DEFAULT_TENANT
        return self._owners.get(name) or self._welcome(name)

    def _welcome(self, name: str) -> Owner:
        """Make a place for a tenant with its first request."""
        share = self._shares.setdefault(name, Share(name))
        entitled = self._entitle()
        now_ms = self._now_ms or 0
        cache = TenantCache(self._make(self._policy, 0), block_tokens=self._block_tokens)
        # A duel's shadows are shadowed themselves; its members are close to it.
        shadow_policy = "hazard-logit" if self._policy == "duel" else self._policy
        owner = Owner(
            share,
            cache,
            partial(self._make, shadow_policy),
            entitled=entitled[name],
            capacity=self._capacity,
            tuning=self._tuning,
            now_ms=now_ms,
        )
        self._owners[name] = owner
        self._rebalance(now_ms)
        return owner

    def _entitle(self) -> dict[str, int]:
        """Find the entitlements anew, which usage and a default tenant's arrival change."""
        now_ms = self._now_ms or 0
        entitled = entitlements(
            tuple(self._shares.values()),
            self._capacity,
            basis=self._basis,
            class_weights=self._class_weights,
            usage={name: owner.shadows.rate(now_ms) for name, owner in self._owners.items()},
        )
        for name, owner in self._owners.items():
            if owner.entitled != entitled[name]:
                owner.entitle(entitled[name])
        return entitled

    def _set_limit(self, owner: Owner, need: int, now_ms: int, gone: list[int]) -> None:
        """Say how far the owner may grow with this request before it has to evict its own."""
        cache = owner.cache
        wanted, limit = cache.size + need, cache.capacity
        if owner.target < min(wanted, owner.due):
            self._rebalance(now_ms, owner, need)
        free = self._capacity - self._size
        if wanted > limit or (need > free and limit > owner.target):
            lent = cache.size + max(0, free - self._headroom)
            due = min(owner.ceiling, max(owner.target, lent))
            if due != limit:
                self._resize(owner, due, now_ms, gone)

    def _resize(self, owner: Owner, limit: int, now_ms: int, gone: list[int]) -> None:
        before = owner.cache.size
        gone.extend(owner.cache.resize(limit, now_ms))
        self._size += owner.cache.size - before
        self._next_expiry_ms = min(self._next_expiry_ms, owner.cache.next_expiry_ms)

    def _reclaim(self, now_ms: int, gone: list[int]) -> None:
        """Take from those furthest above their targets until all fit, with some room to spare."""
        wanted = self._size - self._capacity + self._headroom
        while self._size > self._capacity:
            owner = max(self._owners.values(), key=_surplus)
            amount = min(wanted, owner.surplus)
            before = self._size
            self._resize(owner, owner.cache.size - amount, now_ms, gone)
            wanted -= before - self._size

    def _rebalance(self, now_ms: int, growing: Owner | None = None, need: int = 0) -> None:
        """Find the targets anew, for an owner that is about to grow with room for that."""
        self._next_ms = now_ms + int(self._tuning.rebalance_s * 1000)
        if self._basis is Basis.USAGE:
            self._entitle()
        demands = [
            owner.demand(now_ms, self._growth + (need if owner is growing else 0))
            for owner in self._owners.values()
        ]
        targets = find_targets(demands, self._capacity)
        if self._worthwhile(demands, targets):
            for name, owner in self._owners.items():
                owner.target = targets[name]

    def _worthwhile(self, demands: Sequence[Demand], targets: Mapping[str, int]) -> bool:
        """Whether new targets are better enough than the present ones, which may be impossible."""
        present = {name: owner.target for name, owner in self._owners.items()}
        if sum(present.values()) != sum(targets.values()) or any(
            not demand.guaranteed <= present[demand.tenant] <= demand.ceiling for demand in demands
        ):
            return True
        now = sum(saved_at(demand.curve, present[demand.tenant]) for demand in demands)
        then = sum(saved_at(demand.curve, targets[demand.tenant]) for demand in demands)
        return then > now * (1 + self._tuning.least_gain)


def _surplus(owner: Owner) -> int:
    return owner.surplus
