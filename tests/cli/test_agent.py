"""`kvext agent` as a process: its role, its end, its death."""

import http.client
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from kvext.cli import kvext
from kvext.cxl import create_region, region_path
from kvext.pool import Pool
from tests.cli.agent_process import KVEXT, WAIT_S, AgentProcess
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

_LEASE_S = 1.0


@pytest.fixture
def region(tmp_path: Path) -> Path:
    path = region_path(tmp_path, "default")
    create_region(path, 2 << 20, lambda claim: Pool.initialise(claim, _LEASE_S))
    return path


@pytest.fixture
def engine(region: Path) -> Iterator[Pool]:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, label="engine") as attached:
        yield attached


def _until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


def _store(pool: Pool, first: int, count: int) -> None:
    keys = b"".join(key_of(number) for number in range(first, first + count))
    pool.store(keys, SHAPE, NAMESPACE, EngineMemory().pages, [0] * count)


def _get(url: str, path: str) -> Any:
    parts = urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=WAIT_S)
    connection.request("GET", path)
    document = json.loads(connection.getresponse().read())
    connection.close()
    return document


@contextmanager
def _holder_and_standby(folder: Path) -> Iterator[tuple[AgentProcess, AgentProcess]]:
    with AgentProcess(folder) as agent:
        agent.await_event("role", role="holder")
        with AgentProcess(folder) as other:
            other.await_event("role", role="standby")
            yield agent, other


def test_missing_pool_is_made_before_anything_else(tmp_path: Path) -> None:
    with AgentProcess(tmp_path, "--size", "4MiB") as agent:
        created = agent.await_event("created")
        assert created["region_bytes"] == 4 << 20
        assert Path(created["path"]).stat().st_size == 4 << 20
        assert _get(agent.await_event("serving")["url"], "/health")["role"] == "idle"


def test_agent_keeps_room_in_the_pool_of_an_engine(tmp_path: Path, engine: Pool) -> None:
    with AgentProcess(tmp_path) as agent:
        agent.await_event("role", role="holder")
        _store(engine, 0, engine.num_extents)
        _until(lambda: engine.num_free > 0)
        assert engine.stat().counters["reclaims"] > 0
        assert engine.stat().agent_label.startswith("agent 127.0.0.1:")


def test_sigterm_ends_it_within_a_second_and_frees_the_role(tmp_path: Path, engine: Pool) -> None:
    with _holder_and_standby(tmp_path) as (agent, other):
        begun_s = time.monotonic()
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(WAIT_S) == 0
        assert time.monotonic() - begun_s < 1.5
        other.await_event("role", role="holder")
    _until(lambda: len(engine.stat().processes) == 1)


def test_standby_takes_over_from_an_agent_that_was_killed(tmp_path: Path, engine: Pool) -> None:
    with _holder_and_standby(tmp_path) as (agent, other):
        agent.process.kill()
        other.await_event("role", role="holder")
        _store(engine, 0, engine.num_extents)
        _until(lambda: engine.num_free > 0)


def test_standby_takes_over_from_an_agent_that_hangs_which_then_stands_by(
    tmp_path: Path, engine: Pool
) -> None:
    with _holder_and_standby(tmp_path) as (agent, other):
        agent.stop()
        other.await_event("role", role="holder")
        agent.go_on()
        agent.await_event("role", role="standby")
    assert engine.stat().counters["fenced_processes"] >= 1


def test_agent_that_dies_at_work_leaves_a_clean_pool(tmp_path: Path, engine: Pool) -> None:
    for _ in range(3):
        with AgentProcess(tmp_path) as agent:
            agent.await_event("role", role="holder")
            for round_ in range(5):
                _store(engine, round_ * 1000, engine.num_extents)
            agent.process.kill()
    engine.reap()
    assert engine.fsck().is_clean
    _store(engine, 9000, 3)
    lookups = b"".join(key_of(number) for number in range(9000, 9003))
    assert engine.lookup(lookups, SHAPE) == b"\1\1\1"


def test_idle_agent_leaves_the_pool_to_whoever_removes_it_and_ends(
    tmp_path: Path, region: Path
) -> None:
    with AgentProcess(tmp_path) as agent:
        with Pool.attach(region, extent_bytes=RECORD_BYTES, label="engine"):
            agent.await_event("role", role="holder")
        removed = CliRunner().invoke(kvext, ["pool", "rm", "--folder", str(tmp_path)])
        assert removed.exit_code == 0
        assert agent.await_event("ended")["why"] == "the pool was removed"
        assert agent.process.wait(WAIT_S) == 0


