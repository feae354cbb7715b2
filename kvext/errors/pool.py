"""What is wrong with one pool, named by its path."""

from dataclasses import dataclass

from kvext.errors.base import KvextError, readable_size

__all__ = [
    "PoolBusy",
    "PoolDamaged",
    "PoolDetached",
    "PoolError",
    "PoolExists",
    "PoolFolderMissing",
    "PoolFull",
    "PoolGeometryMismatch",
    "PoolLockTimeout",
    "PoolMissing",
    "PoolOverMemoryLimit",
    "PoolPermission",
    "PoolUnusable",
    "PoolVersionMismatch",
]


@dataclass(eq=False)
class PoolError(KvextError):
    """Something about one pool, named by the path of its region."""

    path: str


@dataclass(eq=False)
class PoolMissing(PoolError):
    """No region lies at the path."""

    _says = "no pool at {self.path}; create it with `kvext pool create`"


@dataclass(eq=False)
class PoolFolderMissing(PoolError):
    """The folder that the region should lie in does not exist."""

    _says = "pool {self.path} has no folder to lie in; make the folder, or choose another"


@dataclass(eq=False)
class PoolExists(PoolError):
    """A region lies at the path already."""

    _says = "a pool exists at {self.path}; attach to it, or remove it with `kvext pool rm`"


@dataclass(eq=False)
class PoolFull(PoolError):
    """The folder's memory cannot hold the region that was asked for."""

    needed_bytes: int
    free_bytes: int

    @property
    def needed_size(self) -> str:
        """`needed_bytes` for people."""
        return readable_size(self.needed_bytes)

    @property
    def free_size(self) -> str:
        """`free_bytes` for people."""
        return readable_size(self.free_bytes)

    _says = (
        "pool {self.path} needs {self.needed_size} but its folder has "
        "{self.free_size} free; ask for less, or choose another folder"
    )


@dataclass(eq=False)
class PoolOverMemoryLimit(PoolError):
    """Making the region here would have the kernel kill this process for its control group."""

    needed_bytes: int
    limit_bytes: int
    used_bytes: int
    """What the group holds without the region."""

    @property
    def needed_size(self) -> str:
        """`needed_bytes` for people."""
        return readable_size(self.needed_bytes)

    @property
    def limit_size(self) -> str:
        """`limit_bytes` for people."""
        return readable_size(self.limit_bytes)

    @property
    def used_size(self) -> str:
        """`used_bytes` for people."""
        return readable_size(self.used_bytes)

    _says = (
        "pool {self.path} needs {self.needed_size} but this process's memory limit is "
        "{self.limit_size}, of which {self.used_size} are in use; raise the limit, ask for less, "
        "or have `kvext pool create` or the agent make the pool outside this container"
    )


@dataclass(eq=False)
class PoolVersionMismatch(PoolError):
    """The region was written by a kvext with another format version."""

    found: int
    expected: int

    _says = (
        "pool {self.path} has format version {self.found}, this kvext reads {self.expected}; "
        "use another pool name, or delete that file once no engine of the other kvext uses it"
    )


@dataclass(eq=False)
class PoolDamaged(PoolError):
    """The region's superblock cannot be trusted."""

    reason: str

    _says = (
        "pool {self.path} is damaged: {self.reason}; remove it with `kvext pool rm` "
        "and create it again"
    )


@dataclass(eq=False)
class PoolPermission(PoolError):
    """The operating system does not let this process use the region."""

    reason: str

    _says = (
        "pool {self.path} may not be used: {self.reason}; run as its owner, "
        "or change the file's owner and mode"
    )


@dataclass(eq=False)
class PoolUnusable(PoolError):
    """The region is sound but cannot be used in this way; `reason` names the remedy."""

    reason: str

    _says = "pool {self.path} cannot be used: {self.reason}; or choose another pool"


@dataclass(eq=False)
class PoolGeometryMismatch(PoolError):
    """This engine's records are larger than the pool's extents."""

    record_bytes: int
    extent_bytes: int

    _says = (
        "pool {self.path} has extents of {self.extent_bytes} bytes, this engine's block "
        "needs {self.record_bytes}; give the engine another pool name"
    )


@dataclass(eq=False)
class PoolBusy(PoolError):
    """Other processes are attached to the region."""

    num_attached: int

    _says = (
        "pool {self.path} has {self.num_attached} attached process(es); stop them first, "
        "or use --force"
    )


@dataclass(eq=False)
class PoolLockTimeout(PoolError):
    """The allocation lock stayed taken until the deadline."""

    waited_s: float

    _says = (
        "pool {self.path} stayed locked for {self.waited_s:g} s by another process; "
        "try again, or raise lock_wait_s"
    )


@dataclass(eq=False)
class PoolDetached(PoolError):
    """This process is no longer attached: it closed the pool, or was fenced out."""

    _says = "pool {self.path} is detached from this process; attach again"
