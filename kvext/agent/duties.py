"""What the holder of the role does for the pool, each thing at its own pace."""

from collections.abc import Callable

from kvext.agent.counters import Counters
from kvext.agent.health import Health
from kvext.agent.pace import Pace
from kvext.agent.ranking import Ranking
from kvext.agent.reaping import reap
from kvext.agent.reclaim import Reclaimer
from kvext.agent.role import Role, RoleState
from kvext.agent.settings import AgentSettings
from kvext.pool import Pool

__all__ = ["Duties"]


class Duties:
    """Holds the role if it can, and then reaps, looks and reclaims.

    Attributes:
        role: What this process is to the pool.
        reclaimer: Makes room.
        counters: What was done.
    """

    def __init__(
        self,
        settings: AgentSettings,
        health: Health,
        clock: Callable[[], float],
        make_ranking: Callable[[int], Ranking] | None = None,
    ) -> None:
        """Begin on standby.

        Args:
            settings: Checked ones.
            health: Told of each step that fails.
            clock: Monotonic time in seconds.
            make_ranking: Other than by the policy of the settings.
        """
        self.role = Role()
        self.counters = Counters()
        self.reclaimer = Reclaimer(
            settings.watermarks,
            make_ranking or settings.make_ranking,
            self.counters,
            health,
            clock,
        )
        self._health = health
        self._clock = clock
        self._interval_s = settings.interval_s
        self._retry_reclaim_s = clock()
        self._look = Pace(clock, settings.interval_s)
        self._reap = Pace(clock, settings.interval_s)

    def perform(self, pool: Pool) -> None:
        """What is due; nothing on standby."""
        if self.role.state is not RoleState.HOLDER:
            return
        if self._reap.is_due():
            self._health.attempt("reap", lambda: reap(pool, self.counters))
            self._reap.done()
        # Without tables there is nothing to look at: the first engine makes them.
        if not pool.num_extents:
            return
        if self._clock() >= self._retry_reclaim_s and self.reclaimer.is_short(pool):
            num_gone, _ = self._health.attempt("reclaim", lambda: self.reclaimer.reclaim(pool))
            if not num_gone:  # all is pinned: to look at every record again at once would be idle
                self._retry_reclaim_s = self._clock() + self._interval_s
        elif self._look.is_due():
            self._health.attempt("look", lambda: self.reclaimer.look(pool))
            self._look.done()
