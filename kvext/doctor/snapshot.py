"""What the checks look at: plain values of one moment, which readers fill and tests write down.

A limit that does not exist is None; sizes are bytes.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from shlex import quote

from kvext.config import Config
from kvext.cxl import region_name
from kvext.cxl.cgroup import Cgroup

__all__ = [
    "Attached",
    "Cache",
    "Confinement",
    "Cores",
    "DaxDevice",
    "EngineProcess",
    "FileAccess",
    "Folder",
    "Holder",
    "Host",
    "HugePages",
    "LockTrial",
    "Memory",
    "Mount",
    "NumaNode",
    "PoolSeen",
    "Pools",
    "SharedFile",
    "Software",
    "System",
]


@dataclass(frozen=True, slots=True)
class Software:
    """This Python and what is installed in it."""

    python: tuple[int, int, int]
    engines: dict[str, str]
    """Version of each installed distribution of vLLM."""
    plugin: str
    """What vLLM would call to learn of kvext; empty if nothing is registered."""
    allowed_plugins: str | None
    """The environment's VLLM_PLUGINS; None if unset, which allows all."""
    instruction_sets: tuple[str, ...]
    """What the native core chose here for bytes and for SHA-256; empty if it does not load."""
    core_fault: str
    """Why the native core does not load."""


@dataclass(frozen=True, slots=True)
class System:
    """Kernel, machine and the process's place in it."""

    name: str
    release: str
    machine: str
    in_first_pid_namespace: bool
    """Whether /proc shows all processes of the host."""


class LockTrial(Enum):
    """What came of taking a lock in the pool's folder."""

    WORKS = auto()
    NOT_ENFORCED = auto()
    """A second holder was let in, or the lock outlived its holder."""
    REFUSED = auto()
    NOT_TRIED = auto()
    """No file could be made there."""


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system that a folder lies on."""

    point: str
    kind: str
    options: tuple[str, ...]
    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder that pools lie in."""

    path: Path
    exists: bool
    writable: bool
    mount: Mount
    locks: LockTrial
    lock_fault: str = ""


class Holder(Enum):
    """Whether a living process has a file open, mapped or locked."""

    LIVING = auto()
    NOBODY = auto()
    UNKNOWN = auto()
    """There are processes that this user may not look into."""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file in a folder of shared memory."""

    path: Path
    held_bytes: int
    """Memory that it occupies, which may be less than its length."""
    age_s: float
    owner: str
    holder: Holder
    in_memory: bool
    """Whether its folder is memory: only there is a file of unknown name worth telling."""


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Who may use a pool's file; `user` is the owner's number as this user namespace counts."""

    user: int
    mode: int
    usable: bool
    """Whether this process may read and write it."""


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """One pool; `fault` says why it cannot be attached, `bypassed` that it was switched off."""

    path: Path
    region_bytes: int
    num_committed: int = 0
    pids: tuple[tuple[int, int], ...] = ()
    """Attached processes: number and PID namespace of each."""
    fault: str = ""
    bypassed: bool = False
    access: FileAccess | None = None
    """None if it vanished meanwhile."""
    of_other_format: bool = False
    """Whether `fault` is that another kvext wrote it."""
    locked: bool = False
    """Whether a living process is in it, whichever kvext it runs; told only beside a fault."""

    @property
    def name(self) -> str:
        """The pool's name, as `kvext pool` takes it."""
        return region_name(self.path)

    @property
    def arguments(self) -> str:
        """What names the pool behind a command of `kvext pool`, quoted for a shell."""
        folder = self.path.parent
        where = "" if str(folder) == Config().pool_folder else f" --folder {quote(str(folder))}"
        return quote(self.name) + where


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools in the folder, and the one that was asked for."""

    path: Path
    """Where the pool asked for lies, or would lie."""
    found: tuple[PoolSeen, ...] = ()
    automatic_bytes: int = 0
    """Size of a pool that an engine would make now, if it is not told one."""
    asked_bytes: int | None = None
    """Size that the doctor was told to judge by."""

    @property
    def planned_bytes(self) -> int:
        """Size of the pool that is to be made, if none exists."""
        return self.automatic_bytes if self.asked_bytes is None else self.asked_bytes

    @property
    def wanted(self) -> PoolSeen | None:
        """The pool asked for, if it exists."""
        return next((pool for pool in self.found if pool.path == self.path), None)


@dataclass(frozen=True, slots=True)
class HugePages:
    """Pages of one size that are reserved, and those of them that nobody has mapped."""

    page_bytes: int
    num_reserved: int
    num_free: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A node of memory; without cores it is memory behind CXL or another far bus."""

    number: int
    has_cores: bool
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class DaxDevice:
    """Memory that the kernel hands out as a device; `driver` "kmem" makes it a node instead."""

    name: str
    size_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Memory:
    """The host's memory and what the kernel lets this process do with it."""

    available_bytes: int
    memlock_bytes: int | None
    shmem_huge_pages: str
    """The kernel's setting for shared memory; empty if it has none."""
    huge_pages: tuple[HugePages, ...] = ()
    nodes: tuple[NumaNode, ...] = ()
    dax_devices: tuple[DaxDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Attached:
    """A process in a pool's table, as it can be seen from here."""

    pid: int
    """As its own PID namespace counts."""
    pid_namespace: int
    seen_as: int
    """Its number here; 0 if it cannot be seen."""
    apart: tuple[str, ...] = ()
    """Kinds of namespace ("pid", "mnt", "user", "time") in which it is not with this process."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Whom the kernel takes this process for, and which calls it may not make."""

    user: int
    user_map: tuple[tuple[int, int, int], ...]
    """First number here, first number outside, how many (user_namespaces(7))."""
    seccomp_filtered: bool
    policy_fault: str
    """Why the kernel refuses to speak of memory policies; empty if it does not."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores that this process may use; `quota` is in cores."""

    allowed: frozenset[int]
    num_online: int
    quota: float | None
    load: float


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A process that computes for an engine, and the cores that its threads may use."""

    pid: int
    title: str
    cores: frozenset[int]
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class Cache:
    """Where digests of weights are kept."""

    path: Path
    writable: bool


@dataclass(frozen=True, slots=True)
class Host:
    """Everything together."""

    software: Software
    system: System
    folder: Folder
    files: tuple[SharedFile, ...]
    pools: Pools
    memory: Memory
    cgroup: Cgroup
    cores: Cores
    cache: Cache
    confinement: Confinement
    attached: tuple[Attached, ...] = ()
    engines: tuple[EngineProcess, ...] = field(default=())
