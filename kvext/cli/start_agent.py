"""Starts the pool's agent beside an engine: off to the side, in milliseconds, whatever happens.

The agent is nobody's child: engines end all of theirs when they fail, and the other engines of the
pool still use it. It ends by itself when no engine is left, or at once if another one is there.
"""

import contextlib
import os
import sys
from pathlib import Path

from kvext.config import Config

__all__ = ["agent_command", "start_agent"]

_MAIN = "from kvext.cli import main; main()"
_NICE = 10
_MOST_FDS = 4096
_FAILED = 127


def agent_command(config: Config, engine_pid: int) -> list[str]:
    """The agent of an engine's pool, as an argument vector.

    Args:
        config: Names the pool.
        engine_pid: The process that is, or will become, the engine.
    """
    pool = ["--name", config.pool_name, "--folder", config.pool_folder, "--size", config.pool_size]
    log = str(_cache_folder() / "kvext" / f"agent-{config.pool_name}.log")
    # -P: a module in the working directory must not stand in for one of Python's.
    python = [sys.executable, "-P", "-c", _MAIN]
    return [*python, "agent", *pool, "--companion-of", str(engine_pid), "--log-file", log]


def start_agent(config: Config) -> bool:
    """Start one for the engine that this process is about to become.

    Returns:
        Whether a process could be made; what it does then is its own affair.
    """
    command = agent_command(config, os.getpid())
    try:
        between = os.fork()
    except OSError:
        return False
    if between == 0:
        _leave(command)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(between, 0)
    return True


def _leave(command: list[str]) -> None:
    """In the child: have a child of its own become the agent, and end."""
    try:
        os.setsid()
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(nowhere, standard)
            os.closerange(3, _MOST_FDS)
            os.nice(_NICE)
            os.execv(command[0], command)  # noqa: S606 - no shell, and our own arguments
    finally:
        os._exit(_FAILED)


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
