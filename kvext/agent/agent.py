"""The agent of one pool: the loop that goes on until it is told to stop.

Every step may fail; it is counted and tried again. Nothing waits without a deadline: what cannot be
interrupted (a policy, a scan of the pool) is watched from outside of Python by `faulthandler`,
which ends the process, so that another agent gets the role.
"""

import faulthandler
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kvext.agent.admin.server import AdminServer
from kvext.agent.attachment import Attachment
from kvext.agent.commands import Commands
from kvext.agent.companion import Companion, EngineProcess
from kvext.agent.duties import Duties
from kvext.agent.health import Health
from kvext.agent.pace import Pace
from kvext.agent.ranking import Ranking
from kvext.agent.role import RoleState
from kvext.agent.settings import AgentSettings
from kvext.agent.view import View
from kvext.assembly import pool_path

__all__ = ["Agent", "Announce"]

Announce = Callable[[str, Mapping[str, Any]], None]
"""Told what happens: the name of an event and its facts."""

TICK_S = 0.05
LONGEST_TURN_S = 30.0
_COMMAND_DEADLINE_S = 10.0
_RETRY_PORT_S = 5.0
_ARM_WATCHDOG_S = 1.0


class Agent:
    """Looks after one pool; `run` is its life."""

    def __init__(
        self,
        settings: AgentSettings,
        announce: Announce,
        *,
        make_ranking: Callable[[int], Ranking] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what it needs; nothing happens before `run`.

        Args:
            settings: Checked ones.
            announce: Told what happens.
            make_ranking: Other than by the policy of the settings.
            clock: Monotonic time in seconds.
        """
        self._settings = settings
        self._announce = announce
        self._clock = clock
        self._health = Health(clock, LONGEST_TURN_S)
        self._duties = Duties(settings, self._health, clock, make_ranking)
        self._attachment = Attachment(pool_path(settings.config))
        self._commands = Commands(_COMMAND_DEADLINE_S)
        view = View(settings, self._attachment, self._duties, self._health, clock)
        self._admin = AdminServer(settings, view, self._commands, self._duties)
        self._companion: Companion | None = None
        if settings.engine_pid is not None:
            self._companion = Companion(EngineProcess(settings.engine_pid), clock())
        self._keep_role = Pace(clock, settings.interval_s)
        self._open_port = Pace(clock, _RETRY_PORT_S)
        self._arm_watchdog = Pace(clock, _ARM_WATCHDOG_S)

    def run(self, stop: threading.Event) -> str:
        """Work until `stop` is set, the pool is removed, or no engine needs it any more.

        Returns:
            Why it ended.
        """
        try:
            while not stop.is_set():
                if self._arm_watchdog.is_due():
                    faulthandler.dump_traceback_later(LONGEST_TURN_S, exit=True)
                self._health.turned()
                self._turn(stop)
                why, _ = self._health.attempt("end", self._why_over)
                if why:
                    return why
                stop.wait(TICK_S)
            return "told to stop"
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._end()

    def _why_over(self) -> str:
        """Why this agent is not needed any more, or nothing."""
        if self._companion is not None:
            return self._companion.why_over(
                self._clock(),
                num_engines=self._attachment.num_engines,
                has_pool=self._attachment.pool is not None,
                is_spare=self._duties.role.state is RoleState.STANDBY,
            )
        return "" if self._attachment.path.exists() else "the pool was removed"

    def _turn(self, stop: threading.Event) -> None:
        """Each step that is due."""
        if not self._admin.is_open and self._open_port.is_due():
            self._health.attempt("admin_port", self._open_admin_port)
        if self._keep_role.is_due():
            self._health.attempt("role", self._hold_role)
            self._keep_role.done()
        pool = self._attachment.pool
        if pool is None or stop.is_set():
            return
        self._health.attempt("orders", lambda: self._commands.serve(pool))
        self._health.attempt("duties", lambda: self._duties.perform(pool))

    def _open_admin_port(self) -> None:
        self._admin.open()
        self._announce("serving", {"url": self._admin.url})

    def _hold_role(self) -> None:
        pool = self._attachment.renew(self._admin.address)
        role, before = self._duties.role, self._duties.role.state
        state = role.keep(pool) if self._attachment.is_member else role.rest()
        if state is not before:
            self._announce("role", {"role": state.value, "pool": str(self._attachment.path)})

    def _end(self) -> None:
        self._admin.close()
        # Gives the role back, so that another agent has it at once.
        self._health.attempt("detach", self._attachment.close)
