"""Two engines, each in a container of its own, on one folder of memory for one region."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kvext.config import parse_bytes
from kvext.cxl import region_path
from kvext.pool import Pool, PoolStat
from kvext.testing.chat import Answer
from kvext.testing.long_prompts import log_question
from kvext.testing.serving import ServedEngine
from tests.containers import contained, memory_folder, memory_group, require_namespaces

# The first test waits for all engine starts.
pytestmark = [pytest.mark.engine_heavy, pytest.mark.timeout(420)]

_POOL_SIZE = "256MiB"
_MEMORY_SIZE = "512m"
"""Room for the pool and the 240 MiB that vLLM's workers want free, not for a second pool."""
_LIMIT_BYTES = 8 << 30
"""Room for an engine of the tiny model, not for the pool that it is told to make."""
_GONE_DEADLINE_S = 10.0
_BLOCK_TOKENS = 32
_ENGINE_OPTIONS = (
    "--dtype=float32",
    f"--block-size={_BLOCK_TOKENS}",
    "--max-model-len=4096",
    "--kv-cache-memory-bytes=64M",
    "--enforce-eager",
)
_FIRST_LOG = log_question("Heron Rock", days=8)
_SECOND_LOG = log_question("Sable Head", days=8)


@dataclass(frozen=True, slots=True)
class Story:
    """Two engines in two containers; one is killed, and a third container takes its place.

    Beside the third, one is to make a pool that its memory limit cannot hold.
    """

    cold: Answer
    beside: Answer
    seen_by_first: Mapping[str, Any]
    seen_by_second: Mapping[str, Any]
    before_kill: PoolStat
    after_kill: PoolStat
    survivor: Answer
    restarted: Answer
    after_restart: PoolStat
    files: tuple[str, ...]
    limited: Answer
    limited_log: str
    limited_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the engines of the story live."""

    model: Path
    folder: Path
    memory: Path
    wide: Path
    """Memory that promises more than the limited engine may have."""
    group: Path

    def engine(self, name: str, core: str) -> ServedEngine:
        """One on the pool that all share."""
        return self._served(
            name, core, contained(self._command(_POOL_SIZE), shared_memory=self.memory)
        )

    def limited_engine(self) -> ServedEngine:
        """One that is to make a pool which its limit cannot hold."""
        command = contained(self._command("16GiB"), shared_memory=self.wide, group=self.group)
        return self._served("limited", "1", command)

    def _command(self, pool_size: str) -> list[str]:
        return [
            "kvext",
            "serve",
            str(self.model),
            "--pool",
            pool_size,
            "--no-agent",
            *_ENGINE_OPTIONS,
        ]

    def _served(self, name: str, core: str, command: Sequence[str]) -> ServedEngine:
        # A container's first process does not hear the signals of its parent.
        log = self.folder / f"{name}.log"
        return ServedEngine(command, log=log, cores=core, stop_deadline_s=0.1)


@pytest.fixture(scope="module")
def story(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    require_namespaces()
    folder = tmp_path_factory.mktemp("containers")
    with (
        memory_folder(folder / "shm", _MEMORY_SIZE) as memory,
        memory_folder(folder / "wide", "64g") as wide,
        memory_group(_LIMIT_BYTES) as group,
        ExitStack() as stack,
    ):
        return _live(Place(model, folder, memory, wide, group), stack)


def _live(place: Place, stack: ExitStack) -> Story:
    path = region_path(place.memory, "default")
    first, second = place.engine("first", "0"), place.engine("second", "1")
    _start(stack, first, second)
    cold, beside = _ask(first, _FIRST_LOG), _ask(second, _FIRST_LOG)
    seen_by_first, seen_by_second = _stat_inside(first), _stat_inside(second)
    before_kill = _stat(path)
    first.kill()
    after_kill = _stat_with(path, num_processes=2)
    survivor = _ask(second, _SECOND_LOG)
    third, limited = place.engine("third", "0"), place.limited_engine()
    _start(stack, third, limited)
    return Story(
        cold=cold,
        beside=beside,
        seen_by_first=seen_by_first,
        seen_by_second=seen_by_second,
        before_kill=before_kill,
        after_kill=after_kill,
        survivor=survivor,
        restarted=_ask(third, _SECOND_LOG),
        after_restart=_stat(path),
        files=_pools_in(place.memory),
        limited=_ask(limited, _FIRST_LOG),
        limited_log=(place.folder / "limited.log").read_text(encoding="utf-8"),
        limited_files=_pools_in(place.wide),
    )


def _start(stack: ExitStack, *engines: ServedEngine) -> None:
    for engine in engines:
        stack.callback(engine.kill)
        engine.start()
    for engine in engines:
        engine.wait_until_ready()


def _pools_in(folder: Path) -> tuple[str, ...]:
    return tuple(file.name for file in folder.iterdir() if "kvext" in file.name)


def _ask(engine: ServedEngine, question: Any) -> Answer:
    return engine.ask(question, 12, ignore_eos=True)


def _stat(path: Path) -> PoolStat:
    with Pool.attach(path, extent_bytes=1) as pool:
        pool.reap()
        stat = pool.stat()
    processes = tuple(process for process in stat.processes if process.pid != os.getpid())
    return replace(stat, processes=processes)


def _stat_with(path: Path, num_processes: int) -> PoolStat:
    """The first figures with so many processes: the kernel drops a killed one's locks in its time.

    At the deadline the figures as they are.
    """
    end_s = time.monotonic() + _GONE_DEADLINE_S
    while len((stat := _stat(path)).processes) != num_processes and time.monotonic() < end_s:
        time.sleep(0.01)
    return stat


def _stat_inside(engine: ServedEngine) -> Mapping[str, Any]:
    """What `kvext pool stat` says in an engine's own container."""
    core = next(pid for pid in engine.pids if _is_inside(pid))
    enter = ["nsenter", "--target", str(core), "--pid", "--mount", "--"]
    program = [sys.executable, "-c", "from kvext.cli import main; main()", "pool", "stat", "--json"]
    document: Mapping[str, Any] = json.loads(subprocess.check_output([*enter, *program]))
    return document


