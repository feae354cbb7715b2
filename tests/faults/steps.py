"""How each labelled step of the core is brought about, and who dies there."""

import signal
from collections.abc import Callable
from pathlib import Path

from kvext.pool import _core
from tests.faults.arena import ANSWER_S, Arena, Worker
from tests.faults.nursery import Fate
from tests.faults.orders import Arm
from tests.faults.worker import READY

__all__ = ["ELSEWHERE", "LABELS", "victim_at"]

LABELS = _core.step_labels()
ELSEWHERE = ("format.", "load.quarantined", "repair.")
"""Steps that a pool under load never passes; they have tests of their own."""

_COMMON = ("lock.", "match.", "load.", "store.", "reserve.", "unpin.")
"""Steps that a process passes many times, so that the passage it dies at can be drawn."""


def victim_at(arena: Arena, label: str, number: signal.Signals) -> Worker:
    """A worker that sends itself that signal at that step, and has done so."""
    countdown = arena.random.randint(1, 12) if label.startswith(_COMMON) else 1
    arm = Arm(label, countdown, number)
    for prefix, prepare in _PREPARATIONS.items():
        if label.startswith(prefix):
            return prepare(arena, arm)
    return _await_signal(arena.bear("everything", arena.victim_row, arm=arm), number)


def _await_signal(worker: Worker, number: int) -> Worker:
    fate = worker.fate(ANSWER_S)
    wanted = Fate("stopped" if number == signal.SIGSTOP else "killed", number)
    assert fate == wanted, f"{worker} is {fate}, not {wanted}: {worker.complaints()}"
    return worker


def _behind_a_death_in_the_lock(arena: Arena, arm: Arm) -> Worker:
    """Nobody else may be first at the lock, or it would do the recovery."""
    arena.pause()
    dead = arena.bear("everything", arena.victim_row + 1, arm=Arm("lock.marked", 2, signal.SIGKILL))
    _await_signal(dead, signal.SIGKILL).bury()
    victim = _await_signal(arena.bear("everything", arena.victim_row, arm=arm), arm.signal)
    arena.go_on()
    return victim


def _behind_a_dead_holder(arena: Arena, arm: Arm) -> Worker:
    """Somebody has died who held pins and reservations."""
    holder = arena.bear("holder", arena.victim_row + 1)
    holder.expect(READY)
    holder.kill()
    # Observers reap, too, and have no row that would tell of their own death.
    task = arena.random.choice(("everything", "observer"))
    return _await_signal(arena.bear(task, arena.victim_row, arm=arm), arm.signal)


def _fenced_and_back(arena: Arena, arm: Arm) -> Worker:
    """It was stopped for longer than its lease and comes back."""
    victim = arena.bear("comes_back", arena.victim_row, arm=arm)
    _await_signal(victim, signal.SIGSTOP)
    arena.await_fencing(1)
    victim.signal(signal.SIGCONT)
    return _await_signal(victim, arm.signal)


_PREPARATIONS: dict[str, Callable[[Arena, Arm], Worker]] = {
    "recover.": _behind_a_death_in_the_lock,
    "reap.": _behind_a_dead_holder,
    "readmit.": _fenced_and_back,
}
