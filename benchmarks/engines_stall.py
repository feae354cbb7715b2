"""What clients see when the process dies that keeps the blocks, while requests come.

Clients ask short new questions without a pause. The stall is how much longer the longest request
took after the strike than the longest before it, in windows of equal length; a request that fails
counts with the time that it took. kvext has no keeper: the nearest to it is a process that dies
with blocks pinned and the pool's lock in its hand, three times.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Self

from engines_systems import System
from engines_victim import victim
from spread import Distribution

from kvext.testing.chat import EngineLost, RequestRefused
from kvext.testing.long_prompts import log_question
from kvext.testing.serving import ServedEngine

__all__ = ["stall_of"]

NUM_CLIENTS = 2
NUM_VICTIMS = 3
VICTIM_PAUSE_S = 2.0
LOG_DAYS = 2
ANSWER_TOKENS = 16
NUM_WARM_UPS = 4
JOIN_DEADLINE_S = 400.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client: when it ended and how long the first token took."""

    ended_s: float
    ttft_s: float
    failed: bool


class Clients:
    """Threads that ask an engine without a pause."""

    def __init__(self, engine: ServedEngine, name: str) -> None:
        """Describe them."""
        self._engine = engine
        self._name = name
        self._enough = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(number,), daemon=True)
            for number in range(NUM_CLIENTS)
        ]
        self.requests: list[Request] = []

    def __enter__(self) -> Self:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let each finish what it has asked."""
        self._enough.set()
        for thread in self._threads:
            thread.join(JOIN_DEADLINE_S)

    def _ask_on(self, client: int) -> None:
        number = 0
        while not self._enough.is_set():
            number += 1
            self.requests.append(_ask(self._engine, f"{self._name} {client} {number}"))


def _ask(engine: ServedEngine, station: str) -> Request:
    begun_s = time.monotonic()
    try:
        answer = engine.chat(log_question(station, days=LOG_DAYS), ANSWER_TOKENS, ignore_eos=True)
    except (EngineLost, RequestRefused):
        ended_s = time.monotonic()
        return Request(ended_s, ended_s - begun_s, failed=True)
    return Request(time.monotonic(), answer.ttft_s, failed=False)


def stall_of(system: System, window_s: float, block_tokens: int) -> dict[str, Any]:
    """Watch the clients of one system for two windows, with the strike between them."""
    for number in range(NUM_WARM_UPS):
        _ask(system.engine, f"{system.name} warm-up {number}")
    with ExitStack() as stack:
        strike = _strike_of(system, block_tokens, stack)
        with Clients(system.engine, system.name) as clients:
            time.sleep(window_s)
            struck_s = time.monotonic()
            strike()
            time.sleep(max(0.0, struck_s + window_s - time.monotonic()))
    return {"struck": _what_was_struck(system), **_summary(clients.requests, struck_s)}


def _summary(requests: Sequence[Request], struck_s: float) -> dict[str, Any]:
    before_ms = [1e3 * request.ttft_s for request in requests if request.ended_s < struck_s]
    after_ms = [1e3 * request.ttft_s for request in requests if request.ended_s >= struck_s]
    return {
        "num_before": len(before_ms),
        "num_after": len(after_ms),
        "num_failed": sum(request.failed for request in requests),
        "before_ms": asdict(Distribution.of(before_ms, 1)),
        "after_ms": asdict(Distribution.of(after_ms, 1)),
        "stall_ms": round(max(0.0, max(after_ms) - max(before_ms)), 1),
    }


def _what_was_struck(system: System) -> str:
    if system.server is not None:
        return "its server process, SIGKILL"
    if system.pool is not None:
        return (
            f"{NUM_VICTIMS} attached processes, SIGKILL inside the allocation lock, blocks pinned"
        )
    return "nothing (shows the noise)"


def _strike_of(system: System, block_tokens: int, stack: ExitStack) -> Callable[[], None]:
    if system.server is not None:
        return system.server.kill
    if system.pool is None:
        return lambda: None
    victims = [stack.enter_context(victim(system.pool, block_tokens)) for _ in range(NUM_VICTIMS)]
    num_pins = [one.wait_until_attached() for one in victims]
    assert all(num_pins), "a victim found nothing to pin"

    def strike() -> None:
        for number, one in enumerate(victims):
            time.sleep(VICTIM_PAUSE_S if number else 0.0)
            one.die()

    return strike
