"""`kvext agent`: one optional process a host that makes a pool better.

It reclaims ahead of need by the real policy, reaps, makes the pool beforehand and answers on its
own port. Invariant: a hung, killed, poisoned or absent agent costs nothing but optimality; no
engine ever waits for it.
"""

from kvext.agent.agent import Agent, Announce
from kvext.agent.population import populate
from kvext.agent.settings import AGENT_POLICIES, DEFAULT_POLICY, DEFAULT_PORT, AgentSettings
from kvext.agent.watermarks import Watermarks

__all__ = [
    "AGENT_POLICIES",
    "DEFAULT_POLICY",
    "DEFAULT_PORT",
    "Agent",
    "AgentSettings",
    "Announce",
    "Watermarks",
    "populate",
]
