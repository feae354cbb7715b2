"""How much free space the agent keeps, and how much it makes at once.

Below the low watermark it reclaims up to the high one. The gap between them is the hysteresis:
one snapshot of the pool pays for many records.
"""

import math
from dataclasses import dataclass

from kvext.errors import InvalidOption

__all__ = ["Watermarks"]


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Shares of a pool's extents that shall be free.

    Attributes:
        low: Reclaim when less is free.
        high: Until that much is.
    """

    low: float = 0.02
    high: float = 0.05

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            InvalidOption: Not 0 <= low < high <= 0.5.
        """
        if not 0 <= self.low < self.high:
            remedy = f"give a share from 0 to less than --high-watermark, which is {self.high:g}"
            raise InvalidOption("--low-watermark", self.low, remedy)
        if not self.high <= 0.5:  # noqa: PLR2004 - written so that NaN is refused, too
            raise InvalidOption("--high-watermark", self.high, "give a share of at most 0.5")

    def num_to_reclaim(self, num_free: int, num_extents: int) -> int:
        """Extents to free now; 0 while enough are.

        A pool of few extents keeps at least one free, unless `low` is 0.
        """
        if num_free >= math.ceil(self.low * num_extents):
            return 0
        return math.ceil(self.high * num_extents) - num_free
