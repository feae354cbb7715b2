"""Everything kvext raises on purpose, each error with the fields that it talks about.

    KvextError
    ├── ConfigError               the user's settings
    │   ├── UnknownOption         no such option; names the nearest known one
    │   ├── InvalidOption         known option, impossible value
    │   ├── OptionConflict        two settings that exclude one another
    │   ├── ConfigFileError       the file of options cannot be read
    │   └── EngineMissing         the engine's command is not installed
    ├── PoolError                 one pool, named by its path
    │   ├── PoolMissing           no region at the path
    │   ├── PoolFolderMissing     no folder to make it in
    │   ├── PoolExists            a region is there already
    │   ├── PoolFull              the folder has too little memory for the region
    │   ├── PoolOverMemoryLimit   the control group's memory limit does
    │   ├── PoolVersionMismatch   the region has another format version
    │   ├── PoolDamaged           the region's superblock cannot be trusted
    │   ├── PoolPermission        the region may not be opened
    │   ├── PoolUnusable          it is sound, but not for this use
    │   ├── PoolGeometryMismatch  an engine's records do not fit the extents
    │   ├── PoolBusy              processes are attached
    │   ├── PoolLockTimeout       another process held the allocation lock too long
    │   └── PoolDetached          this process closed the pool, or was fenced out
    ├── IdentityError             which bytes are these?
    │   ├── IdentityUnknown       the weights or the adapter cannot be named for certain
    │   └── TokenRangeError       a token id that the chain cannot encode
    ├── TenancyError              who may hold what
    │   ├── UnknownPolicy         no eviction policy of this name
    │   └── SharesConflict        shares that cannot all be kept
    ├── CopyError                 moving blocks to and from an accelerator
    │   ├── PinningRefused        the driver does not pin a range of host memory
    │   └── CopyStalled           the accelerator did not finish a copy in time
    ├── AgentError                the agent of a pool
    │   ├── AgentBusy             its loop did not come to an order in time
    │   └── AgentUnreachable      its port does not answer
    └── SimulationError           what `kvext simulate` is to replay
        ├── TraceError            a trace, named by file and line
        ├── ScenarioError         a scenario, named by file and line
        └── CapacityError         more blocks than there are to keep

Every message states the fact, the value and the remedy. Errors compare by identity and
survive pickling, since engines hand them between processes.
"""

from dataclasses import dataclass, fields
from typing import ClassVar

__all__ = [
    "AgentBusy",
    "AgentError",
    "AgentUnreachable",
    "CapacityError",
    "ConfigError",
    "ConfigFileError",
    "CopyError",
    "CopyStalled",
    "EngineMissing",
    "IdentityError",
    "IdentityUnknown",
    "InvalidOption",
    "KvextError",
    "OptionConflict",
    "PinningRefused",
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
    "ScenarioError",
    "SharesConflict",
    "SimulationError",
    "TenancyError",
    "TokenRangeError",
    "TraceError",
    "UnknownOption",
    "UnknownPolicy",
]


def _size(num_bytes: int) -> str:
    shift, unit = (30, "GiB") if num_bytes >= 1 << 30 else (20, "MiB")
    return f"{num_bytes / (1 << shift):,.1f} {unit}"


@dataclass(eq=False)
class KvextError(Exception):
    """Root of the tree; catch it to catch everything kvext raises on purpose."""

    _says: ClassVar[str] = "{self.__class__.__name__}"
    """The message: fact and value; remedy."""

    def __str__(self) -> str:  # type: ignore[explicit-override]  # typing has it from 3.12 on
        return self._says.format(self=self)

    def __reduce__(self) -> tuple[type["KvextError"], tuple[object, ...]]:  # type: ignore[explicit-override]
        # By default an exception pickles its positional arguments only.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def as_dict(self) -> dict[str, object]:
        """The error as JSON-ready data: its name, its message and its fields."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"error": type(self).__name__, "message": str(self), **own}


@dataclass(eq=False)
class ConfigError(KvextError):
    """A setting that the user gave cannot be used."""


@dataclass(eq=False)
class UnknownOption(ConfigError):
    """An option that no schema knows. `nearest` is empty when nothing comes close."""

    option: str
    nearest: str
    known: tuple[str, ...]

    _says = "unknown option {self.option!r}; {self.remedy}"

    @property
    def remedy(self) -> str:
        """The nearest known option, or all of them."""
        if self.nearest:
            return f"did you mean {self.nearest!r}?"
        return f"use one of {', '.join(self.known)}"


@dataclass(eq=False)
class InvalidOption(ConfigError):
    """An option whose value is impossible; `remedy` says what to write instead."""

    option: str
    value: object
    remedy: str

    _says = "option {self.option!r} cannot be {self.value!r}; {self.remedy}"


@dataclass(eq=False)
class OptionConflict(ConfigError):
    """An option that excludes what kvext itself has to set."""

    option: str
    reason: str
    remedy: str

    _says = "option {self.option!r} cannot be used here: {self.reason}; {self.remedy}"


@dataclass(eq=False)
class ConfigFileError(ConfigError):
    """The options' file is missing, unreadable or not TOML."""

    path: str
    reason: str

    _says = "options file {self.path!r} cannot be used: {self.reason}; correct it or leave it out"


