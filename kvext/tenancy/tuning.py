"""The numbers by which a shared cache decides, with what they were chosen for."""

from dataclasses import dataclass

__all__ = ["Tuning"]


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a shared cache measures and moves.

    Attributes:
        rebalance_s: How often targets are found anew.
        memory_turnovers: Turnovers of a tenant's entitlement after which a hit in its shadows
            counts 1/e (some thousands of accesses come on top).
        fair_turnovers: The same for the comparison of what is saved shared and alone.
        memory_s: Age at which a request counts 1/e in its tenant's rate of requests.
        headroom: Part of the capacity that reclaim leaves free, so that it works in batches, and
            that is not lent.
        growth: Part of the capacity that a tenant below its due may grow by before targets are
            found anew: what is lent comes back in such steps.
        least_gain: Part of what is saved in all that new targets must promise beyond the old.
        fair: Part of what it would save alone that each tenant is to save before the total counts.
        known_after: Turnovers of its entitlement after which a tenant's shadows are believed.
        useless_after: Turnovers of its entitlement after which space is lent that a tenant has
            never had a use for, its floor included: not one hit in any shadow. The first hit
            brings it back. Infinity keeps floors hard, whatever they are used for.
        patience_s: A tenant is idle after so long without a request, or ...
        patience_gaps: ... after so many times its longest pause before.
        shadow_sizes: Sizes of the shadows besides the first, as parts of the entitlement; the
            whole capacity comes on top.
        shadow_blocks: The most that a tenant's first shadow holds; for larger entitlements it
            sees a sample of the conversations.
    """

    rebalance_s: float = 5.0
    memory_turnovers: float = 1.0
    fair_turnovers: float = 10.0
    memory_s: float = 120.0
    headroom: float = 1 / 512
    growth: float = 1 / 32
    least_gain: float = 0.005
    fair: float = 0.99
    known_after: float = 0.5
    useless_after: float = 2.0
    patience_s: float = 60.0
    patience_gaps: float = 4.0
    shadow_sizes: tuple[float, ...] = (0.5, 1.5, 2.0)
    shadow_blocks: int = 16_384
