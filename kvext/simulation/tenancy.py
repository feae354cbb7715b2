"""A scenario's tenants together in one cache, and each alone in what it is entitled to.

The figure of merit is the worst tenant's: hits shared over hits alone. A tenant that would hit
nothing alone loses nothing by sharing and does not count.
"""

from dataclasses import dataclass

from kvext.simulation.bound import Bound, find_bound
from kvext.simulation.replay import Outcome, ProgressCallback, replay
from kvext.simulation.scenario import Scenario, Tenant
from kvext.simulation.shares import FairCache, OwnCache, UnfairCache, entitled_blocks
from kvext.tenancy.policies import make_policy
from kvext.tenancy.policy import EvictionPolicy

__all__ = ["TenancyRun", "TenantResult", "run_scenario"]


@dataclass(frozen=True, slots=True)
class TenantResult:
    """What one tenant got.

    Attributes:
        name: The tenant.
        entitled_blocks: Its part of the capacity.
        held_blocks: What it holds at the end of the shared replay.
        shared: Of its requests in the shared cache.
        alone: Of the same requests in a cache of its own, as large as its entitlement.
    """

    name: str
    entitled_blocks: int
    held_blocks: int
    shared: Outcome
    alone: Outcome

    @property
    def shared_over_alone(self) -> float | None:
        """Hits shared per hit alone; None if it hits nothing alone."""
        return self.shared.num_hits / self.alone.num_hits if self.alone.num_hits else None

    def as_dict(self, capacity_blocks: int) -> dict[str, object]:
        """The figures as JSON-ready data."""
        return {
            "hit_ratio": self.shared.hit_ratio,
            "alone_hit_ratio": self.alone.hit_ratio,
            "shared_over_alone": self.shared_over_alone,
            "recompute_seconds_saved": self.shared.saved_s,
            "alone_recompute_seconds_saved": self.alone.saved_s,
            "entitled_blocks": self.entitled_blocks,
            "entitled_share": self.entitled_blocks / capacity_blocks,
            "held_blocks": self.held_blocks,
            "held_share": self.held_blocks / capacity_blocks,
            "num_requests": self.shared.num_requests,
            "num_block_accesses": self.shared.num_blocks,
            "num_hits": self.shared.num_hits,
            "blocks_written": self.shared.num_written,
            "blocks_written_per_hit": self.shared.written_per_hit,
        }


@dataclass(frozen=True, slots=True)
class TenancyRun:
    """What came of one policy at one capacity.

    Attributes:
        policy: Its name.
        capacity_blocks: Of the shared cache.
        seed: Of the policy and the generators.
        shared_fairly: Whether the shares were in force.
        tenants: Each tenant's part.
        total: All tenants together in the shared cache.
        accesses_per_second: Block accesses replayed per second in it.
        optimal: The optimum of all requests together; None if it was not asked for.
    """

    policy: str
    capacity_blocks: int
    seed: int
    shared_fairly: bool
    tenants: tuple[TenantResult, ...]
    total: Outcome
    accesses_per_second: float
    optimal: Bound | None

    @property
    def min_shared_over_alone(self) -> float | None:
        """The worst tenant's hits shared per hit alone; None if no tenant hits anything alone."""
        ratios = [tenant.shared_over_alone for tenant in self.tenants]
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    @property
    def optimal_hit_ratio(self) -> float | None:
        """What one policy that knows the future would hit in all; None if not asked for."""
        return None if self.optimal is None else self.optimal.hit_ratio

    def as_dict(self) -> dict[str, object]:
        """The figures as JSON-ready data."""
        return {
            "policy": self.policy,
            "capacity_blocks": self.capacity_blocks,
            "seed": self.seed,
            "shared_fairly": self.shared_fairly,
            "min_shared_over_alone": self.min_shared_over_alone,
            "total_hit_ratio": self.total.hit_ratio,
            "optimal_total_hit_ratio": self.optimal_hit_ratio,
            "recompute_seconds_saved": self.total.saved_s,
            "optimal_recompute_seconds_saved": self.optimal.saved_s if self.optimal else None,
            "accesses_per_second": self.accesses_per_second,
            "num_block_accesses": self.total.num_blocks,
            "num_hits": self.total.num_hits,
            "blocks_written": self.total.num_written,
            "blocks_written_per_hit": self.total.written_per_hit,
            "tenants": {
                tenant.name: tenant.as_dict(self.capacity_blocks) for tenant in self.tenants
            },
        }


def run_scenario(
    scenario: Scenario,
    *,
    policy: str,
    capacity_blocks: int,
    shared_fairly: bool = True,
    by_seconds: bool = False,
    with_optimum: bool = True,
    on_progress: ProgressCallback | None = None,
) -> TenancyRun:
    """Replay a scenario's tenants together, and each alone.

    Args:
        scenario: The tenants.
        policy: Name of the policy, in the shared cache and in those of the tenants alone.
        capacity_blocks: Of the shared cache.
        shared_fairly: Whether the shares are in force; otherwise the policy sees one owner.
        by_seconds: Whether policies that can weigh hits by what they save.
        with_optimum: Whether to find the optimum, too.
        on_progress: Told of block accesses done; the optimum counts as one replay.

    Returns:
        What came of it.

    Raises:
        ScenarioError: The shares cannot hold together at this capacity.
    """
    entitled = entitled_blocks(scenario, capacity_blocks)

    def make(capacity: int) -> EvictionPolicy:
        return make_policy(policy, capacity, seed=scenario.seed, by_seconds=by_seconds)

    cache: FairCache | UnfairCache
    if shared_fairly:
        cache = FairCache(scenario, policy, capacity_blocks, by_seconds=by_seconds)
    else:
        cache = UnfairCache(make(capacity_blocks), len(scenario.tenants))
    together = replay(
        cache, scenario.arrivals, num_owners=len(scenario.tenants), on_progress=on_progress
    )
    results = tuple(
        TenantResult(
            name=tenant.name,
            entitled_blocks=entitled[tenant.name],
            held_blocks=held,
            shared=shared,
            alone=_alone(tenant, make(entitled[tenant.name]), on_progress),
        )
        for tenant, shared, held in zip(
            scenario.tenants, together.owners, cache.held_blocks(), strict=True
        )
    )
    optimal = None
    if with_optimum:
        optimal = find_bound([access for _, access in scenario.arrivals], capacity_blocks)
        if on_progress is not None:
            on_progress(scenario.num_blocks)
    return TenancyRun(
        policy=policy,
        capacity_blocks=capacity_blocks,
        seed=scenario.seed,
        shared_fairly=shared_fairly,
        tenants=results,
        total=together.total,
        accesses_per_second=together.accesses_per_second,
        optimal=optimal,
    )


def _alone(tenant: Tenant, policy: EvictionPolicy, on_progress: ProgressCallback | None) -> Outcome:
    arrivals = ((0, access) for access in tenant.trace.accesses)
    return replay(OwnCache(policy, tenant), arrivals, on_progress=on_progress).total
