"""What a pool tells people about itself."""

from dataclasses import dataclass

__all__ = ["AttachedProcess", "ClearReport", "NamespaceUse", "PoolStat"]


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
    engines neither look anything up in it nor store.
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
    num_pinned: int
    committed_bytes: int
    bypassed: bool
    counters: dict[str, int]
    processes: tuple[AttachedProcess, ...]

    @property
    def capacity_bytes(self) -> int:
        """Bytes that records can occupy."""
        return self.extent_bytes * self.num_extents


@dataclass(frozen=True, slots=True)
class NamespaceUse:
    """What one namespace (model, layout, adapter, sharing domain) holds."""

    digest: str
    label: str
    num_blocks: int
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
