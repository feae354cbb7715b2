"""Medians with their spread, and verdicts on targets, as every benchmark writes them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

__all__ = ["Check", "Distribution"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Median, least and greatest of several runs."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float], digits: int = 3) -> Self:
        """Summarise, rounded to what is meaningful."""
        found = (statistics.median(values), min(values), max(values))
        return cls(*(round(value, digits) for value in found))


@dataclass(frozen=True, slots=True)
class Check:
    """One target: whether `value` is on the right side of `bound`."""

    value: float
    bound: float
    holds: bool

    @classmethod
    def that(cls, value: float, relation: Literal["<=", ">="], bound: float) -> Self:
        """Compare, then round for the eye."""
        holds = value <= bound if relation == "<=" else value >= bound
        return cls(round(value, 4), round(bound, 4), holds)
