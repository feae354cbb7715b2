"""What each tenant was promised of a cache, and what that entitles it to.

All sizes are in the unit of the cache's capacity. Invariant: shares that `check_shares` accepts can
all be kept at once, and their entitlements are at least the floors, at most the ceilings and
together at most the capacity.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvext.errors import SharesConflict

__all__ = ["DEFAULT_TENANT", "Basis", "Share", "check_shares", "entitlements"]

DEFAULT_TENANT = "default"
"""Who answers for tenants that have no share of their own."""


class Basis(StrEnum):
    """What a tenant's entitlement is measured by."""

    EQUAL = "equal"
    """All alike."""
    WEIGHT = "weight"
    """The floor, and of what is above all floors a part by weight: payment."""
    USAGE = "usage"
    """By the block accesses of late."""
    CLASS = "class"
    """By the weight of the tenant's class, as `WEIGHT`."""


@dataclass(frozen=True, slots=True)
class Share:
    """One tenant's part of a cache.

    Attributes:
        tenant: Whose it is.
        floor: What nobody else can take.
        ceiling: The most that it may hold; None is all.
        weight: Its part of what is above the floors, against the others' weights.
        service_class: Name of its class, for `Basis.CLASS`; empty is a class of weight 1.
    """

    tenant: str
    floor: int = 0
    ceiling: int | None = None
    weight: float = 1.0
    service_class: str = ""


def check_shares(
    shares: Sequence[Share],
    capacity: int,
    *,
    basis: Basis = Basis.EQUAL,
    class_weights: Mapping[str, float] | None = None,
) -> None:
    """Refuse shares that cannot hold together.

    Args:
        shares: One for each tenant.
        capacity: Of the cache.
        basis: What entitlements will be measured by.
        class_weights: The classes that there are; they matter to `Basis.CLASS` alone.

    Raises:
        SharesConflict: They cannot; names the tenants and the values.
    """
    seen: set[str] = set()
    for share in shares:
        if share.tenant in seen:
            _refuse(share, "it has two entries", "leave one of them")
        seen.add(share.tenant)
        _check_one(share, capacity)
        if basis is Basis.CLASS:
            _check_class(share, class_weights or {})
    guaranteed = sum(share.floor for share in shares)
    if guaranteed > capacity:
        raise SharesConflict(
            tuple(share.tenant for share in shares if share.floor),
            f"floors of {guaranteed} together exceed the capacity of {capacity}",
            f"lower floors by {guaranteed - capacity}, or raise the capacity",
        )


def entitlements(
    shares: Sequence[Share],
    capacity: int,
    *,
    basis: Basis = Basis.EQUAL,
    class_weights: Mapping[str, float] | None = None,
    usage: Mapping[str, float] | None = None,
) -> dict[str, int]:
    """What each tenant would have if it were alone in what is due to it.

    What a ceiling keeps from one tenant is divided among the others.

    Args:
        shares: One for each tenant, accepted by `check_shares`.
        capacity: Of the cache.
        basis: What they are measured by.
        class_weights: Weight of each class.
        usage: Block accesses by tenant, for `Basis.USAGE`; without any, all alike.

    Returns:
        Sizes by tenant.
    """
    most = {
        share.tenant: capacity if share.ceiling is None else min(share.ceiling, capacity)
        for share in shares
    }
    above_floors = basis in (Basis.WEIGHT, Basis.CLASS)
    parts = {
        share.tenant: _part(share, basis, class_weights or {}, usage or {}) for share in shares
    }
    if not any(parts.values()):
        parts = dict.fromkeys(parts, 1.0)
    least = {share.tenant: share.floor for share in shares}
    base = least if above_floors else dict.fromkeys(least, 0)
    level = _level(base, least, most, parts, capacity)
    return {
        tenant: min(most[tenant], max(least[tenant], int(base[tenant] + level * part)))
        for tenant, part in parts.items()
    }


def _level(
    base: Mapping[str, int],
    least: Mapping[str, int],
    most: Mapping[str, int],
    parts: Mapping[str, float],
    capacity: int,
) -> float:
    """How much each unit of weight gets so that all together get the capacity, or their most."""

    def total(level: float) -> float:
        return sum(
            min(most[tenant], max(least[tenant], base[tenant] + level * part))
            for tenant, part in parts.items()
        )

    lowest = 0.0
    highest = capacity / min(part for part in parts.values() if part > 0) if parts else 0.0
    for _ in range(100):
        level = (lowest + highest) / 2
        if total(level) > capacity:
            highest = level
        else:
            lowest = level
    # Rounding must not cost a unit where the parts divide the capacity evenly.
    return lowest * (1 + 1e-12)


def _part(
    share: Share, basis: Basis, class_weights: Mapping[str, float], usage: Mapping[str, float]
) -> float:
    if basis is Basis.WEIGHT:
        return share.weight
    if basis is Basis.CLASS:
        return class_weights.get(share.service_class, 1.0)
    if basis is Basis.USAGE:
        # A newcomer, or one that was silent, is no stranger: a tenth of the mean is everyone's.
        least = 0.1 * sum(usage.values()) / max(1, len(usage))
        return max(least, usage.get(share.tenant, 0.0))
    return 1.0


def _check_one(share: Share, capacity: int) -> None:
    if not share.tenant:
        _refuse(share, "its name is empty", "name the tenant")
    if share.floor < 0:
        _refuse(share, f"its floor is {share.floor}", "give 0 or more")
    if share.floor > capacity:
        _refuse(
            share,
            f"its floor of {share.floor} exceeds the capacity of {capacity}",
            "lower the floor, or raise the capacity",
        )
    if share.ceiling is not None and share.ceiling <= 0:
        _refuse(
            share,
            f"its ceiling is {share.ceiling}, with which it could cache nothing",
            "raise it, or leave it out; store = false is the way to cache nothing",
        )
    if share.ceiling is not None and share.floor > share.ceiling:
        _refuse(
            share,
            f"its floor of {share.floor} exceeds its ceiling of {share.ceiling}",
            "lower the floor, or raise the ceiling",
        )
    if not (share.weight > 0 and math.isfinite(share.weight)):
        _refuse(share, f"its weight is {share.weight}", "give a positive number")


def _check_class(share: Share, class_weights: Mapping[str, float]) -> None:
    if not share.service_class:
        return
    weight = class_weights.get(share.service_class)
    if weight is None:
        known = ", ".join(sorted(class_weights)) or "none are defined"
        _refuse(
            share,
            f"there is no class {share.service_class!r}",
            f"define it, or use a known one ({known})",
        )
    elif not (weight > 0 and math.isfinite(weight)):
        _refuse(
            share,
            f"its class {share.service_class!r} has the weight {weight}",
            "give the class a positive number",
        )


def _refuse(share: Share, reason: str, remedy: str) -> None:
    raise SharesConflict((share.tenant,), reason, remedy)
