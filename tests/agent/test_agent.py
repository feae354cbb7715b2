"""The loop: whatever fails in it, it goes on, and says so."""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kvext.agent import Agent, AgentSettings
from kvext.agent.observation import Seen
from kvext.agent.ranking import Ranking
from kvext.agent.records import Records, Refs
from kvext.config import Config
from kvext.cxl import create_region, region_path
from kvext.pool import Pool
from tests.agent import hanging_agent
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

_WAIT_S = 20.0


class Poison:
    """A ranking that never works."""

    def observe(self, records: Records) -> Sequence[Seen]:
        raise RuntimeError(f"poisoned by {len(records)} records")

    def choose(self, records: Records, num_records: int) -> Refs:
        raise AssertionError(num_records, len(records))


@dataclass(slots=True)
class Running:
    """An agent in a thread of the test."""

    stop: threading.Event = field(default_factory=threading.Event)
    urls: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def ask(self, path: str) -> tuple[int, str]:
        _until(lambda: bool(self.urls))
        connection = http.client.HTTPConnection(self.urls[0].partition("//")[2], timeout=_WAIT_S)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def note(self, event: str, facts: Any) -> None:
        if event == "serving":
            self.urls.append(facts["url"])


def _until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _WAIT_S
    while not what():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)


@contextmanager
def _running(
    folder: Path, make_ranking: Callable[[int], Ranking] | None = None
) -> Iterator[Running]:
    running = Running()
    settings = AgentSettings(config=Config(pool_folder=str(folder)), port=0, interval_s=0.05)
    agent = Agent(settings, running.note, make_ranking=make_ranking)
    thread = threading.Thread(target=lambda: running.ended.append(agent.run(running.stop)))
    thread.start()
    try:
        yield running
    finally:
        running.stop.set()
        thread.join(_WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Pool]:
    path = region_path(tmp_path, "default")
    create_region(path, 1 << 20, Pool.initialise)
    with Pool.attach(path, extent_bytes=RECORD_BYTES, label="engine") as attached:
        yield attached


def _fill(pool: Pool, first: int = 0) -> None:
    keys = b"".join(key_of(first + number) for number in range(pool.num_extents))
    pool.store(keys, SHAPE, NAMESPACE, EngineMemory().pages, [0] * pool.num_extents)


def test_poisoned_policy_is_told_on_the_port_while_room_is_made_all_the_same(
    tmp_path: Path, engine: Pool
) -> None:
    with _running(tmp_path, lambda _: Poison()) as agent:
        for first in (0, 1000):
            _fill(engine, first)
            _until(lambda: engine.num_free > 0)
        status, text = agent.ask("/health")
        assert status == 503
        (reason,) = json.loads(text)["reasons"]
        assert reason["step"] == "policy"
        assert reason["error"].startswith("RuntimeError: poisoned by")
        metrics = agent.ask("/metrics")[1]
        assert 'kvext_agent_failures_total{step="policy"} 1' in metrics
        assert "kvext_agent_healthy 0" in metrics
    assert agent.ended == ["told to stop"]


def test_agent_that_waits_for_a_pool_finds_it_when_it_comes(tmp_path: Path) -> None:
    path = region_path(tmp_path, "default")
    path.write_bytes(b"no pool")
    with _running(tmp_path) as agent:
        assert agent.ask("/health")[0] == 503
        fresh = tmp_path / "fresh"
        create_region(fresh, 1 << 20, Pool.initialise)
        fresh.rename(path)
        _until(lambda: agent.ask("/health")[0] == 200)
        with Pool.attach(path, extent_bytes=RECORD_BYTES, label="engine") as engine:
            _until(lambda: engine.stat().agent_label != "")
            _fill(engine)
            _until(lambda: engine.num_free > 0)


def test_healthy_agent_says_what_it_did(tmp_path: Path, engine: Pool) -> None:
    with _running(tmp_path) as agent:
        _fill(engine)
        _until(lambda: engine.num_free > 0)

        def counters() -> Any:
            return json.loads(agent.ask("/stat")[1])["agent"]["counters"]

        _until(lambda: counters()["reclaimed_records"] == engine.stat().counters["reclaims"])
        assert counters()["role_claims"] == 1
        assert counters()["reclaimed_without_policy"] == 0
    assert engine.stat().agent_label == ""


def test_agent_that_hangs_ends_itself_and_another_takes_over(tmp_path: Path, engine: Pool) -> None:
    with subprocess.Popen(
        [sys.executable, hanging_agent.__file__, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as hanging:
        _until(lambda: engine.stat().agent_label != "")
        with _running(tmp_path):
            assert b"Timeout" in hanging.communicate(timeout=_WAIT_S)[1]
            assert hanging.returncode == 1
            _fill(engine)
            _until(lambda: engine.num_free > 0)
