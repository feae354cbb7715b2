"""What a pool tells people about itself."""

from array import array
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "AttachedProcess",
    "ClearReport",
    "FenceReport",
    "FsckReport",
    "NamespaceState",
    "NamespaceUse",
    "PoolStat",
    "Problem",
    "ProblemKind",
    "ReapReport",
    "RecordTable",
]


@dataclass(frozen=True, slots=True)
class AttachedProcess:
    """One living process in the pool's process table; `pid` is as its own namespace counts."""

    pid: int
    pid_namespace: int
    heartbeat_age_ms: int
    num_pins: int
    label: str


@dataclass(frozen=True, slots=True)
class PoolStat:
    """Occupancy and counters at one moment; counters count since the region was created.

    `extent_bytes` is 0 while no engine has decided what a record looks like. While `bypassed`,
    engines neither look anything up in it nor store. Extents in limbo wait for a process that
    stopped while it may have been writing them. A process that is silent for `lease_s` loses what
    it holds. `agent_label` is empty while no agent has the pool's care.
    """

    path: str
    uuid: str
    region_bytes: int
    extent_bytes: int
    num_extents: int
    num_free: int
    num_committed: int
    num_reserved: int
    num_quarantined: int
    num_limbo: int
    num_pinned: int
    committed_bytes: int
    bypassed: bool
    lease_s: float
    agent_label: str
    agent_age_ms: int
    counters: dict[str, int]
    processes: tuple[AttachedProcess, ...]

    @property
    def capacity_bytes(self) -> int:
        """Bytes that records can occupy."""
        return self.extent_bytes * self.num_extents


class NamespaceState(StrEnum):
    """Whether a namespace's blocks are found; in the order of the native core, from 1."""

    LIVE = "live"
    FENCED = "fenced"
    """Unreachable, waiting to be evicted; what was stored since lives in an entry of its own."""
    QUARANTINED = "quarantined"
    """Nothing is found or stored until somebody releases it."""


@dataclass(frozen=True, slots=True)
class NamespaceUse:
    """What one namespace (model, layout, adapter, sharing domain) holds.

    `model` is the digest of the weights in hex, all zeros where nobody has told it.
    """

    digest: str
    label: str
    num_blocks: int
    model: str
    state: NamespaceState
    extent_bytes: int

    @property
    def held_bytes(self) -> int:
        """Bytes of the pool that its blocks occupy, rounding to extents included."""
        return self.num_blocks * self.extent_bytes


@dataclass(frozen=True, slots=True)
class ClearReport:
    """What became of the blocks that were to be cleared."""

    num_dropped: int
    num_kept: int
    """Pinned or still being written; they fall to eviction later."""


@dataclass(frozen=True, slots=True)
class FenceReport:
    """What a fence has made unreachable."""

    num_namespaces: int
    num_records: int


@dataclass(frozen=True, slots=True)
class ReapReport:
    """Processes found dead, processes fenced because they were silent, extents freed."""

    num_dead: int
    num_hung: int
    num_freed: int


class ProblemKind(StrEnum):
    """How a region's tables can be wrong; in the order of the native core."""

    BAD_STATE = "bad_state"
    BAD_EXTENT = "bad_extent"
    """A slot names an extent that does not exist or that another slot has."""
    BAD_LENGTH = "bad_length"
    BAD_NAMESPACE = "bad_namespace"
    BACK_REFERENCE = "back_reference"
    """An extent does not name the slot that names it."""
    UNREACHABLE = "unreachable"
    """A lookup of the record's key passes it by."""
    DUPLICATE = "duplicate"
    ORPHAN = "orphan"
    """Kept for a writer that is gone."""
    LEAKED = "leaked"
    """An extent neither free nor in use."""
    FREE_LIST = "free_list"
    COUNT = "count"
    VOID_PINS = "void_pins"
    """Pins in a row that belongs to nobody."""
    EPOCH = "epoch"
    CHECKSUM = "checksum"
    """Bytes that differ from what was stored."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where, and what was found there."""

    kind: ProblemKind
    place: str
    detail: str


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What a check has found; `num_repaired` of the problems are gone."""

    problems: tuple[Problem, ...]
    num_records: int
    num_repaired: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Committed records at one moment, a column each; they may be gone when you read this.

    Attributes:
        refs: 16 bytes each, for `Pool.evict`.
        keys: 32 bytes each.
        lengths: Bytes.
        last_access: Tenths of a second since the region was created, as `Pool.now_tenths`.
        previous_access: The access before that; 0 if there was none.
        hits: Saturates at 255.
        namespaces: Index in the namespace table.
        owners: Row of the process that stored it.
    """

    refs: bytes
    keys: bytes
    lengths: "array[int]"
    last_access: "array[int]"
    previous_access: "array[int]"
    hits: "array[int]"
    namespaces: "array[int]"
    owners: "array[int]"

    def __len__(self) -> int:
        return len(self.lengths)