@dataclass(eq=False)
class EngineMissing(ConfigError):
    """The engine's command is not on the PATH; `remedy` says how to install it."""

    command: str
    remedy: str

    _says = "the command {self.command!r} is not on the PATH; {self.remedy}"


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
        return _size(self.needed_bytes)

    @property
    def free_size(self) -> str:
        """`free_bytes` for people."""
        return _size(self.free_bytes)

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
        return _size(self.needed_bytes)

    @property
    def limit_size(self) -> str:
        """`limit_bytes` for people."""
        return _size(self.limit_bytes)

    @property
    def used_size(self) -> str:
        """`used_bytes` for people."""
        return _size(self.used_bytes)

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


@dataclass(eq=False)
class IdentityError(KvextError):
    """It cannot be said which bytes something stands for."""


@dataclass(eq=False)
class IdentityUnknown(IdentityError):
    """The weights of a model or adapter cannot be named for certain: nothing is cached."""

    subject: str
    reason: str

    _says = (
        "the identity of {self.subject} is unknown: {self.reason}; "
        "the engine serves it uncached; restart it when the files are complete and at rest"
    )


@dataclass(eq=False)
class TokenRangeError(IdentityError, ValueError):
    """A token id outside 0..2**32-1, at `position` of its sequence."""

    token: int
    position: int

    _says = (
        "token {self.token} at position {self.position} is outside 0..4294967295; "
        "pass the tokenizer's ids"
    )


@dataclass(eq=False)
class TenancyError(KvextError):
    """Who may hold what cannot be decided as asked."""


@dataclass(eq=False)
class UnknownPolicy(TenancyError):
    """No eviction policy has this name. `nearest` is empty when nothing comes close."""

    policy: str
    nearest: str
    known: str

    _says: ClassVar[str] = "there is no eviction policy {self.policy!r}; choose one of {self.known}"


@dataclass(eq=False)
class SharesConflict(TenancyError):
    """Shares of a cache that cannot all be kept, or that say nothing; names whose they are."""

    tenants: tuple[str, ...]
    reason: str
    """The fact, with its values."""
    remedy: str

    _says = "{self.whose} cannot be kept: {self.reason}; {self.remedy}"

    @property
    def whose(self) -> str:
        """The tenants, the first few of them by name."""
        named = ", ".join(repr(tenant) for tenant in self.tenants[:8])
        more = len(self.tenants) - 8
        listed = f"{named} and {more} more" if more > 0 else named
        return f"the share of tenant {listed}" if len(self.tenants) == 1 else f"shares of {listed}"


@dataclass(eq=False)
class CopyError(KvextError):
    """Blocks cannot travel to or from an accelerator."""


@dataclass(eq=False)
class PinningRefused(CopyError):
    """The driver neither pins nor frees a range of host memory; `reason` is its own word."""

    num_bytes: int
    reason: str

    _says = (
        "the driver refuses {self.size} of pinned memory: {self.reason}; raise the limit on "
        "locked memory (ulimit -l), or pin a range only once"
    )

    @property
    def size(self) -> str:
        """The range in a readable unit."""
        return _size(self.num_bytes)


@dataclass(eq=False)
class CopyStalled(CopyError):
    """A copy was still under way at its deadline; its blocks count as failed."""

    deadline_s: float

    _says = (
        "the accelerator did not finish a copy within {self.deadline_s:.1f} s; look for a hung "
        "kernel or a fault of the device in the system's log"
    )


@dataclass(eq=False)
class AgentError(KvextError):
    """The agent of a pool cannot do what it was asked for."""


@dataclass(eq=False)
class AgentBusy(AgentError):
    """The agent's loop did not come to an order in time; it is not done."""

    waited_s: float

    _says = (
        "the agent did not come to it within {self.waited_s:g} s, or has too much waiting; "
        "look at its /health and try again"
    )


@dataclass(eq=False)
class AgentUnreachable(AgentError):
    """No agent answers at its admin port."""

    url: str
    reason: str

    _says = (
        "no agent answers at {self.url}: {self.reason}; start one with `kvext agent`, "
        "or name its port with --port"
    )


@dataclass(eq=False)
class SimulationError(KvextError):
    """A simulation cannot be run on what it was given."""


@dataclass(eq=False)
class TraceError(SimulationError):
    """A trace is broken or foreign; `line` is 0 where no single line is to blame."""

    path: str
    line: int
    reason: str
    remedy: str

    _says = "trace {self.place}: {self.reason}; {self.remedy}"

    @property
    def place(self) -> str:
        """File and line."""
        return _place(self.path, self.line)


@dataclass(eq=False)
class ScenarioError(SimulationError):
    """A scenario is broken or contradicts itself; `line` is 0 where no line is to blame."""

    path: str
    line: int
    reason: str
    remedy: str

    _says = "scenario {self.place}: {self.reason}; {self.remedy}"

    @property
    def place(self) -> str:
        """File and line."""
        return _place(self.path, self.line)


@dataclass(eq=False)
class CapacityError(SimulationError):
    """A capacity that holds the whole trace: nothing would ever leave, so no policy matters."""

    capacity_blocks: int
    largest_blocks: int
    """Distinct blocks of the trace: what the largest useful capacity is."""

    _says = (
        "capacity of {self.capacity_blocks} blocks is larger than the trace, which has "
        "{self.largest_blocks} distinct blocks; give {self.largest_blocks} or less"
    )


def _place(path: str, line: int) -> str:
    return f"{path}, line {line}" if line else path