def test_engine_of_another_shape_may_have_the_empty_pool_that_an_agent_watches(
    tmp_path: Path, region: Path
) -> None:
    with AgentProcess(tmp_path) as agent:
        with Pool.attach(region, extent_bytes=RECORD_BYTES, label="engine"):
            agent.await_event("role", role="holder")
        agent.await_event("role", role="idle")
        with Pool.attach(region, extent_bytes=4 * RECORD_BYTES, label="engine") as other:
            assert other.extent_bytes >= 4 * RECORD_BYTES
            agent.await_event("role", role="holder")


def test_agent_follows_to_the_pool_that_took_the_place_of_the_first(
    tmp_path: Path, region: Path
) -> None:
    with AgentProcess(tmp_path) as agent:
        agent.await_event("serving")
        fresh = tmp_path / "fresh"
        create_region(fresh, 2 << 20, Pool.initialise)
        fresh.rename(region)
        with Pool.attach(region, extent_bytes=RECORD_BYTES, label="engine") as attached:
            agent.await_event("role", role="holder")
            _store(attached, 0, attached.num_extents)
            _until(lambda: attached.num_free > 0)


def test_status_finds_the_agent_through_the_pool(tmp_path: Path, engine: Pool) -> None:
    call = ["agent", "status", "--folder", str(tmp_path)]
    with AgentProcess(tmp_path) as agent:
        agent.await_event("role", role="holder")
        shown = CliRunner().invoke(kvext, call)
        assert shown.exit_code == 0
        assert "healthy, holder" in shown.stdout
        document = json.loads(CliRunner().invoke(kvext, [*call, "--json"]).stdout)
        assert document["agent"]["pid"] == agent.process.pid
        assert document["pool"]["num_extents"] == engine.num_extents


def test_status_without_an_agent_says_how_to_start_one(tmp_path: Path, region: Path) -> None:
    assert region.exists()
    shown = CliRunner().invoke(kvext, ["agent", "status", "--folder", str(tmp_path), "--port", "1"])
    assert shown.exit_code == 1
    assert "start one with `kvext agent`" in shown.stderr


def test_taken_port_makes_it_unhealthy_and_nothing_else(tmp_path: Path, engine: Pool) -> None:
    with AgentProcess(tmp_path) as first:
        port = urlsplit(first.await_event("serving")["url"]).port
        with AgentProcess(tmp_path, "--port", str(port)) as second:
            second.await_event("role", role="standby")
            first.process.kill()
            second.await_event("role", role="holder")
            _store(engine, 0, engine.num_extents)
            _until(lambda: engine.num_free > 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "lru3"), "there is no eviction policy 'lru3'"),
        (("--low-watermark", "0.9"), "--low-watermark"),
        (("--high-watermark", "nan"), "--high-watermark"),
        (("--interval", "0"), "--interval"),
        (("--size", "plenty"), "pool_size"),
        (("--name", "../x"), "pool_name"),
    ],
)
def test_impossible_option_is_refused_in_one_line(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(kvext, ["agent", "--folder", str(tmp_path), *options])
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_teaches_by_examples() -> None:
    assert "\n    kvext agent status" in CliRunner().invoke(kvext, ["agent", "--help"]).stdout
    shown = CliRunner().invoke(kvext, ["agent", "status", "--help"]).stdout
    assert "\n    kvext agent status" in shown


def test_companion_whose_engine_is_gone_ends_without_making_a_pool(tmp_path: Path) -> None:
    engine = subprocess.Popen(["true"])
    engine.wait(WAIT_S)
    command = [*KVEXT, "agent", "--folder", str(tmp_path), "--port", "0"]
    run = subprocess.run(
        [*command, "--companion-of", str(engine.pid)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert "neither the engine nor the pool" in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_creation_that_is_broken_off_gives_its_memory_back(tmp_path: Path) -> None:
    with AgentProcess(tmp_path, "--size", "1GiB") as agent:
        _until(lambda: any(tmp_path.iterdir()))
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(WAIT_S) in (0, 128 + signal.SIGTERM)
        if agent.process.returncode:
            assert list(tmp_path.iterdir()) == []
