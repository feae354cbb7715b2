"""How long an agent lives that `kvext serve` started.

It serves all engines of the pool, so it outlives the one it was started for, and ends when no
engine is left. An operator who stops the engines finds nothing of it.
"""

import os
import select

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


class Companion:
    """Decides when such an agent ends."""

    __slots__ = ("_engine", "_needed_at_s")

    def __init__(self, engine: EngineProcess, now_s: float) -> None:
        """Begin with the engine that it was started for."""
        self._engine = engine
        self._needed_at_s = now_s

    def why_over(self, now_s: float, *, num_engines: int, has_pool: bool, is_spare: bool) -> str:
        """Why it shall end now, or nothing.

        Args:
            now_s: Monotonic time.
            num_engines: Processes attached to the pool, agents not counted.
            has_pool: Whether there is a pool.
            is_spare: Whether another agent looks after it.
        """
        if is_spare:
            return "another agent looks after the pool"
        if num_engines or self._engine.is_alive():
            self._needed_at_s = now_s
        elif not has_pool:
            return "neither the engine nor the pool is there any more"
        if now_s - self._needed_at_s >= LINGER_S:
            return "no engine is left"
        return ""
