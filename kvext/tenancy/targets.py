"""How much of the cache each tenant should hold, from what its shadows say.

The order of aims: floors; to each tenant what it needs to fare as if it were alone in its
entitlement; then the most saved in all. Invariant: targets are at least the floors, at most the
ceilings, and together the capacity, or less where all ceilings are reached.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from kvext.tenancy.shadows import Point

__all__ = ["Demand", "find_targets", "needed_size", "saved_at"]

_STEPS = 96
"""Pieces that the space above the guarantees is given away in."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What speaks for one tenant.

    Attributes:
        tenant: Whose it is.
        guaranteed: What it gets whatever the others want; at most its ceiling.
        ceiling: The most that it may hold.
        weight: Decides where more space saves nothing.
        curve: What it would save by size, from (0, 0) upwards.
    """

    tenant: str
    guaranteed: int
    ceiling: int
    weight: float
    curve: Sequence[Point]


def saved_at(curve: Sequence[Point], size: float) -> float:
    """What a size saves: between points as the logarithm of the size, which fits most traffic."""
    at = bisect_right(curve, size, key=_size_of)
    if at >= len(curve):
        return curve[-1].saved
    low, high = curve[at - 1], curve[at]
    if low.size == 0:
        return high.saved * size / high.size
    part = math.log(size / low.size) / math.log(high.size / low.size)
    return low.saved + part * (high.saved - low.saved)


def needed_size(curve: Sequence[Point], saved: float) -> float:
    """The least size that saves as much; the largest known if none does."""
    for low, high in pairwise(curve):
        if high.saved >= saved:
            if high.saved <= low.saved:
                return low.size
            part = (saved - low.saved) / (high.saved - low.saved)
            if low.size == 0:
                return part * high.size
            return low.size * math.exp(part * math.log(high.size / low.size))
    return curve[-1].size


def find_targets(demands: Sequence[Demand], capacity: int) -> dict[str, int]:
    """Divide the capacity; the guarantees must fit."""
    targets = {demand.tenant: demand.guaranteed for demand in demands}
    left = capacity - sum(targets.values())
    step = max(1, left // _STEPS)
    by_tenant = {demand.tenant: demand for demand in demands}
    offers = [offer for demand in demands if (offer := _offer(demand, demand.guaranteed, step))]
    heapify(offers)
    while left > 0 and offers:
        _, tenant, amount = heappop(offers)
        given = min(amount, left)
        targets[tenant] += given
        left -= given
        if offer := _offer(by_tenant[tenant], targets[tenant], step):
            heappush(offers, offer)
    _give_rest(demands, targets, left)
    return targets


def _offer(demand: Demand, size: int, step: int) -> tuple[float, str, int] | None:
    """The stretch of more space that saves most per unit: a curve may rise late."""
    best, amount, now = 0.0, 0, saved_at(demand.curve, size)
    sizes = [point.size for point in demand.curve if point.size > size + step]
    for upto in (size + step, *sizes):
        upto = min(upto, demand.ceiling)  # noqa: PLW2901
        if upto > size and (gain := (saved_at(demand.curve, upto) - now) / (upto - size)) > best:
            best, amount = gain, upto - size
    return (-best, demand.tenant, amount) if amount else None


def _give_rest(demands: Sequence[Demand], targets: dict[str, int], left: int) -> None:
    """Divide by weight what would save nothing anywhere."""
    open_ = [demand for demand in demands if targets[demand.tenant] < demand.ceiling]
    while left > 0 and open_:
        weights, given = sum(demand.weight for demand in open_), 0
        for demand in open_:
            part = max(1, int(left * demand.weight / weights))
            part = min(part, left - given, demand.ceiling - targets[demand.tenant])
            targets[demand.tenant] += part
            given += part
        left -= given
        open_ = [demand for demand in open_ if targets[demand.tenant] < demand.ceiling]


def _size_of(point: Point) -> int:
    return point.size
