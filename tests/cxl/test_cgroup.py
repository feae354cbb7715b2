"""The memory limit above a process: read right, and refused before the kernel kills for it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvext.cxl.cgroup import Cgroup, read_cgroup_memory
from tests.containers import contained, memory_folder, memory_group, require_namespaces

MIB = 1 << 20
_MAKE_POOL = """
import json, sys
from pathlib import Path
from kvext.assembly import automatic_pool_bytes
from kvext.cxl import create_region, region_path
from kvext.errors import KvextError
from kvext.pool import Pool

folder, num_bytes = Path(sys.argv[1]), int(sys.argv[2])
automatic_bytes = automatic_pool_bytes(folder)
try:
    create_region(region_path(folder, "a"), num_bytes, Pool.initialise)
except KvextError as error:
    print(json.dumps({**error.as_dict(), "automatic_bytes": automatic_bytes}))
else:
    print(json.dumps({"error": "", "automatic_bytes": automatic_bytes}))
"""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


_V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
_V1_MOUNTS = "31 23 0:28 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def test_tightest_limit_of_version_2_is_found_above_the_own_group(tmp_path: Path) -> None:
    _write(tmp_path / "proc/self/mountinfo", _V2_MOUNT)
    _write(tmp_path / "proc/self/cgroup", "0::/pod/engine\n")
    pod = tmp_path / "sys/fs/cgroup/pod"
    _write(pod / "memory.max", "1000000\n")
    _write(pod / "memory.current", "900000\n")
    _write(
        pod / "memory.stat",
        "anon 100000\ninactive_file 300000\nactive_file 100000\nslab_reclaimable 100000\n",
    )
    _write(pod / "engine/memory.max", "max\n")
    _write(pod / "engine/memory.current", "300000\n")
    assert read_cgroup_memory(tmp_path) == Cgroup(2, 1_000_000, 400_000)


@pytest.mark.parametrize("root", ["/", "/docker/abc"])
def test_limit_of_version_1_is_found_with_and_without_a_mounted_root(
    tmp_path: Path, root: str
) -> None:
    _write(tmp_path / "proc/self/mountinfo", _V1_MOUNTS.format(root=root))
    _write(tmp_path / "proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/\n0::/\n")
    top = tmp_path / "sys/fs/cgroup/memory"
    group = top if root != "/" else top / "docker/abc"
    _write(group / "memory.limit_in_bytes", "4000000\n")
    _write(group / "memory.usage_in_bytes", "1000000\n")
    _write(group / "memory.stat", "inactive_file 1\ntotal_inactive_file 250000\n")
    assert read_cgroup_memory(tmp_path) == Cgroup(1, 4_000_000, 750_000)


def test_largest_number_of_version_1_is_no_limit(tmp_path: Path) -> None:
    _write(tmp_path / "proc/self/mountinfo", _V1_MOUNTS.format(root="/"))
    _write(tmp_path / "proc/self/cgroup", "4:memory:/\n")
    top = tmp_path / "sys/fs/cgroup/memory"
    _write(top / "memory.limit_in_bytes", "9223372036854771712\n")
    _write(top / "memory.usage_in_bytes", "5\n")
    assert read_cgroup_memory(tmp_path) == Cgroup(1, None, 5)


def test_host_without_cgroups_has_no_controller(tmp_path: Path) -> None:
    assert read_cgroup_memory(tmp_path) == Cgroup(0, None, 0)


@pytest.mark.parametrize(
    ("limit_bytes", "used_bytes", "room_bytes"), [(None, 5, None), (10, 4, 6), (10, 12, 0)]
)
def test_room_is_what_the_limit_leaves(
    limit_bytes: int | None, used_bytes: int, room_bytes: int | None
) -> None:
    assert Cgroup(2, limit_bytes, used_bytes).room_bytes == room_bytes


def test_folder_on_a_disk_is_not_limited(tmp_path: Path) -> None:
    require_namespaces()
    with memory_group(256 * MIB) as group:
        answer = _make_pool(tmp_path, 320 * MIB, group)
    assert answer["error"] == ""


def test_pool_larger_than_the_limit_is_refused_with_both_numbers_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    require_namespaces()
    with memory_folder(tmp_path / "shm", "1g") as folder, memory_group(256 * MIB) as group:
        answer = _make_pool(folder, 320 * MIB, group)
        assert answer["error"] == "PoolOverMemoryLimit"
        assert (answer["needed_bytes"], answer["limit_bytes"]) == (320 * MIB, 256 * MIB)
        assert 0 < answer["used_bytes"] < 128 * MIB
        assert "320.0 MiB but this process's memory limit is 256.0 MiB" in answer["message"]
        assert list(folder.iterdir()) == []


def test_pool_of_automatic_size_takes_half_of_what_the_limit_leaves(tmp_path: Path) -> None:
    require_namespaces()
    with memory_folder(tmp_path / "shm", "1g") as folder, memory_group(512 * MIB) as group:
        answer = _make_pool(folder, 128 * MIB, group)
        assert answer["error"] == ""
        assert 128 * MIB < answer["automatic_bytes"] < 256 * MIB
        (region,) = folder.iterdir()
        region.unlink()


def test_pool_that_another_makes_is_not_counted_against_who_attaches(tmp_path: Path) -> None:
    require_namespaces()
    with memory_folder(tmp_path / "shm", "1g") as folder, memory_group(256 * MIB) as group:
        assert _make_pool(folder, 320 * MIB, None)["error"] == ""
        assert _make_pool(folder, 320 * MIB, group)["error"] == "PoolExists"


def _make_pool(folder: Path, num_bytes: int, group: Path | None) -> dict[str, Any]:
    program = [sys.executable, "-c", _MAKE_POOL, str(folder), str(num_bytes)]
    ended = subprocess.run(
        contained(program, group=group), check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, f"killed by the kernel? {ended.returncode} {ended.stderr}"
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer
