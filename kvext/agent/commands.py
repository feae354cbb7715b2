"""What an administrator asks for over HTTP, done by the agent's own thread between its steps.

The asker waits with a deadline, so that a stuck loop costs an answer and not a thread.
"""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Any

from kvext.errors import AgentBusy
from kvext.pool import Pool

__all__ = ["Commands"]

Command = Callable[[Pool], dict[str, Any]]

_MOST_WAITING = 16


class Commands:
    """A short queue from the admin port's threads to the loop."""

    def __init__(self, deadline_s: float) -> None:
        """Begin empty; nobody waits longer than the deadline."""
        self._deadline_s = deadline_s
        self._waiting: queue.Queue[tuple[Command, Future[dict[str, Any]]]] = queue.Queue(
            _MOST_WAITING
        )

    def ask(self, command: Command) -> dict[str, Any]:
        """Have the loop do it, and return its answer or raise what it raised.

        Raises:
            AgentBusy: The loop did not come to it in time; it will not be done.
        """
        answer: Future[dict[str, Any]] = Future()
        try:
            self._waiting.put_nowait((command, answer))
            return answer.result(self._deadline_s)
        except (queue.Full, NotInTime):
            answer.cancel()
            raise AgentBusy(self._deadline_s) from None

    def serve(self, pool: Pool) -> None:
        """Do what is waiting."""
        while not self._waiting.empty():
            command, answer = self._waiting.get_nowait()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(command(pool))
            except BaseException as error:  # noqa: BLE001 - the asker's thread raises it
                answer.set_exception(error)
