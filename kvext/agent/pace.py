"""When a step is due again."""

from collections.abc import Callable

__all__ = ["Pace"]

_RESTS_PER_STEP = 20
"""A step that takes long is taken less often: at most a twentieth of a core goes into it."""


class Pace:
    """Due at once, then each time `every_s` has passed, or longer after a step that took long."""

    __slots__ = ("_clock", "_every_s", "_next_s", "_started_s")

    def __init__(self, clock: Callable[[], float], every_s: float) -> None:
        """Take monotonic time and the distance, both in seconds."""
        self._clock = clock
        self._every_s = every_s
        self._next_s = self._started_s = clock()

    def is_due(self) -> bool:
        """Whether it is time; the step is taken to begin now."""
        now_s = self._clock()
        if now_s < self._next_s:
            return False
        self._started_s = now_s
        self._next_s = now_s + self._every_s
        return True

    def done(self) -> None:
        """The step has ended."""
        now_s = self._clock()
        rest_s = _RESTS_PER_STEP * (now_s - self._started_s)
        self._next_s = max(self._next_s, now_s + rest_s)
