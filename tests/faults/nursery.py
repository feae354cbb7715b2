"""A process that bears workers: it has imported everything, so a birth costs milliseconds.

It is no pytest process and holds no pool, and it can live in namespaces of its own. The driver
talks to it over its standard input and output, one line of JSON each way.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from tests.faults.orders import Orders

__all__ = ["Fate", "Nursery"]

_ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1
_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_Answer = TypeVar("_Answer")


class Spawn(msgspec.Struct, frozen=True, tag=True):
    """Bear a worker; answered with its pid in the nursery's namespace."""

    orders: Orders
    wanted_pid: int = 0


class Signal(msgspec.Struct, frozen=True, tag=True):
    """Send a signal to a worker."""

    pid: int
    number: int


class Await(msgspec.Struct, frozen=True, tag=True):
    """Wait until a worker has stopped or ended."""

    pid: int
    timeout_s: float


class Fate(msgspec.Struct, frozen=True):
    """What became of a worker: "running", "stopped", "killed", "dumped" or "exited"."""

    what: str
    number: int = 0
    """The signal, or the exit status."""


_FATES = {
    os.CLD_STOPPED: "stopped",
    os.CLD_KILLED: "killed",
    os.CLD_DUMPED: "dumped",
    os.CLD_EXITED: "exited",
}


class Nursery:
    """The driver's side; a context manager that ends all workers on exit."""

    def __init__(self, folder: Path, *, through: tuple[str, ...] = ()) -> None:
        """Start a nursery whose workers write what they complain of into `folder`.

        Args:
            folder: For the workers' complaints.
            through: A command that runs another one in namespaces of its own.
        """
        self._complaints = folder / f"complaints-{time.monotonic_ns()}.txt"
        with self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                [*through, sys.executable, "-m", "tests.faults.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=_ROOT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()  # upon which it ends its workers
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.stdout.close()
            self._process.wait(20)

    def spawn(self, orders: Orders, *, wanted_pid: int = 0) -> int:
        """Bear a worker; its pid is as the nursery's namespace counts."""
        return self._ask(Spawn(orders, wanted_pid), int)

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a worker that has not been waited for to its end."""
        self._ask(Signal(pid, number), int)

    def fate(self, pid: int, timeout_s: float = 0.0) -> Fate:
        """What became of a worker, after at most that long."""
        return self._ask(Await(pid, timeout_s), Fate)

    def complaints(self) -> str:
        """What workers wrote to standard error."""
        return self._complaints.read_text()

    def _ask(self, request: msgspec.Struct, answer: type[_Answer]) -> _Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the nursery has ended: {self.complaints()}"
        return msgspec.json.decode(line, type=answer)


def _bear(spawn: Spawn) -> int:
    if spawn.wanted_pid:
        _LAST_PID.write_text(str(spawn.wanted_pid - 1))
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    from tests.faults.worker import work  # noqa: PLC0415 - imported by main() already

    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            _silence()
            work(spawn.orders)
            status = 0
    except BaseException:  # noqa: BLE001 - the child must end here
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


def _await(request: Await, ended: dict[int, Fate]) -> Fate:
    deadline = time.monotonic() + request.timeout_s
    while request.pid not in ended:
        state = os.waitid(os.P_PID, request.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG)
        if state is not None:
            fate = Fate(_FATES[state.si_code], state.si_status)
            if fate.what == "stopped":
                return fate
            ended[request.pid] = fate
            break
        left = deadline - time.monotonic()
        if left <= 0:
            return Fate("running")
        signal.sigtimedwait([signal.SIGCHLD], left)
    return ended[request.pid]


def main() -> None:
    """Serve requests until standard input ends."""
    import tests.faults.worker  # noqa: F401, PLC0415 - before the first birth

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    decoder = msgspec.json.Decoder(Spawn | Signal | Await)
    born: set[int] = set()
    ended: dict[int, Fate] = {}
    for line in sys.stdin.buffer:
        request = decoder.decode(line)
        answer: int | Fate = 0
        match request:
            case Spawn():
                answer = _bear(request)
                born.add(answer)
                ended.pop(answer, None)
            case Signal():
                os.kill(request.pid, request.number)
            case Await():
                answer = _await(request, ended)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
    for pid in born - set(ended):
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
