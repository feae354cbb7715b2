"""How long an agent lives that `kvext serve` started.

It serves all engines of the pool, so it outlives the one it was started for, and ends when no
engine is left. An operator who stops the engines finds nothing of it.
"""

import os
import select
from dataclasses import dataclass

__all__ = ["Companion", "EngineProcess"]

LINGER_S = 60.0
"""A restarting engine finds the agent that it left."""


class EngineProcess:
    """The process that an agent was started for, told apart from a later one of the same number."""

    __slots__ = ("_fd",)

    def __init__(self, pid: int) -> None:
        """Take hold of the process; it is the caller's business that `pid` is still its."""
        try:
            self._fd = os.pidfd_open(pid)
        except OSError:  # it has ended, or this kernel knows no such thing
            self._fd = -1

    def is_alive(self) -> bool:
        """Whether it runs."""
        if self._fd < 0:
            return False
        poll = select.poll()  # not `select`, which knows small numbers alone
        poll.register(self._fd, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(slots=True)
class Companion:
    """Decides when such an agent ends.

    Attributes:
        needed_at_s: When there last was an engine.
    """

    needed_at_s: float

    def is_over(self, now_s: float, *, engine_lives: bool, num_engines: int) -> bool:
        """Whether to end.

        Args:
            now_s: Monotonic time.
            engine_lives: The engine that it was started for runs, attached or not yet.
            num_engines: Processes attached to the pool, the agent itself not counted.
        """
        if engine_lives or num_engines:
            self.needed_at_s = now_s
        return now_s - self.needed_at_s >= LINGER_S
