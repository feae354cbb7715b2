"""What no policy can pass: the hits of one that knows the future, and what they would save."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvext.simulation.replay import prefix_cost_s
from kvext.tenancy.optimal import optimal_hits
from kvext.tenancy.policy import Access

__all__ = ["Bound", "find_bound"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The optimum in hits (not in seconds).

    Attributes:
        num_blocks: Block accesses.
        num_hits: Blocks found.
        saved_s: What computing these again would have cost.
    """

    num_blocks: int
    num_hits: int
    saved_s: float

    @property
    def hit_ratio(self) -> float:
        """Hits per block access."""
        return self.num_hits / self.num_blocks if self.num_blocks else 0.0


def find_bound(accesses: Sequence[Access], capacity_blocks: int) -> Bound:
    """The optimum of a cache of this size."""
    num_blocks, num_hits, saved_s = 0, 0, 0.0
    for access, hits in zip(accesses, optimal_hits(accesses, capacity_blocks), strict=True):
        num_blocks += len(access.keys)
        num_hits += hits
        saved_s += prefix_cost_s(access, hits)
    return Bound(num_blocks, num_hits, saved_s)
