"""An agent that cannot do what it was asked for."""

from dataclasses import dataclass

from kvext.errors.base import KvextError

__all__ = ["AgentBusy", "AgentError", "AgentUnreachable"]


@dataclass(eq=False)
class AgentError(KvextError):
    """The agent of a pool cannot do what it was asked for."""


@dataclass(eq=False)
class AgentBusy(AgentError):
    """The agent's loop did not come to an order in time; it is not done."""

    waited_s: float

    _says = (
        "the agent did not come to it within {self.waited_s:g} s, or has too much waiting; "
        "look at its /health and try again"
    )


@dataclass(eq=False)
class AgentUnreachable(AgentError):
    """No agent answers at its admin port."""

    url: str
    reason: str

    _says = (
        "no agent answers at {self.url}: {self.reason}; start one with `kvext agent`, "
        "or name its port with --port"
    )
