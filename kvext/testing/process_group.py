"""Ending an engine, which is several processes, without leaving anything of it behind.

An engine runs in a process group of its own. Killing it means its processes and not Python's
resource trackers among them: a tracker ends by itself once the others are gone, and takes
the shared memory away that they had no chance to remove.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["ProcessGroup"]

_POLL_S = 0.01
_TRACKER_GRACE_S = 5.0
_GONE_DEADLINE_S = 10.0
_ENDED = "ZX"  # states of /proc/PID/stat: a zombie holds nothing but its number


class ProcessGroup:
    """The group that `leader` leads; it must have been started with `process_group=0`."""

    def __init__(self, leader: subprocess.Popen[bytes]) -> None:
        """Take over a running leader."""
        self._leader = leader
        self._known: tuple[int, ...] = ()

    def pids(self) -> list[int]:
        """The living processes of the group."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _group_if_alive(entry) == self._leader.pid
        ]

    def remember(self) -> None:
        """Note who is there now, so that `kill` need not look for them first."""
        self._known = tuple(pid for pid in self.pids() if not _is_tracker(pid))

    def kill(self) -> None:
        """SIGKILL all at once; returns when all are gone, their shared memory included.

        Raises:
            TimeoutError: A process outlived SIGKILL.
        """
        self._signal(self._known, signal.SIGKILL)
        begun_s = time.monotonic()
        while alive := self.pids():
            waited_s = time.monotonic() - begun_s
            if waited_s > _GONE_DEADLINE_S:
                message = f"processes {alive} outlived SIGKILL for {waited_s:.0f} s"
                raise TimeoutError(message)
            spared = waited_s < _TRACKER_GRACE_S
            self._signal(
                [pid for pid in alive if not (spared and _is_tracker(pid))], signal.SIGKILL
            )
            self._leader.poll()
            time.sleep(_POLL_S)
        self._leader.wait()

    def stop(self, deadline_s: float) -> None:
        """Ask the leader to end (SIGTERM); kill what is left of the group at the deadline."""
        self._signal([self._leader.pid], signal.SIGTERM)
        end_s = time.monotonic() + deadline_s
        while self.pids() and time.monotonic() < end_s:
            self._leader.poll()
            time.sleep(_POLL_S)
        self.kill()

    def _signal(self, pids: Iterable[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                # A number can be somebody else's by now.
                if os.getpgid(pid) == self._leader.pid:
                    os.kill(pid, number)


def _group_if_alive(entry: Path) -> int | None:
    try:
        text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it ended between listing and reading
        return None
    state, _parent, group = text.rpartition(")")[2].split()[:3]
    return None if state in _ENDED else int(group)


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
