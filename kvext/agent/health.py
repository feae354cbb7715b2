"""Whether the agent does its work, and if not, why. Read by the admin port's threads.

A step that fails makes the agent unhealthy until it succeeds again; it never ends the agent. This
is the agent's one place that catches every exception.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kvext.errors import KvextError

__all__ = ["Health", "Reason"]

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is wrong.

    Attributes:
        step: What the agent could not do.
        error: Why not.
        for_s: For how long.
    """

    step: str
    error: str
    for_s: float


class Health:
    """What fails now, and how often each step ever failed."""

    def __init__(self, clock: Callable[[], float], longest_turn_s: float) -> None:
        """Begin healthy.

        Args:
            clock: Monotonic time in seconds.
            longest_turn_s: The loop is stuck if a turn of it takes longer.
        """
        self._clock = clock
        self._longest_turn_s = longest_turn_s
        self._turned_at_s = clock()
        self._wrong: dict[str, tuple[float, str]] = {}
        self._failures: Counter[str] = Counter()
        self._guard = threading.Lock()

    def turned(self) -> None:
        """The loop has begun another turn."""
        self._turned_at_s = self._clock()

    def attempt(self, step: str, action: Callable[[], _T]) -> tuple[_T | None, bool]:
        """Do `action`; if it raises, log and count it.

        Args:
            step: Names the action.
            action: What to do.

        Returns:
            What it returned, or None; and whether it did not raise.
        """
        try:
            result = action()
        except Exception as error:
            if self._note_failure(step, f"{type(error).__name__}: {error}"):
                # Errors of our own tree say all there is to say.
                trace = None if isinstance(error, KvextError) else error
                message = "step %r failed, and the agent goes on without it: %s"
                _logger.warning(message, step, error, exc_info=trace)
            return None, False
        with self._guard:
            self._wrong.pop(step, None)
        return result, True

    def _note_failure(self, step: str, error: str) -> bool:
        """Count it; True if the step worked before, or failed for another reason."""
        with self._guard:
            self._failures[step] += 1
            since_s, known = self._wrong.get(step, (self._clock(), ""))
            self._wrong[step] = (since_s, error)
            return known != error

    def failures(self) -> dict[str, int]:
        """Failures of each step that ever failed."""
        with self._guard:
            return dict(self._failures)

    def reasons(self) -> list[Reason]:
        """All that is wrong now; empty if the agent is healthy."""
        now_s = self._clock()
        turn_s = now_s - self._turned_at_s
        with self._guard:
            found = [
                Reason(step, error, round(now_s - since_s, 1))
                for step, (since_s, error) in sorted(self._wrong.items())
            ]
        if turn_s > self._longest_turn_s:
            found.append(Reason("loop", "it has not come round", round(turn_s, 1)))
        return found
