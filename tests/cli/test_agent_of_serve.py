"""The agent that `kvext serve` starts beside the engine: for all of its pool, in nobody's way."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvext.cli import kvext
from kvext.cli.start_agent import agent_command
from kvext.config import Config
from kvext.cxl import create_region, region_path, remove_region
from kvext.pool import Pool
from tests.cli.agent_process import KVEXT, WAIT_S
from tests.pool.engine_memory import RECORD_BYTES

# In vLLM's place: says that it runs, and ends when its input does.
_ENGINE = f"#!{sys.executable}\nimport sys\nprint('engine runs', flush=True)\nsys.stdin.read()\n"


@pytest.fixture
def region(tmp_path: Path) -> Path:
    path = region_path(tmp_path, "default")
    create_region(path, 2 << 20, Pool.initialise)
    return path


@contextmanager
def _served(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "vllm").write_text(_ENGINE)
    (programs / "vllm").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"}
    with subprocess.Popen(
        [*KVEXT, "serve", "model", "--pool-folder", str(folder), *options],
        env={**inherited, "PATH": str(programs), "XDG_CACHE_HOME": str(folder / "cache")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("vllm serve model")
        assert process.stdout.readline() == "engine runs\n"
        yield process
        assert process.stdin
        process.stdin.close()
        assert process.wait(WAIT_S) == 0


def _until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


def _log(folder: Path) -> str:
    path = folder / "cache" / "kvext" / "agent-default.log"
    return path.read_text() if path.exists() else ""


def _agent_pid(folder: Path) -> int:
    status = CliRunner().invoke(kvext, ["agent", "status", "--folder", str(folder), "--json"])
    return int(json.loads(status.stdout)["agent"]["pid"])


def _is_gone(pid: int) -> bool:
    try:
        # Where nobody collects the orphans of a container, they stay as zombies.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_outlives_its_engine_while_others_are_there_and_then_goes(
    tmp_path: Path, region: Path
) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="other engine") as engine:
        with _served(tmp_path):
            _until(lambda: engine.stat().agent_label != "")
        pid = _agent_pid(tmp_path)
        engine_gone_at_s = time.monotonic()
        _until(lambda: time.monotonic() - engine_gone_at_s > 1.5)
        assert engine.stat().agent_label != ""
        assert not _is_gone(pid)
    remove_region(region)
    _until(lambda: _is_gone(pid))
    assert "neither the engine nor the pool" in _log(tmp_path)


def test_a_second_engine_starts_no_second_agent(tmp_path: Path, region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="other engine") as engine:
        with _served(tmp_path):
            _until(lambda: engine.stat().agent_label != "")
            with _served(tmp_path):
                _until(lambda: "another agent looks after the pool" in _log(tmp_path))
                _until(lambda: len(engine.stat().processes) == 2)
        pid = _agent_pid(tmp_path)
    remove_region(region)
    _until(lambda: _is_gone(pid))


def test_no_agent_is_started_where_none_is_wanted(tmp_path: Path, region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="other engine") as engine:
        with _served(tmp_path, "--no-agent"):
            pass
        assert engine.stat().agent_label == ""
    assert _log(tmp_path) == ""
    assert not (tmp_path / "cache").exists()


def test_agent_is_for_the_pool_that_the_engine_was_told_of() -> None:
    command = agent_command(Config(pool_name="blue", pool_folder="/mnt/x", pool_size="8GiB"), 77)
    told = command[command.index("agent") :]
    assert told[1:9] == [
        *("--name", "blue", "--folder", "/mnt/x", "--size", "8GiB", "--companion-of", "77")
    ]
