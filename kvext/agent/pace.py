"""When a step is due again."""

from collections.abc import Callable

__all__ = ["Pace"]


class Pace:
    """Due at once, then each time `every_s` has passed."""

    __slots__ = ("_clock", "_every_s", "_next_s")

    def __init__(self, clock: Callable[[], float], every_s: float) -> None:
        """Take monotonic time and the distance, both in seconds."""
        self._clock = clock
        self._every_s = every_s
        self._next_s = clock()

    def is_due(self) -> bool:
        """Whether it is time; if so, the next time is reckoned from now."""
        now_s = self._clock()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True
