"""What the agent shows of itself and of its pool. Read by the admin port's threads."""

import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from kvext.agent.attachment import Attachment
from kvext.agent.duties import Duties
from kvext.agent.health import Health
from kvext.agent.settings import AgentSettings
from kvext.errors import PoolError
from kvext.pool import PoolStat

__all__ = ["View"]


class View:
    """Documents about one agent."""

    def __init__(
        self,
        settings: AgentSettings,
        attachment: Attachment,
        duties: Duties,
        health: Health,
        clock: Callable[[], float],
    ) -> None:
        """Show these; monotonic time is in seconds."""
        self._settings = settings
        self._attachment = attachment
        self._duties = duties
        self._health = health
        self._clock = clock
        self._started_s = clock()
        # A scan of all slots: two askers at once need not both do it.
        self._scanning = threading.Lock()

    def health(self) -> dict[str, Any]:
        """Whether it works, and why not."""
        reasons = [asdict(reason) for reason in self._health.reasons()]
        return {
            "healthy": not reasons,
            "role": self._duties.role.state.value,
            "reasons": reasons,
        }

    def pool(self) -> PoolStat | None:
        """The pool's figures, or None while it cannot be read."""
        pool = self._attachment.pool
        if pool is None:
            return None
        try:
            with self._scanning:
                return pool.stat()
        except PoolError:  # it was closed, or is locked, just now
            return None

    def agent(self) -> dict[str, Any]:
        """The agent alone."""
        settings, role = self._settings, self._duties.role
        return {
            "pid": os.getpid(),
            "pool_path": str(self._attachment.path),
            "uptime_s": round(self._clock() - self._started_s, 1),
            **self.health(),
            "policy": settings.policy,
            "interval_s": settings.interval_s,
            "watermarks": asdict(settings.watermarks),
            "counters": {
                **asdict(self._duties.counters),
                "role_claims": role.num_claims,
                "role_losses": role.num_losses,
            },
            "failures": self._health.failures(),
        }

    def stat(self) -> dict[str, Any]:
        """The agent and its pool."""
        figures = self.pool()
        return {"agent": self.agent(), "pool": None if figures is None else _pool(figures)}


def _pool(figures: PoolStat) -> dict[str, Any]:
    return {**asdict(figures), "capacity_bytes": figures.capacity_bytes}
