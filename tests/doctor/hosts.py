"""A host on which nothing is to be mended; tests change one thing of it."""

from dataclasses import replace
from pathlib import Path

from kvext.cxl.cgroup import Cgroup
from kvext.doctor import Finding, diagnose
from kvext.doctor.snapshot import (
    Attached,
    Cache,
    Confinement,
    Cores,
    EngineProcess,
    Folder,
    Holder,
    Host,
    LockTrial,
    Memory,
    Mount,
    NumaNode,
    Pools,
    PoolSeen,
    SharedFile,
    Software,
    System,
)

__all__ = [
    "FOLDER",
    "GIB",
    "HEALTHY",
    "MIB",
    "asked",
    "attached",
    "confined",
    "engines",
    "files",
    "finding",
    "folder",
    "memory",
    "mount",
    "pools",
    "shared_file",
    "software",
    "system",
]

FOLDER = Path("/dev/shm")  # noqa: S108 - named, not used
MIB, GIB = 1 << 20, 1 << 30

HEALTHY = Host(
    software=Software(
        python=(3, 11, 7),
        engines={"vllm": "0.32.0"},
        plugin="kvext.vllm.plugin:register",
        allowed_plugins=None,
        instruction_sets=("avx512", "sha-ni"),
        core_fault="",
    ),
    system=System("Linux", "6.1.0-18-amd64", "x86_64", in_first_pid_namespace=True),
    folder=Folder(
        path=FOLDER,
        exists=True,
        writable=True,
        mount=Mount(str(FOLDER), "tmpfs", ("rw", "huge=within_size"), 64 * GIB, 60 * GIB),
        locks=LockTrial.WORKS,
    ),
    files=(),
    pools=Pools(FOLDER / "kvext-default.pool", automatic_bytes=30 * GIB),
    memory=Memory(
        available_bytes=100 * GIB,
        memlock_bytes=None,
        shmem_huge_pages="never",
        nodes=(NumaNode(0, has_cores=True, memory_bytes=128 * GIB),),
    ),
    cgroup=Cgroup(version=2, limit_bytes=None, used_bytes=GIB),
    cores=Cores(frozenset(range(8)), num_online=8, quota=None, load=0.5),
    cache=Cache(Path("/home/somebody/.cache/kvext"), writable=True),
    confinement=Confinement(1000, ((0, 0, 2**32 - 1),), seccomp_filtered=False, policy_fault=""),
)


def shared_file(
    name: str, held_bytes: int = 32 * MIB, holder: Holder = Holder.NOBODY, *, in_memory: bool = True
) -> SharedFile:
    return SharedFile(FOLDER / name, held_bytes, 7200.0, "somebody", holder, in_memory)


def finding(host: Host, name: str) -> Finding:
    (found,) = [found for found in diagnose(host).findings if found.name == name]
    return found


def software(**changes: object) -> Host:
    return replace(HEALTHY, software=replace(HEALTHY.software, **changes))  # type: ignore[arg-type]


def system(**changes: object) -> Host:
    return replace(HEALTHY, system=replace(HEALTHY.system, **changes))  # type: ignore[arg-type]


def folder(**changes: object) -> Host:
    return replace(HEALTHY, folder=replace(HEALTHY.folder, **changes))  # type: ignore[arg-type]


def mount(**changes: object) -> Host:
    return folder(mount=replace(HEALTHY.folder.mount, **changes))  # type: ignore[arg-type]


def files(*names: str, held_bytes: int = 32 * MIB, holder: Holder = Holder.NOBODY) -> Host:
    return replace(HEALTHY, files=tuple(shared_file(name, held_bytes, holder) for name in names))


def pools(*found: PoolSeen) -> Host:
    return replace(HEALTHY, pools=replace(HEALTHY.pools, found=found))


def asked(size_bytes: int, host: Host = HEALTHY) -> Host:
    return replace(host, pools=replace(host.pools, asked_bytes=size_bytes))


def attached(*processes: Attached) -> Host:
    return replace(HEALTHY, attached=processes)


def confined(**changes: object) -> Host:
    return replace(HEALTHY, confinement=replace(HEALTHY.confinement, **changes))  # type: ignore[arg-type]


def memory(**changes: object) -> Host:
    return replace(HEALTHY, memory=replace(HEALTHY.memory, **changes))  # type: ignore[arg-type]


def engines(*cores: set[int], on_gpu: bool = False, **of_host: object) -> Host:
    running = tuple(
        EngineProcess(100 + n, "VLLM::Worker", frozenset(mask), on_gpu)
        for n, mask in enumerate(cores)
    )
    allowed = replace(HEALTHY.cores, **of_host)  # type: ignore[arg-type]
    return replace(HEALTHY, engines=running, cores=allowed)
