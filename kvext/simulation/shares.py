"""Caches of a scenario's tenants, and errors about their shares with the line to blame."""

from collections.abc import Mapping

from kvext.errors import CapacityError, SharesConflict
from kvext.simulation.replay import OneCache
from kvext.simulation.scenario import Scenario, Tenant, owner_of
from kvext.simulation.toml_lines import KeyPath
from kvext.tenancy.policy import Access, Admission, EvictionPolicy
from kvext.tenancy.retention import Retention, RetentionRange
from kvext.tenancy.shared_cache import SharedCache
from kvext.tenancy.shares import Share, check_shares, entitlements
from kvext.tenancy.tenant_cache import TenantCache

__all__ = ["FairCache", "OwnCache", "UnfairCache", "check_capacity", "entitled_blocks"]


def check_capacity(scenario: Scenario, capacity_blocks: int) -> None:
    """Refuse a capacity that holds all blocks there are, or that the shares exceed.

    Raises:
        ScenarioError: The shares exceed it, or it is the scenario's own and holds everything.
        CapacityError: It holds everything.
    """
    if capacity_blocks > scenario.distinct_blocks:
        error = CapacityError(capacity_blocks, scenario.distinct_blocks)
        if capacity_blocks != scenario.capacity_blocks:
            raise error
        reason, _, remedy = str(error).partition("; ")
        raise scenario.document.fault(("capacity_blocks",), reason, remedy)
    table = scenario.document.table
    try:
        check_shares(
            _shares(scenario),
            capacity_blocks,
            basis=table.entitlement,
            class_weights=table.class_weights,
        )
    except SharesConflict as conflict:
        reason = f"{conflict.whose} cannot be kept: {conflict.reason}"
        place = _place(scenario, conflict)
        raise scenario.document.fault(place, reason, conflict.remedy) from None


def entitled_blocks(scenario: Scenario, capacity_blocks: int) -> Mapping[str, int]:
    """What each tenant would have alone; its usage is that of the whole replay."""
    table = scenario.document.table
    return entitlements(
        _shares(scenario),
        capacity_blocks,
        basis=table.entitlement,
        class_weights=table.class_weights,
        usage={tenant.name: tenant.trace.num_blocks for tenant in scenario.tenants},
    )


def _shares(scenario: Scenario) -> list[Share]:
    return [
        Share(
            tenant=tenant.name,
            floor=tenant.table.floor_blocks,
            ceiling=tenant.table.ceiling_blocks,
            weight=tenant.table.weight,
            service_class=tenant.table.class_,
        )
        for tenant in scenario.tenants
    ]


def _place(scenario: Scenario, conflict: SharesConflict) -> KeyPath:
    """The key to blame: of the last tenant named, the one that the reason speaks of."""
    names = [tenant.name for tenant in scenario.tenants]
    key = next((key for key in ("class", "floor", "ceiling") if key in conflict.reason), "name")
    suffix = "_blocks" if key in ("floor", "ceiling") else ""
    return ("tenant", names.index(conflict.tenants[-1]), f"{key}{suffix}")


def _retention(tenant: Tenant) -> Retention | None:
    table = tenant.table.retention
    if table is None:
        return None
    return Retention(
        priority=table.priority,
        duration_s=table.duration_s,
        ttl_s=table.ttl_s,
        store=table.store,
        ranges=tuple(
            RetentionRange(part.start_token, part.end_token, part.priority, part.duration_s)
            for part in table.ranges
        ),
    )


class FairCache:
    """All tenants in one cache, each with its share."""

    def __init__(
        self, scenario: Scenario, policy: str, capacity_blocks: int, *, by_seconds: bool
    ) -> None:
        table = scenario.document.table
        self._tenants = [(tenant.name, _retention(tenant)) for tenant in scenario.tenants]
        self._cache = SharedCache(
            capacity_blocks,
            _shares(scenario),
            policy=policy,
            basis=table.entitlement,
            class_weights=table.class_weights,
            seed=scenario.seed,
            by_seconds=by_seconds,
            block_tokens=table.block_tokens,
        )

    @property
    def size(self) -> int:
        """Blocks that it holds now."""
        return self._cache.size

    def access(self, owner: int, access: Access) -> Admission:
        """Serve a tenant's request."""
        name, retention = self._tenants[owner]
        return self._cache.access(name, access, retention)

    def held_blocks(self) -> list[int]:
        """Blocks of each tenant."""
        return [self._cache.held(name) for name, _ in self._tenants]


class UnfairCache(OneCache):
    """All tenants in one cache without shares."""

    def __init__(self, policy: EvictionPolicy, num_tenants: int) -> None:
        super().__init__(policy)
        self._num_tenants = num_tenants

    def held_blocks(self) -> list[int]:
        """Blocks of each tenant; empties the cache."""
        held = [0] * self._num_tenants
        for key in self._policy.evict(self.size):
            held[owner_of(key)] += 1
        return held


class OwnCache:
    """A cache of one tenant alone, whose requests keep their retention."""

    def __init__(self, policy: EvictionPolicy, tenant: Tenant) -> None:
        self._cache = TenantCache(policy, block_tokens=tenant.trace.block_tokens)
        self._retention = _retention(tenant)

    @property
    def size(self) -> int:
        """Blocks that it holds now."""
        return self._cache.size

    def access(self, owner: int, access: Access) -> Admission:  # noqa: ARG002 - there is one
        """Serve a request of the tenant."""
        return self._cache.access(access, self._retention)
