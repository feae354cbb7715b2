"""Readers against the running host, and against folders that look like another one."""

import fcntl
import multiprocessing
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import shared_memory
from pathlib import Path

from kvext.cxl import create_region, region_path
from kvext.doctor.readers.files import read_shared_files
from kvext.doctor.readers.folder import read_folder
from kvext.doctor.readers.memory import read_cpu_quota, read_memory
from kvext.doctor.readers.mounts import read_mount
from kvext.doctor.readers.namespaces import read_attached, read_confinement
from kvext.doctor.readers.pools import read_pools
from kvext.doctor.readers.processes import pid_namespace, read_engines
from kvext.doctor.readers.software import read_software
from kvext.doctor.snapshot import DaxDevice, Holder, HugePages, LockTrial, NumaNode
from kvext.pool import Pool
from tests.containers import contained, require_namespaces

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the host's own
_FIRST_CORE = min(os.sched_getaffinity(0))


@contextmanager
def running(title: str, core: int) -> Iterator[int]:
    """A process of this title that echoes what it is told, on one core."""
    pipe = subprocess.PIPE
    with subprocess.Popen([title], executable="/bin/cat", stdin=pipe, stdout=pipe) as process:
        try:
            os.sched_setaffinity(process.pid, {core})
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"there?\n")
            process.stdin.flush()
            # Right after its start a process has no title yet.
            assert process.stdout.readline() == b"there?\n"
            yield process.pid
        finally:
            process.kill()


def test_two_engines_on_one_core_are_both_seen_there() -> None:
    with (
        running("VLLM::Worker", _FIRST_CORE) as first,
        running("VLLM::EngineCore_DP1", _FIRST_CORE) as second,
    ):
        seen = {engine.pid: engine for engine in read_engines(())}
        assert {first, second} <= seen.keys()
        assert seen[first].cores == seen[second].cores == {_FIRST_CORE}
        assert not seen[first].on_gpu
        assert seen[first].title.startswith("VLLM::Worker")
    assert not {first, second} & {engine.pid for engine in read_engines(())}


def test_process_of_another_name_is_an_engine_when_it_is_attached() -> None:
    with running("something else", _FIRST_CORE) as pid:
        assert pid not in {engine.pid for engine in read_engines(())}
        assert pid in {engine.pid for engine in read_engines({pid})}


def test_of_parent_and_child_only_the_child_computes() -> None:
    with running("VLLM::Worker", _FIRST_CORE) as child:
        seen = {engine.pid for engine in read_engines({os.getpid()})}
        assert child in seen
        assert os.getpid() not in seen


def test_shared_memory_that_is_in_use_has_a_living_holder() -> None:
    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    try:
        assert memory.buf is not None
        memory.buf[:] = bytes(1 << 20)
        found = {file.path.name: file for file in read_shared_files([_SHARED_MEMORY])}
        assert found[memory.name].holder is Holder.LIVING
        assert found[memory.name].held_bytes == 1 << 20
        assert found[memory.name].in_memory
    finally:
        memory.close()
        memory.unlink()


def test_semaphore_that_is_mapped_under_a_former_name_has_a_living_holder() -> None:
    # glibc maps the file first and gives it its name then.
    semaphore = multiprocessing.get_context("spawn").Semaphore()
    path = _SHARED_MEMORY / f"sem.{semaphore._semlock.name.removeprefix('/')}"  # type: ignore[attr-defined]  # noqa: SLF001
    found = {file.path: file.holder for file in read_shared_files([_SHARED_MEMORY])}
    assert found[path] is Holder.LIVING


def test_leftover_in_a_folder_has_no_holder(tmp_path: Path) -> None:
    (tmp_path / "psm_left").write_bytes(bytes(8192))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "psm_left")
    (file,) = read_shared_files([tmp_path])
    assert file.path == tmp_path / "psm_left"
    assert file.holder is Holder.NOBODY
    assert file.held_bytes == 8192
    assert file.owner
    assert file.age_s >= 0


