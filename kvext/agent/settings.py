"""What a user can say to the agent."""

import difflib
from dataclasses import dataclass, field
from pathlib import Path

from kvext.agent.insured import InsuredRanking
from kvext.agent.ranking import PolicyRanking, Ranking
from kvext.agent.watermarks import Watermarks
from kvext.config import Config
from kvext.errors import InvalidOption, UnknownPolicy
from kvext.tenancy.policies import POLICY_NAMES, make_policy

__all__ = ["AGENT_POLICIES", "DEFAULT_POLICY", "DEFAULT_PORT", "AgentSettings"]

DEFAULT_PORT = 8765
INSURED = "insured"
DEFAULT_POLICY = INSURED
AGENT_POLICIES = (INSURED, *POLICY_NAMES)
"""The agent's own and those of the simulator; docs/agent.md compares them."""

_LEAST_INTERVAL_S = 0.05
_MOST_INTERVAL_S = 3600.0


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent.

    Attributes:
        config: Names the pool, and says how large a missing one shall be.
        watermarks: How much shall be free.
        policy: One of `AGENT_POLICIES`.
        host: Address of the admin port.
        port: 0 takes any that is free.
        token_file: Holds the admin's token; without it nothing can be changed over HTTP.
        interval_s: Between two looks at who was accessed.
        engine_pid: The engine that `kvext serve` started it for; None for an agent with a life
            of its own.
    """

    config: Config = field(default_factory=Config)
    watermarks: Watermarks = field(default_factory=Watermarks)
    policy: str = DEFAULT_POLICY
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token_file: Path | None = None
    interval_s: float = 1.0
    engine_pid: int | None = None

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            InvalidOption: A value is out of range.
            UnknownPolicy: There is no such policy.
        """
        self.watermarks.check()
        if not _LEAST_INTERVAL_S <= self.interval_s <= _MOST_INTERVAL_S:
            remedy = f"give seconds from {_LEAST_INTERVAL_S} to {_MOST_INTERVAL_S:g}"
            raise InvalidOption("--interval", self.interval_s, remedy)
        if self.policy not in AGENT_POLICIES:
            nearest = difflib.get_close_matches(self.policy, AGENT_POLICIES, n=1)
            raise UnknownPolicy(
                self.policy, nearest[0] if nearest else "", ", ".join(AGENT_POLICIES)
            )

    def make_ranking(self, num_extents: int) -> Ranking:
        """What chooses the records that go, for a pool of so many extents."""
        if self.policy == INSURED:
            return InsuredRanking(num_extents)
        return PolicyRanking(make_policy(self.policy, num_extents))
