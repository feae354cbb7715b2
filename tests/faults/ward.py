"""One worker process as the driver sees it: what it is told, what it answers, what became of it."""

import os
import select
import signal
import time
from pathlib import Path

from tests.faults.nursery import Fate, Nursery
from tests.faults.orders import Orders
from tests.faults.worker import ANSWER_S, QUIT, READY

__all__ = ["Ward"]


class Ward:
    """The driver's view of one worker process."""

    def __init__(self, nursery: Nursery, orders: Orders, *, wanted_pid: int = 0) -> None:
        """Bear it."""
        self.row = orders.row
        self.task = orders.task
        self._nursery = nursery
        self._in = _pipe(Path(orders.folder, f"{orders.row}.in"))
        self._out = _pipe(Path(orders.folder, f"{orders.row}.out"))
        self.pid = nursery.spawn(orders, wanted_pid=wanted_pid)

    def order(self, command: bytes) -> None:
        """Send a command."""
        os.write(self._in, command)

    def expect(self, word: bytes) -> None:
        """Wait for that answer."""
        deadline = time.monotonic() + ANSWER_S
        while not select.select([self._out], [], [], 0.5)[0]:
            fate = self.fate()
            assert fate.what == "running", f"{self} is {fate}: {self._nursery.complaints()}"
            assert time.monotonic() < deadline, f"{self} does not answer {word!r}"
        said = os.read(self._out, 1)
        if said == READY != word:  # left over: whoever starts says so, wanted or not
            self.expect(word)
        else:
            assert said == word

    def fate(self, timeout_s: float = 0.0) -> Fate:
        """What has become of it."""
        return self._nursery.fate(self.pid, timeout_s)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._nursery.signal(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it lives, and close its pipes."""
        fate = self.fate()
        if fate.what in {"running", "stopped"}:
            self.signal(signal.SIGKILL)
            fate = self.fate(ANSWER_S)
            assert fate == Fate("killed", signal.SIGKILL), fate
        self.bury()

    def quit(self) -> None:
        """Let it end by itself."""
        self.order(QUIT)
        self.expect(QUIT)
        assert self.fate(ANSWER_S) == Fate("exited", 0), self._nursery.complaints()
        self.bury()

    def bury(self) -> None:
        """Close the pipes of a worker that has ended."""
        os.close(self._in)
        os.close(self._out)

    def complaints(self) -> str:
        """What the nursery's workers wrote to standard error."""
        return self._nursery.complaints()

    def __repr__(self) -> str:  # type: ignore[explicit-override]  # typing has it from 3.12 on
        return f"<{self.task} {self.row}>"


def _pipe(path: Path) -> int:
    """A named pipe, empty, both ends open: neither side ever waits for the other to appear."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)
