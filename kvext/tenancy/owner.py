"""One owner of a shared cache: what it holds, what it is due, and what its shadows say."""

from collections.abc import Callable

from kvext.tenancy.policy import Access, EvictionPolicy
from kvext.tenancy.shadows import Point, Shadows
from kvext.tenancy.shares import Share
from kvext.tenancy.targets import Demand, needed_size
from kvext.tenancy.tenant_cache import TenantCache
from kvext.tenancy.tuning import Tuning

__all__ = ["Owner"]


class Owner:
    """A tenant, as the shared cache sees it."""

    __slots__ = (
        "_capacity",
        "_last_ms",
        "_longest_gap_ms",
        "_tuning",
        "cache",
        "ceiling",
        "due",
        "entitled",
        "shadows",
        "share",
        "target",
    )

    def __init__(
        self,
        share: Share,
        cache: TenantCache,
        make_shadow: Callable[[int], EvictionPolicy],
        *,
        entitled: int,
        capacity: int,
        tuning: Tuning,
        now_ms: int,
    ) -> None:
        """Begin with nothing.

        Args:
            share: What it was promised.
            cache: What it holds.
            make_shadow: Gives a shadow of a size.
            entitled: What it would have alone.
            capacity: Of the shared cache.
            tuning: The numbers.
            now_ms: The time.
        """
        self.share = share
        self.cache = cache
        self.entitled = entitled
        self.ceiling = capacity if share.ceiling is None else min(share.ceiling, capacity)
        self._capacity = capacity
        self.shadows = Shadows(
            self._shadow_sizes(entitled, tuning),
            make_shadow,
            tuning=tuning,
            now_ms=now_ms,
        )
        self.target = 0
        """What it should hold; victims come from who holds most beyond it."""
        self.due = max(share.floor, entitled)
        """What it gets as soon as it wants it."""
        self._tuning = tuning
        self._last_ms = now_ms
        self._longest_gap_ms = 0

    @property
    def surplus(self) -> int:
        """What it holds beyond its target."""
        return self.cache.size - self.target

    def entitle(self, entitled: int) -> None:
        """Change what it is entitled to."""
        self.entitled = entitled
        self.shadows.resize(self._shadow_sizes(entitled, self._tuning))

    def _shadow_sizes(self, entitled: int, tuning: Tuning) -> list[int]:
        parts = [max(1, int(entitled * part)) for part in tuning.shadow_sizes]
        return [max(1, entitled), *parts, max(self.ceiling, 2 * max(parts, default=0))][
            : len(parts) + 2
        ]

    def arrive(self, now_ms: int) -> bool:
        """Note that a request is there; whether the owner was idle until now."""
        gap_ms = now_ms - self._last_ms
        self._last_ms = now_ms
        if gap_ms <= self._longest_gap_ms:
            return False
        before = self._longest_gap_ms
        self._longest_gap_ms = gap_ms
        return gap_ms > max(self._tuning.patience_s * 1000, self._tuning.patience_gaps * before)

    def note(self, access: Access, num_hits: int) -> None:
        """Count a request."""
        self.shadows.see(access, num_hits)

    def is_idle(self, now_ms: int) -> bool:
        """Whether it has been silent for longer than it ever was, by far."""
        patience_ms = self._tuning.patience_s * 1000
        return now_ms - self._last_ms > max(
            patience_ms, self._tuning.patience_gaps * self._longest_gap_ms
        )

    def demand(self, now_ms: int, growth: int) -> Demand:
        """What it asks for now.

        Args:
            now_ms: The time.
            growth: What it may grow by until it is asked again.
        """
        self.shadows.fit(self.cache.capacity)
        curve = self.shadows.curve(now_ms)
        if self.is_idle(now_ms):
            curve = [Point(point.size, 0.0) for point in curve]
        self.due = self._due(now_ms)
        usable = self.cache.size + growth
        ceiling = min(self.ceiling, usable)
        return Demand(self.share.tenant, min(self.due, ceiling), ceiling, self.share.weight, curve)

    def _is_useless(self) -> bool:
        """Whether space saves it nothing, as far as its blocks were watched for long."""
        return not self.shadows.any_hit and self.shadows.turnovers >= self._tuning.useless_after

    def _due(self, now_ms: int) -> int:
        if self._is_useless():
            return 0
        if self.is_idle(now_ms):
            return self.share.floor
        due = self.entitled
        if self.shadows.turnovers >= self._tuning.known_after:
            curve = self.shadows.curve(now_ms)
            enough = self.shadows.enough(self._tuning.fair, now_ms)
            due = min(due, int(needed_size(curve, enough)))
        return min(self.ceiling, max(self.share.floor, due))
