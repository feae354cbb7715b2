"""How each tenant fares against being alone in its entitlement."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Fairness", "TenantFairness"]


@dataclass(frozen=True, slots=True)
class TenantFairness:
    """One tenant's figures, estimated by its shadows over the time of late.

    Attributes:
        shared: What the shared cache saves it, in seconds of computing (without costs: in hits)
            per block access.
        alone: What a cache of its own as large as its entitlement would.
    """

    shared: float
    alone: float

    @property
    def shared_over_alone(self) -> float | None:
        """The ratio; None for a tenant that would save nothing alone."""
        return self.shared / self.alone if self.alone > 0 else None


@dataclass(frozen=True, slots=True)
class Fairness:
    """Figures of all tenants.

    Attributes:
        tenants: By name.
        num_blocks: Block accesses of the tenants.
        num_shadowed: Block accesses in shadows.
    """

    tenants: Mapping[str, TenantFairness]
    num_blocks: int
    num_shadowed: int

    @property
    def min_shared_over_alone(self) -> float | None:
        """The worst tenant's ratio; None if no tenant would save anything alone."""
        ratios = [tenant.shared_over_alone for tenant in self.tenants.values()]
        return min((ratio for ratio in ratios if ratio is not None), default=None)