def _is_inside(pid: int) -> bool:
    own, here = Path(f"/proc/{pid}/ns/pid"), Path("/proc/self/ns/pid")
    return own.readlink() != here.readlink()


def _whole_blocks(answer: Answer) -> int:
    return (answer.prompt_tokens - 1) // _BLOCK_TOKENS * _BLOCK_TOKENS


def test_second_container_hits_what_the_first_has_stored(story: Story) -> None:
    assert story.cold.kvext["pool_tokens"] == 0
    assert story.beside.kvext["pool_tokens"] == _whole_blocks(story.beside) > 0
    assert story.beside.token_ids == story.cold.token_ids


def test_each_container_sees_the_engine_of_the_other_alive(story: Story) -> None:
    for seen in (story.seen_by_first, story.seen_by_second):
        spaces = [process["pid_namespace"] for process in seen["processes"]]
        assert len(set(spaces)) == 2
        assert sorted(map(spaces.count, set(spaces))) == [2, 2]


def test_kill_of_one_container_gives_its_places_back_and_harms_no_block(story: Story) -> None:
    assert len(story.before_kill.processes) == 4
    (space,) = {process.pid_namespace for process in story.after_kill.processes}
    assert space in {process["pid_namespace"] for process in story.seen_by_second["processes"]}
    assert (story.after_kill.num_pinned, story.after_kill.num_reserved) == (0, 0)
    assert story.after_kill.num_committed == story.before_kill.num_committed
    assert story.after_kill.num_free == story.before_kill.num_free


def test_survivor_goes_on_storing_and_a_new_container_is_warm(story: Story) -> None:
    assert story.survivor.kvext["pool_tokens"] == 0
    assert story.survivor.kvext["stored_blocks"] > 0
    assert story.restarted.kvext["pool_tokens"] == _whole_blocks(story.restarted)
    assert story.restarted.token_ids == story.survivor.token_ids


def test_restart_attaches_to_the_same_pool_in_memory_for_one(story: Story) -> None:
    assert story.after_restart.uuid == story.before_kill.uuid
    assert story.after_restart.region_bytes == parse_bytes(_POOL_SIZE)
    assert len(story.files) == 1
    assert story.after_restart.num_committed > story.before_kill.num_committed


def test_engine_whose_limit_cannot_hold_the_pool_serves_uncached_and_says_why(
    story: Story,
) -> None:
    assert story.limited.token_ids == story.cold.token_ids
    assert "needs 16.0 GiB but this process's memory limit is 8.0 GiB" in story.limited_log
    assert "pool_tokens" not in story.limited.kvext
    assert story.limited_files == ()
