"""`kvext doctor` inside a container whose /dev/shm outlives it."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvext.cxl import create_region, region_path
from kvext.pool import Pool
from tests.containers import contained, memory_folder, memory_group, require_namespaces

MIB = 1 << 20
_PROGRAM = (sys.executable, "-c", "from kvext.cli import main; main()", "doctor", "--json")
_CRASH = """
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=8 << 20)
memory.buf[:] = bytes(8 << 20)
print(memory.name, flush=True)
input()
"""


def _doctor(shared_memory: Path, *arguments: str, group: Path | None = None) -> dict[str, Any]:
    ended = subprocess.run(
        contained([*_PROGRAM, *arguments], shared_memory=shared_memory, group=group),
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


def test_pool_whose_owner_has_no_number_in_the_container_comes_with_its_mend(
    tmp_path: Path,
) -> None:
    require_namespaces()
    path = region_path(tmp_path, "default")
    create_region(path, 1 * MIB, Pool.initialise)
    os.chown(path, 1000, 1000)
    mapped = ["unshare", "--user", "--map-root-user", *_PROGRAM, "--pool-folder", str(tmp_path)]
    ended = subprocess.run(mapped, check=False, capture_output=True, text=True)
    found = {entry["name"]: entry for entry in json.loads(ended.stdout)["findings"]}
    assert found["pool-access"]["status"] == "error"
    assert "the user mapping of the pool's maker" in found["pool-access"]["mend"]
    assert found["user-namespace"]["fact"] == "uid 0 here is uid 0 outside"


_FILTERED = """
import ctypes, struct, sys
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050001  # EPERM
GET_MEMPOLICY, SECCOMP_MODE_FILTER = 239, 2
steps = [(LOAD_NUMBER, 0, 0, 0), (IF_EQUAL, 0, 1, GET_MEMPOLICY), (RETURN, 0, 0, REFUSE)]
steps.append((RETURN, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, SECCOMP_MODE_FILTER, program, 0, 0) == 0, ctypes.get_errno()
from kvext.doctor.readers.namespaces import read_confinement
found = read_confinement()
print(found.seccomp_filtered, found.policy_fault)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64")
def test_filter_that_refuses_memory_policies_is_noticed() -> None:
    shown = subprocess.check_output([sys.executable, "-c", _FILTERED], text=True)
    assert shown == "True Operation not permitted\n"
