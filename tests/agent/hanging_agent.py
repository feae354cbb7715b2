"""A program: an agent on the pool of a folder whose policy never answers."""

import sys
import threading
from pathlib import Path

from kvext.agent import Agent, AgentSettings, agent
from kvext.agent.ranking import Ranking
from kvext.config import Config


def never(num_extents: int) -> Ranking:
    """A policy that takes for ever to make."""
    while num_extents:
        pass
    raise AssertionError


def main(folder: str) -> None:
    """Run it, with a watchdog of a second."""
    agent.LONGEST_TURN_S = 1.0
    settings = AgentSettings(config=Config(pool_folder=str(Path(folder))), port=0, interval_s=0.05)

    def tell(event: str, facts: object) -> None:
        print(event, facts, flush=True)  # noqa: T201 - to the test

    Agent(settings, tell, make_ranking=never).run(threading.Event())


if __name__ == "__main__":
    main(sys.argv[1])
