"""`kvext doctor` inside a container whose /dev/shm outlives it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.containers import contained, memory_folder, memory_group, require_namespaces

MIB = 1 << 20
_CRASH = """
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=8 << 20)
memory.buf[:] = bytes(8 << 20)
print(memory.name, flush=True)
input()
"""


def _doctor(shared_memory: Path, *arguments: str, group: Path | None = None) -> dict[str, Any]:
    program = [sys.executable, "-c", "from kvext.cli import main; main()", "doctor", "--json"]
    ended = subprocess.run(
        contained([*program, *arguments], shared_memory=shared_memory, group=group),
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.stderr == ""
    return {found["name"]: found for found in json.loads(ended.stdout)["findings"]}


def _crash(shared_memory: Path) -> str:
    """Have a program killed in a container; returns the name of the file it left."""
    program = contained([sys.executable, "-c", _CRASH], shared_memory=shared_memory)
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        left = process.stdout.readline().strip()
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        # The container's first process: with it go all others, Python's resource tracker, too.
        subprocess.run(["kill", "-KILL", listed.strip()], check=True)
        process.wait(timeout=30)
    return left


def test_what_a_killed_program_left_in_a_containers_memory_is_named_in_the_next(
    tmp_path: Path,
) -> None:
    require_namespaces()
    with memory_folder(tmp_path / "shm", "96m") as shared_memory:
        left = _crash(shared_memory)
        found = _doctor(shared_memory)
        assert found["engine-leftovers"]["status"] == "warning"
        assert found["engine-leftovers"]["mend"].startswith(f"rm /dev/shm/{left}")
        assert found["folder-size"]["fact"] == "96 MiB in all"
        assert found["file-system"]["status"] == "ok"
        (shared_memory / left).unlink()
        assert _doctor(shared_memory)["engine-leftovers"]["status"] == "ok"


def test_limit_of_a_container_is_judged_by_the_size_that_the_pool_shall_have(
    tmp_path: Path,
) -> None:
    require_namespaces()
    with memory_folder(tmp_path / "shm", "1g") as shared_memory, memory_group(256 * MIB) as group:
        found = _doctor(shared_memory, "--pool-size", "320MiB", group=group)
        assert found["cgroup-memory"]["status"] == "error"
        assert found["cgroup-memory"]["fact"].startswith("limit 256 MiB")
        found = _doctor(shared_memory, "--pool-size", "64MiB", group=group)
        assert found["cgroup-memory"]["status"] == "note"
