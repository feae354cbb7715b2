"""Shadow verification: which hits are computed instead of loaded, and what the comparison means.

A sampled request computes the KV that it would have loaded, and the worker compares the two.
Everything here is pure. Which hit is sampled cannot be foreseen by clients; between two of them
lie at least half as many hits as the share asks for on average, so the cost is bounded.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import SystemRandom

__all__ = [
    "CheckReport",
    "Difference",
    "ShadowSampler",
    "Tolerance",
    "Verdict",
    "choose_blocks",
    "judge",
    "tolerance_of",
    "unforeseeable",
    "worse",
]

_LIVE_DIVISOR = 4
"""At most one in so many live requests is a shadow, though always one."""


class Verdict(Enum):
    """What became of one block that was to be compared."""

    IDENTICAL = "identical"
    TOLERATED = "within_tolerance"
    """Other bits, but no further apart than two computations of the same block may be."""
    FAILED = "failed"
    GONE = "gone"
    """The tier no longer has the record, or its checksum was wrong."""
    UNJUDGED = "unjudged"
    """Other bits of an element type whose values we cannot read."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two computations of one block may be apart, in any layer.

    Attributes:
        rms: Root mean square of the differences over that of the computed values.
        peak: Largest difference over the largest computed value.
    """

    rms: float
    peak: float


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a record is from what the engine has computed: the worst layer's figures."""

    rms: float
    peak: float


_TOLERANCES = {
    "float32": Tolerance(0.005, 0.02),
    "float16": Tolerance(0.03, 0.15),
    "bfloat16": Tolerance(0.1, 0.4),
    "float8": Tolerance(0.2, 0.5),
}
"""By the name that an element type begins with; docs/verification.md says how they were found."""


def tolerance_of(dtype: str) -> Tolerance | None:
    """The tolerance for an element type, such as `"bfloat16"`; None if its values say nothing."""
    return next((found for name, found in _TOLERANCES.items() if dtype.startswith(name)), None)


def judge(difference: Difference, tolerance: Tolerance) -> Verdict:
    """What a difference means; one that is not a number is a failure."""
    is_close = difference.rms <= tolerance.rms and difference.peak <= tolerance.peak
    return Verdict.TOLERATED if is_close else Verdict.FAILED


def worse(one: Difference | None, other: Difference | None) -> Difference | None:
    """The larger of each figure; None only if there is neither."""
    if one is None or other is None:
        return one or other
    return Difference(max(one.rms, other.rms), max(one.peak, other.peak))


def choose_blocks(known: bytes, limit: int, draw: Callable[[], float]) -> tuple[int, ...]:
    """Choose which of a job's blocks are compared.

    Args:
        known: One byte a block, 1 if the tier has it.
        limit: How many at most.
        draw: A random number in [0, 1).

    Returns:
        Their indices, ascending, spread evenly if there are too many.
    """
    found = [index for index, is_there in enumerate(known) if is_there]
    if len(found) <= limit:
        return tuple(found)
    offset = draw()
    return tuple(found[int((place + offset) * len(found) / limit)] for place in range(limit))


def unforeseeable() -> float:
    """A random number in [0, 1) from the operating system; engines seed Python's generator."""
    return SystemRandom().random()


class ShadowSampler:
    """Chooses the hits that are computed instead of loaded."""

    __slots__ = ("_draw", "_left", "_num_live", "_num_requests", "_share")

    def __init__(
        self, share: float, draw: Callable[[], float], num_requests: Callable[[], int]
    ) -> None:
        """Begin a first interval.

        Args:
            share: Of all hits, 0 to 1.
            draw: A random number in [0, 1) that clients cannot foresee.
            num_requests: Live requests.
        """
        self._share = share
        self._draw = draw
        self._num_requests = num_requests
        self._num_live = 0
        self._left = self._interval() if share > 0 else math.inf

    def choose(self) -> bool:
        """Count a hit; whether it is a shadow, of which `part` must hear in the end."""
        if self._share <= 0:
            return False
        self._left = max(self._left - 1, -1.0)
        if self._left > 0 or self._num_live >= max(1, self._num_requests() // _LIVE_DIVISOR):
            return False
        self._left += self._interval()
        self._num_live += 1
        return True

    def part(self) -> None:
        """A request that was chosen has ended."""
        self._num_live -= 1

    def _interval(self) -> float:
        """Hits up to the next shadow, that one included; `1 / share` on average."""
        return 1 + (1 / self._share - 1) * (0.5 + self._draw())


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What became of the blocks of one `SaveJob` that were compared with the tier's records.

    Attributes:
        request_id: Who computed them.
        namespace: Digest that their keys were derived from.
        num_identical: Equal bit by bit.
        num_tolerated: Other bits, within the tolerance.
        num_failed: Others; then the namespace is in quarantine.
        skipped: Blocks that could not be compared, by reason.
        worst: The largest difference found, if bits differed and values could be read.
    """

    request_id: str
    namespace: bytes
    num_identical: int = 0
    num_tolerated: int = 0
    num_failed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    worst: Difference | None = None

    @property
    def num_verified(self) -> int:
        """Blocks that were compared."""
        return self.num_identical + self.num_tolerated + self.num_failed

    def by_verdict(self) -> dict[str, int]:
        """All of the job's blocks that were to be compared, by what became of them."""
        compared = {
            Verdict.IDENTICAL.value: self.num_identical,
            Verdict.TOLERATED.value: self.num_tolerated,
            Verdict.FAILED.value: self.num_failed,
        }
        return {name: count for name, count in compared.items() if count} | dict(self.skipped)

    @classmethod
    def of(
        cls,
        request_id: str,
        namespace: bytes,
        verdicts: Sequence[Verdict],
        worst: Difference | None = None,
    ) -> "CheckReport":
        """Count the verdicts of a job's blocks."""
        skipped = {
            verdict.value: verdicts.count(verdict)
            for verdict in (Verdict.GONE, Verdict.UNJUDGED)
            if verdict in verdicts
        }
        return cls(
            request_id,
            namespace,
            verdicts.count(Verdict.IDENTICAL),
            verdicts.count(Verdict.TOLERATED),
            verdicts.count(Verdict.FAILED),
            skipped,
            worst,
        )
