"""A real engine behind its real HTTP server, as a context manager for tests, demos, benchmarks.

The engine runs in a process group of its own, so that it can be killed as a whole, and is gone
as a whole when the context ends, however it ends.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kvext.errors import KvextError
from kvext.testing.chat import Answer, ChatClient, EngineLost, RequestRefused, StreamedAnswer
from kvext.testing.engine_metrics import EngineMetrics
from kvext.testing.process_group import ProcessGroup

__all__ = ["EngineNotServing", "ServedEngine"]

_POLL_S = 0.05
_SETTLE_DEADLINE_S = 10.0
_TAIL_BYTES = 4000
_LOCAL_ONLY = {
    # Nothing here needs a model hub, and tests tell nobody about themselves.
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # A served engine has its own processes, whatever this one does with an engine inside it.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    # Opens /reset_prefix_cache.
    "VLLM_SERVER_DEV_MODE": "1",
}


@dataclass(eq=False)
class EngineNotServing(KvextError):
    """The engine ended, or was not ready in time."""

    command: tuple[str, ...]
    log: str
    reason: str
    log_tail: str

    _says = (
        "the engine {self.command[0]!r} {self.reason}; read its log {self.log}, which ends with:\n"
        "{self.log_tail}"
    )


class ServedEngine:
    """One served model on a free port of this machine.

    Example:
        with ServedEngine(["kvext", "serve", str(folder), "--pool", "1GiB"], log=log) as engine:
            answer = engine.chat([{"role": "user", "content": "Hello"}], max_tokens=16)
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cores: str = "",
        environment: Mapping[str, str] | None = None,
        start_deadline_s: float = 240.0,
        stop_deadline_s: float = 20.0,
    ) -> None:
        """Describe the engine.

        Args:
            command: How to serve, without host and port; programs beside this Python are found.
            log: File that takes what the engine prints.
            cores: CPU cores of the engine's threads, such as "0" or "0-3". Two engines without it
                land on the same ones.
            environment: More variables for the engine.
            start_deadline_s: How long it may take to get ready.
            stop_deadline_s: How long it may take to end by itself.
        """
        self._command = tuple(command)
        self._log = log
        self._environment = {
            **_LOCAL_ONLY,
            **({"VLLM_CPU_OMP_THREADS_BIND": cores} if cores else {}),
            **(environment or {}),
        }
        self._start_deadline_s = start_deadline_s
        self._stop_deadline_s = stop_deadline_s
        self._leader: subprocess.Popen[bytes] | None = None
        self._group: ProcessGroup | None = None
        self._client = ChatClient(0)

    def __enter__(self) -> Self:
        """Start and wait until it serves.

        Raises:
            EngineNotServing: It ended instead, or took too long; nothing of it is left.
        """
        self.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The engine's living processes."""
        return self._group.pids() if self._group is not None else []

    @property
    def port(self) -> int:
        """Where it serves HTTP; 0 before it was started."""
        return self._client.port

    def start(self) -> None:
        """Start without waiting, for two engines that get ready at the same time."""
        port = _free_port()
        self._client = ChatClient(port)
        command = [*self._command, "--host", "127.0.0.1", "--port", str(port)]
        environment = _local_environment() | self._environment
        with self._log.open("wb") as log:
            self._leader = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,
            )
        self._group = ProcessGroup(self._leader)

    def wait_until_ready(self) -> None:
        """Wait until the server says that it is healthy.

        Raises:
            EngineNotServing: It ended instead, or took too long.
        """
        if self._leader is None or self._group is None:
            raise self._not_serving("was never started")
        end_s = time.monotonic() + self._start_deadline_s
        while not self._is_healthy():
            if self._leader.poll() is not None:
                raise self._not_serving(f"ended with exit code {self._leader.returncode}")
            if time.monotonic() > end_s:
                raise self._not_serving(f"was not ready after {self._start_deadline_s:g} s")
            time.sleep(_POLL_S)
        self._group.remember()

    def stop(self) -> None:
        """End it in order, with SIGKILL for what does not; a second call does nothing."""
        self._end(lambda group: group.stop(self._stop_deadline_s))

    def kill(self) -> None:
        """SIGKILL the engine, all processes at once, as a crash of the host's OOM killer would."""
        self._end(lambda group: group.kill())

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        *,
        ignore_eos: bool = False,
    ) -> StreamedAnswer:
        """Ask and receive token by token, which measures the time to the first one.

        Raises:
            EngineLost: The engine died meanwhile.
            RequestRefused: The engine answered with an error.
        """
        return self._client.stream(messages, max_tokens, ignore_eos=ignore_eos)

    def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        *,
        ignore_eos: bool = False,
    ) -> Answer:
        """Ask for the whole answer at once, which brings kvext's counts of the request.

        Raises:
            EngineLost: The engine died meanwhile.
            RequestRefused: The engine answered with an error.
        """
        return self._client.ask(messages, max_tokens, ignore_eos=ignore_eos)

    def metrics(self) -> EngineMetrics:
        """The engine's counters now."""
        return EngineMetrics.parse(self._client.fetch("GET", "/metrics"))

    def metrics_with(self, earlier: EngineMetrics, prompt_tokens: int) -> EngineMetrics:
        """What was added to `earlier`, once it includes requests of so many prompt tokens.

        The page follows an answer by a moment.

        Raises:
            TimeoutError: The engine never counted them.
        """
        end_s = time.monotonic() + _SETTLE_DEADLINE_S
        while (added := self.metrics().since(earlier)).prompt_tokens < prompt_tokens:
            if time.monotonic() > end_s:
                message = f"/metrics shows {added.prompt_tokens} of {prompt_tokens} prompt tokens"
                raise TimeoutError(message)
            time.sleep(_POLL_S)
        return added

    def reset_prefix_cache(self) -> None:
        """Make the engine forget its own prefix cache; the pool stays."""
        self._client.fetch("POST", "/reset_prefix_cache")

    def _end(self, how: Callable[[ProcessGroup], None]) -> None:
        if self._group is not None:
            how(self._group)
            self._group = None

    def _is_healthy(self) -> bool:
        try:
            self._client.fetch("GET", "/health")
        except (EngineLost, RequestRefused):
            return False
        return True

    def _not_serving(self, reason: str) -> EngineNotServing:
        return EngineNotServing(self._command, str(self._log), reason, _tail(self._log))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _local_environment() -> dict[str, str]:
    """This process's, without proxies, and with the programs of this Python's environment."""
    environment = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    programs = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join([programs, environment.get("PATH", os.defpath)])
    return environment


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