def test_folder_that_is_missing_has_no_files(tmp_path: Path) -> None:
    assert read_shared_files([tmp_path / "missing"]) == ()


def test_unfinished_pool_is_held_while_its_creator_has_the_lock(tmp_path: Path) -> None:
    claim = tmp_path / "kvext-a.pool.new"
    fd = os.open(claim, os.O_RDWR | os.O_CREAT)
    whole_file = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole_file)
        (file,) = read_shared_files([tmp_path])
        assert file.holder is Holder.LIVING
    finally:
        os.close(fd)
    (file,) = read_shared_files([tmp_path])
    assert file.holder is Holder.NOBODY


def test_locks_are_tried_and_leave_nothing_behind(tmp_path: Path) -> None:
    folder = read_folder(tmp_path)
    assert folder.exists
    assert folder.writable
    assert folder.locks is LockTrial.WORKS
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_is_described_by_what_it_would_lie_on(tmp_path: Path) -> None:
    folder = read_folder(tmp_path / "missing" / "deeper")
    assert not folder.exists
    assert folder.locks is LockTrial.NOT_TRIED
    assert folder.mount == read_folder(tmp_path).mount


def test_shared_memory_of_the_host_is_recognised() -> None:
    mount = read_mount(_SHARED_MEMORY)
    assert mount.point == str(_SHARED_MEMORY)
    assert mount.kind == "tmpfs"
    assert "rw" in mount.options
    assert 0 < mount.free_bytes <= mount.size_bytes


def test_pools_are_seen_with_their_processes_and_faults(tmp_path: Path) -> None:
    create_region(region_path(tmp_path, "mine"), 1 << 20, Pool.initialise)
    (region_path(tmp_path, "torn")).write_bytes(b"no pool")
    with Pool.attach(region_path(tmp_path, "mine"), extent_bytes=4096, label="test") as pool:
        pool.set_bypass(True)
        pools = read_pools(tmp_path, "mine")
    assert pools.wanted is not None
    assert [pid for pid, _ in pools.wanted.pids] == [os.getpid()]
    assert pools.wanted.region_bytes == 1 << 20
    assert pools.wanted.bypassed
    assert pools.wanted.access is not None
    assert (pools.wanted.access.user, pools.wanted.access.mode) == (os.geteuid(), 0o600)
    assert pools.wanted.access.usable
    (torn,) = [pool for pool in pools.found if pool.name == "torn"]
    assert "; " in torn.fault
    assert pools.automatic_bytes >= 64 << 20


def test_pool_of_another_format_is_told_from_a_damaged_one_and_who_is_in_it(tmp_path: Path) -> None:
    older = tmp_path / "kvext-mine.v1.pool"
    create_region(older, 1 << 20, Pool.initialise)
    (region_path(tmp_path, "torn")).write_bytes(b"no pool")
    with Pool.attach(older, extent_bytes=4096):
        with older.open("r+b") as file:
            file.seek(8)  # the version, behind the magic
            file.write(struct.pack("<I", 1))
        found = {pool.path: pool for pool in read_pools(tmp_path, "mine").found}
    assert found[older].of_other_format
    assert found[older].locked
    torn = found[region_path(tmp_path, "torn")]
    assert (torn.of_other_format, torn.locked) == (False, False)
    assert not read_pools(tmp_path, "mine").found[0].locked


def test_memory_of_this_host_is_read() -> None:
    memory = read_memory()
    assert memory.available_bytes > 1 << 20
    assert memory.memlock_bytes is None or memory.memlock_bytes >= 0


