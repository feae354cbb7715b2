"""Who is the agent of a pool: one process at a time; others stand by and take over.

The pool keeps the role: it is free again as soon as its holder is dead, or hung for a lease.
"""

from enum import StrEnum

from kvext.pool import Pool

__all__ = ["Role", "RoleState"]


class RoleState(StrEnum):
    """What this process is to the pool."""

    IDLE = "idle"
    """No engine is attached: there is nothing to look after."""
    HOLDER = "holder"
    """It is the agent."""
    STANDBY = "standby"
    """Another process is, and lives."""


class Role:
    """Claims the role again and again, and notes how often it changed hands.

    Attributes:
        state: As of the last `keep`.
        num_claims: How often this process became the agent.
        num_losses: How often it was taken for dead and replaced.
    """

    def __init__(self) -> None:
        """Begin before the first claim."""
        self.state = RoleState.IDLE
        self.num_claims = 0
        self.num_losses = 0

    def rest(self) -> RoleState:
        """There is nothing to look after; who detaches gives the role back by that."""
        self.state = RoleState.IDLE
        return self.state

    def keep(self, pool: Pool) -> RoleState:
        """Hold the role, or take it if it is free."""
        if pool.holds_agent_role:
            self.state = RoleState.HOLDER
            return self.state
        if self.state is RoleState.HOLDER:
            self.num_losses += 1
        self.state = RoleState.STANDBY
        if pool.claim_agent_role():
            self.state = RoleState.HOLDER
            self.num_claims += 1
        return self.state
