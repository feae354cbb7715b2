"""A real agent in a process of its own."""

import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["KVEXT", "WAIT_S", "AgentProcess"]

WAIT_S = 30.0
KVEXT = (sys.executable, "-c", "from kvext.cli import main; main()")


class AgentProcess:
    """`kvext agent --json` on pools of one folder; killed at the end if it still runs."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Start it."""
        command = [*KVEXT, "agent", "--folder", str(folder), "--port", "0", "--json"]
        self.process = subprocess.Popen(
            [*command, "--interval", "0.1", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._events: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """Return the process itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def await_event(self, name: str, **facts: object) -> dict[str, Any]:
        """The next event of this name with these facts; others before it are passed over."""
        while True:
            event = json.loads(self._events.get(timeout=WAIT_S))
            if event["event"] == name and facts.items() <= event.items():
                return dict(event)

    def stop(self) -> None:
        """SIGSTOP: it hangs from now on, whatever it was doing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(line)