def test_memory_of_every_kind_is_read(tmp_path: Path) -> None:
    nodes, huge = tmp_path / "sys/devices/system/node", tmp_path / "sys/kernel/mm/hugepages"
    _write(nodes / "node0/cpulist", "0-7\n")
    _write(nodes / "node0/meminfo", "Node 0 MemTotal:       2048 kB\n")
    _write(nodes / "node10/cpulist", "\n")
    _write(nodes / "node10/meminfo", "Node 10 MemTotal:       4096 kB\n")
    _write(huge / "hugepages-2048kB/nr_hugepages", "9\n")
    _write(huge / "hugepages-2048kB/free_hugepages", "3\n")
    _write(tmp_path / "sys/bus/dax/devices/dax1.0/size", "4096\n")
    _write(tmp_path / "sys/bus/dax/drivers/device_dax/bind", "")
    driver = tmp_path / "sys/bus/dax/devices/dax1.0/driver"
    driver.symlink_to(tmp_path / "sys/bus/dax/drivers/device_dax")
    memory = read_memory(tmp_path)
    assert memory.nodes == (
        NumaNode(0, has_cores=True, memory_bytes=2 << 20),
        NumaNode(10, has_cores=False, memory_bytes=4 << 20),
    )
    assert memory.huge_pages == (HugePages(2 << 20, 9, 3),)
    assert memory.dax_devices == (DaxDevice("dax1.0", 4096, "device_dax"),)


def test_user_map_and_filter_are_read(tmp_path: Path) -> None:
    _write(tmp_path / "proc/self/uid_map", "         0     100000      65536\n")
    _write(tmp_path / "proc/self/status", "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n")
    confinement = read_confinement(tmp_path)
    assert confinement.user_map == ((0, 100_000, 65_536),)
    assert confinement.seccomp_filtered
    assert confinement.user == os.geteuid()


def test_process_beside_this_one_shares_its_namespaces() -> None:
    with running("anything", _FIRST_CORE) as pid:
        (seen,) = read_attached([(pid, pid_namespace("self"))])
    assert (seen.seen_as, seen.apart) == (pid, ())


def test_process_of_a_container_is_seen_under_its_number_here_and_as_apart() -> None:
    require_namespaces()
    program = contained(["sh", "-c", "stat -Lc %i /proc/self/ns/pid; read line"])
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as outer:
        assert outer.stdin is not None
        assert outer.stdout is not None
        space = int(outer.stdout.readline())
        (seen,) = read_attached([(1, space)])
        assert seen.seen_as > 1
        assert seen.apart == ("pid", "mnt")
        outer.stdin.close()
    (gone,) = read_attached([(1, space)])
    assert gone.seen_as == 0


def test_this_environment_is_read_without_importing_an_engine() -> None:
    program = (
        "import sys\n"
        "from kvext.doctor import diagnose, read_host\n"
        "from pathlib import Path\n"
        "diagnose(read_host(Path('/dev/shm'), 'default'))\n"
        "print({'vllm', 'torch'} & set(sys.modules))\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program]) == b"set()\n"
    software = read_software()
    assert software.plugin == "kvext.vllm.plugin:register"
    assert len(software.instruction_sets) == 2


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_tightest_cpu_quota_is_found_above_the_own_group(tmp_path: Path) -> None:
    _write(
        tmp_path / "proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    )
    _write(tmp_path / "proc/self/cgroup", "0::/pod/engine\n")
    pod = tmp_path / "sys/fs/cgroup/pod"
    _write(pod / "cpu.max", "150000 100000\n")
    _write(pod / "engine/cpu.max", "max 100000\n")
    assert read_cpu_quota(tmp_path) == 1.5


def test_negative_cpu_quota_of_version_1_is_none(tmp_path: Path) -> None:
    mount = "30 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    _write(tmp_path / "proc/self/mountinfo", mount)
    _write(tmp_path / "proc/self/cgroup", "3:cpu,cpuacct:/\n0::/\n")
    _write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    _write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert read_cpu_quota(tmp_path) is None


def test_host_without_cgroups_has_no_cpu_quota(tmp_path: Path) -> None:
    assert read_cpu_quota(tmp_path) is None
