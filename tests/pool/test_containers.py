"""Processes of different containers in one pool: equal pids, own mounts, one folder of memory."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvext.cxl import create_region, region_path
from kvext.pool import Pool
from tests.containers import contained, memory_folder, memory_group, require_namespaces

_MEMBER = """
import json, sys
from pathlib import Path
from kvext.cxl import create_region, region_path
from kvext.errors import PoolExists
from kvext.pool import Pool
from kvext.protocol.layout import RecordShape

label, keys = sys.argv[1], [bytes([ord(sys.argv[1][0]), n]) * 16 for n in range(2)]
path, shape, namespace = region_path(Path("/dev/shm"), "default"), RecordShape(32), bytes(32)
try:
    create_region(path, 48 << 20, Pool.initialise)
except PoolExists:
    pass
pool = Pool.attach(path, extent_bytes=4096, label=label)
made = pool.reserve(keys[0], shape, 4096, namespace)
stored = not isinstance(made, int) and hasattr(made, "fill")
if stored:
    made.fill(label.encode().ljust(4096))
    made.commit()
lease = pool.match(keys[0], shape)
half_written = pool.reserve(keys[1], shape, 4096, namespace)
for key in sys.stdin:
    if key == "eat\\n":
        eaten = bytes(1) * (1 << 30)
    found = pool.lookup(bytes([ord(key[0]), 0]) * 16, shape) == b"\\1"
    processes = {process.label: process.pid for process in pool.stat().processes}
    answer = {"found": found, "processes": processes, "uuid": pool.uuid, "stored": stored}
    print(json.dumps(answer), flush=True)
"""

_WRITER = """
import sys
from pathlib import Path
from kvext.cxl import region_path
from kvext.pool import Pool
from kvext.protocol.layout import RecordShape

with Pool.attach(region_path(Path("/dev/shm"), "default"), extent_bytes=1 << 20) as pool:
    for n in range(int(sys.argv[1])):
        made = pool.reserve(n.to_bytes(32, "little"), RecordShape(32), 1 << 20, bytes(32))
        made.fill(bytes(1 << 20))
        made.commit()
    print(pool.stat().num_committed)
"""


class Member:
    """A process that is the first of its container, with one pin and one half-written record."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, label: str) -> dict[str, Any]:
        """Whether it finds what the member of this label has stored, and whom it sees alive."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(label + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def kill(self) -> None:
        """SIGKILL; the kernel ends the container's first process with its parent's."""
        (child,) = children(self.process.pid)
        subprocess.run(["kill", "-KILL", str(child)], check=True)
        self.process.wait(timeout=30)


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(number) for number in listed.split()]


@contextmanager
def member(shared_memory: Path, label: str, group: Path | None = None) -> Iterator[Member]:
    command = [sys.executable, "-c", _MEMBER, label]
    program = contained(command, shared_memory=shared_memory, group=group)
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Member(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture
def shared_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder of memory that has room for one region, and not for two."""
    require_namespaces()
    with memory_folder(tmp_path / "shm", "64m") as folder:
        yield folder


def test_containers_see_one_another_alive_and_find_one_anothers_blocks(
    shared_memory: Path,
) -> None:
    with member(shared_memory, "a") as first, member(shared_memory, "b") as second:
        assert first.ask("a")["found"]
        assert second.ask("a")["found"]
        for one in (first, second):
            assert one.ask("b") | {"uuid": ""} == {
                "found": True,
                # Equal pids: neither takes the other for itself or for dead.
                "processes": {"a": 1, "b": 1},
                "uuid": "",
                "stored": True,
            }
        assert first.ask("a")["uuid"] == second.ask("a")["uuid"]


def test_pins_and_extents_of_a_killed_container_return_and_its_neighbour_goes_on(
    shared_memory: Path,
) -> None:
    with member(shared_memory, "a") as first, member(shared_memory, "b") as second:
        first.ask("a")
        assert second.ask("a")["found"]
        with Pool.attach(region_path(shared_memory, "default"), extent_bytes=1) as pool:
            before = pool.stat()
            assert (before.num_pinned, before.num_reserved, before.num_committed) == (2, 2, 2)
            first.kill()
            pool.reap()
            after = pool.stat()
            assert (after.num_pinned, after.num_reserved, after.num_committed) == (1, 1, 2)
            assert after.num_free == before.num_free + 1
        answer = second.ask("a")
        assert answer["found"]
        assert answer["processes"] == {"b": 1}


def test_container_that_the_kernel_kills_for_its_memory_leaves_the_pool_whole(
    shared_memory: Path,
) -> None:
    with member(shared_memory, "a") as first, memory_group(256 << 20) as group:
        uuid = first.ask("a")["uuid"]
        with member(shared_memory, "b", group) as second:
            assert second.ask("a")["found"]
            assert second.process.stdin is not None
            second.process.stdin.write("eat\n")
            second.process.stdin.flush()
            assert second.process.wait(timeout=60) != 0
        answer = first.ask("b")
        assert answer["found"], "what the dead had stored is everybody's"
        assert (answer["processes"], answer["uuid"]) == ({"a": 1}, uuid)
        with Pool.attach(region_path(shared_memory, "default"), extent_bytes=1) as pool:
            pool.reap()
            figures = pool.stat()
            assert (figures.num_pinned, figures.num_reserved) == (1, 1)


def test_engine_fills_a_pool_that_another_made_beyond_its_own_memory_limit(tmp_path: Path) -> None:
    require_namespaces()
    with memory_folder(tmp_path / "shm", "512m") as folder, memory_group(160 << 20) as group:
        create_region(region_path(folder, "default"), 320 << 20, Pool.initialise)
        command = [sys.executable, "-c", _WRITER, "240"]
        ended = subprocess.run(
            contained(command, shared_memory=folder, group=group),
            check=False,
            capture_output=True,
            text=True,
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "240\n", "")


def test_restarts_in_memory_for_one_region_attach_to_the_same_pool_again(
    shared_memory: Path,
) -> None:
    seen = []
    for _ in range(3):
        with member(shared_memory, "a") as one:
            seen.append(one.ask("a"))
            one.kill()
        (region,) = shared_memory.iterdir()
        assert region.stat().st_blocks * 512 >= 48 << 20
    assert len({answer["uuid"] for answer in seen}) == 1
    assert [answer["stored"] for answer in seen] == [True, False, False]
    assert all(answer["found"] for answer in seen)


def test_region_left_half_made_by_a_killed_container_is_taken_over(shared_memory: Path) -> None:
    path = region_path(shared_memory, "default")
    path.with_name(path.name + ".new").write_bytes(bytes(40 << 20))
    create_region(path, 48 << 20, Pool.initialise)
    assert [file.name for file in shared_memory.iterdir()] == [path.name]
