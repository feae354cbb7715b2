"""The systems that `engines.py` compares, each a served vLLM with or without a connector.

All serve the same model with the same options on the same core. Each connector gets the mode that
was the fastest for it, memory of the same size, and that memory's pages before the first request.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import engines_probe
from engines_probe import PROBE_FILE, Spent

from kvext.cxl import region_path
from kvext.testing.serving import ServedEngine

__all__ = [
    "LMCACHE_MODES",
    "System",
    "serve_all",
    "server_command",
    "transfer_config",
]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where both keep their blocks
POOL_GIB = 2
ENGINE_CORE = "0"
ENGINE_OPTIONS = ("--max-model-len=8192", "--kv-cache-memory-bytes=512M", "--enforce-eager")
LMCACHE_MODES = ("engine_driven", "lmcache_driven")
"""The better one first."""
LMCACHE_DEADLINES: dict[str, object] = {
    # By default 10 s and 300 s: how soon it notices that its server is dead.
    "lmcache.mp.heartbeat_interval": 1.0,
    "lmcache.mp.mq_timeout": 5.0,
}
SERVER_DEADLINE_S = 90.0
POLL_S = 0.1
QUIET = {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, slots=True)
class System:
    """One of the compared.

    Attributes:
        name: As the results call it.
        engine: Its engine.
        probe: Where the connector's calls are timed; None without a connector.
        pool: kvext's region.
        server: LMCache's server.
    """

    name: str
    engine: ServedEngine
    probe: Path | None = None
    pool: Path | None = None
    server: "LMCacheServer | None" = None

    def spent(self) -> Spent:
        """Seconds in the connector's calls so far."""
        return engines_probe.read(self.probe) if self.probe is not None else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class LMCacheServer:
    """LMCache's process, which holds the blocks."""

    process: subprocess.Popen[bytes]
    port: int
    shm_name: str

    def kill(self) -> None:
        """SIGKILL, and no more."""
        self.process.kill()
        self.process.wait()


def server_command(venv: Path, ports: Sequence[int], shm_name: str) -> list[str]:
    """LMCache's server as its documentation starts it, its memory allocated at once."""
    port, http_port, metrics_port = map(str, ports)
    return [
        *(str(venv / "bin" / "lmcache"), "server", "--host", "127.0.0.1", "--port", port),
        *("--http-host", "127.0.0.1", "--http-port", http_port),
        *("--prometheus-port", metrics_port, "--l1-size-gb", str(POOL_GIB), "--no-l1-use-lazy"),
        *("--eviction-policy", "LRU", "--supported-transfer-mode", "auto"),
        *("--shm-name", shm_name),
    ]


def transfer_config(connector: str, options: dict[str, object]) -> dict[str, object]:
    """What vLLM is told about a connector."""
    return {
        "kv_connector": connector,
        "kv_connector_module_path": engines_probe.__name__,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": options,
    }


@contextmanager
def serve_all(
    model: Path, peer_venv: Path | None, modes: Sequence[str], logs: Path
) -> Iterator[list[System]]:
    """Serve plain vLLM, kvext, and LMCache in each of `modes` if there is one; all at once."""
    with ExitStack() as stack:
        systems = [_plain(stack, model, logs), _kvext(stack, model, logs)]
        if peer_venv is not None:
            systems += [_lmcache(stack, model, peer_venv, mode, logs) for mode in modes]
        yield systems


def _plain(stack: ExitStack, model: Path, logs: Path) -> System:
    command = ["vllm", "serve", str(model), *ENGINE_OPTIONS]
    engine = ServedEngine(command, log=logs / "vllm.log", cores=ENGINE_CORE)
    return System("vllm", stack.enter_context(engine))


def _kvext(stack: ExitStack, model: Path, logs: Path) -> System:
    folder = tempfile.TemporaryDirectory(dir=SHARED_MEMORY, prefix="kvext-engines-")
    pool_folder = stack.enter_context(folder)
    options: dict[str, object] = {"pool_folder": pool_folder, "pool_size": f"{POOL_GIB}GiB"}
    config = transfer_config("TimedKvextConnector", options)
    engine, probe = _engine_with(stack, "vllm", model, config, logs / "kvext.log")
    return System("kvext", engine, probe, region_path(Path(pool_folder), "default"))


def _lmcache(stack: ExitStack, model: Path, venv: Path, mode: str, logs: Path) -> System:
    server = stack.enter_context(_lmcache_server(venv, logs / f"lmcache-server-{mode}.log"))
    options: dict[str, object] = {
        "lmcache.mp.host": "tcp://127.0.0.1",
        "lmcache.mp.port": server.port,
        "lmcache.mp.mp_transfer_mode": mode,
        **LMCACHE_DEADLINES,
    }
    config = transfer_config("TimedLMCacheMPConnector", options)
    log = logs / f"lmcache-{mode}.log"
    program = str(venv / "bin" / "vllm")
    engine, probe = _engine_with(stack, program, model, config, log)
    stack.callback(_remove_shared_memory, [f"lmcache_kv_{pid}_*" for pid in engine.pids])
    return System(f"lmcache_{mode}", engine, probe, server=server)


def _engine_with(
    stack: ExitStack, program: str, model: Path, config: dict[str, object], log: Path
) -> tuple[ServedEngine, Path]:
    probe = log.with_suffix(".probe")
    engines_probe.create(probe)
    environment = {PROBE_FILE: str(probe), "PYTHONPATH": str(Path(__file__).parent), **QUIET}
    command = [program, "serve", str(model), *ENGINE_OPTIONS]
    command += ["--kv-transfer-config", json.dumps(config)]
    engine = ServedEngine(command, log=log, cores=ENGINE_CORE, environment=environment)
    return stack.enter_context(engine), probe


@contextmanager
def _lmcache_server(venv: Path, log: Path) -> Iterator[LMCacheServer]:
    ports = _free_ports(3)
    shm_name = f"kvext-bench-{ports[0]}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            server_command(venv, ports, shm_name),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIET},
            process_group=0,
        )
    try:
        _wait_until_listening(process, ports[1], log)
        _allocate_pages(shm_name)
        yield LMCacheServer(process, ports[0], shm_name)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _remove_shared_memory([f"*{shm_name}*"])


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end_s = time.monotonic() + SERVER_DEADLINE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > end_s:
            tail = log.read_text(errors="replace")[-2000:]
            raise TimeoutError(f"LMCache's server did not start:\n{tail}")
        time.sleep(POLL_S)


def _allocate_pages(shm_name: str) -> None:
    """What kvext's pool does for itself: no store pays for the first touch of a page."""
    (path,) = SHARED_MEMORY.glob(f"*{shm_name}*")
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _remove_shared_memory(patterns: Sequence[str]) -> None:
    """What a killed process left behind."""
    for pattern in patterns:
        for path in SHARED_MEMORY.glob(pattern):
            path.unlink(missing_ok=True)


def _free_ports(num_ports: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(num_ports)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
