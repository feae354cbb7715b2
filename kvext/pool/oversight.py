"""What people and the agent ask of a pool: figures, fences, order, room."""

from array import array
from contextlib import AbstractContextManager
from pathlib import Path

from kvext.pool import _core
from kvext.pool.faults import translated_faults
from kvext.pool.report import (
    AttachedProcess,
    ClearReport,
    FenceReport,
    FsckReport,
    NamespaceState,
    NamespaceUse,
    PoolStat,
    Problem,
    ProblemKind,
    ReapReport,
    RecordTable,
)

__all__ = ["Oversight"]


_STATES, _KINDS = tuple(NamespaceState), tuple(ProblemKind)


class Oversight:
    """The part of `Pool` that is not on a request's way."""

    def __init__(self, core: _core.Pool, path: Path, lock_wait_s: float) -> None:
        """Wrap an attached core; use `Pool.attach`."""
        self.path = path
        self._core = core
        self._lock_wait_s = lock_wait_s

    def translated(self) -> AbstractContextManager[None]:
        """Inside the block, faults of the core are errors of the tree that name this pool."""
        return translated_faults(self.path, waited_s=self._lock_wait_s)

    @property
    def extent_bytes(self) -> int:
        """Largest record; 0 while no engine has decided it."""
        return self._core.extent_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes that records can occupy."""
        return self._core.capacity_bytes

    @property
    def uuid(self) -> str:
        """The region's own name, fresh for each creation."""
        with self.translated():
            return self._core.uuid

    @property
    def num_extents(self) -> int:
        """Records that fit."""
        return self._core.num_extents

    @property
    def num_free(self) -> int:
        """Records that can be stored without evicting one."""
        return self._core.num_free

    @property
    def num_limbo(self) -> int:
        """Extents that a stopped process may still be writing."""
        return self._core.num_limbo

    @property
    def lease_s(self) -> float:
        """How long a process may be silent before others take back what it holds."""
        return self._core.lease_ms / 1000

    @property
    def now_tenths(self) -> int:
        """Tenths of a second since the creation, as records tell their accesses."""
        return self._core.now_tenths

    def stat(self) -> PoolStat:
        """Occupancy, counters and living processes."""
        with self.translated():
            row = self._core.stat()
        processes = tuple(AttachedProcess(**process) for process in row["processes"])
        figures = {**row, "processes": processes}
        return PoolStat(path=str(self.path), uuid=self.uuid, **figures)  # type: ignore[arg-type]

    def name_namespace(self, digest: bytes, label: str, model: bytes | None = None) -> None:
        """Tell what a namespace stands for; the digest alone says nothing to people.

        Args:
            digest: The namespace's.
            label: For people.
            model: 32-byte digest of the weights, so that `fence` knows what belongs to them.
        """
        with self.translated():
            self._core.describe_namespace(digest, label, model)

    def namespaces(self) -> list[NamespaceUse]:
        """All namespaces that hold or held blocks, largest first."""
        with self.translated():
            rows = self._core.namespaces()
        uses = [
            NamespaceUse(digest, label, num_blocks, model, _STATES[state - 1], self.extent_bytes)
            for digest, label, num_blocks, model, state in rows
        ]
        return sorted(uses, key=lambda use: -use.num_blocks)

    def fence(self, model: bytes) -> FenceReport:
        """Make everything stored so far under a model unreachable, at once, for every engine.

        Its space is reclaimed as it is needed. Engines that still run the model begin anew.
        """
        return self._fence(model, all_but=False)

    def fence_all_but(self, model: bytes) -> FenceReport:
        """Make everything unreachable that was stored under any other model than this."""
        return self._fence(model, all_but=True)

    def _fence(self, model: bytes, *, all_but: bool) -> FenceReport:
        with self.translated():
            return FenceReport(*self._core.fence(model, all_but))

    def quarantine_namespace(self, digest: bytes) -> bool:
        """Neither find nor store anything of a namespace; False if that was so before."""
        with self.translated():
            return self._core.set_quarantine(digest, on=True)

    def release_namespace(self, digest: bytes) -> bool:
        """End a quarantine: the namespace starts over, without what it held. False if none was."""
        with self.translated():
            return self._core.set_quarantine(digest, on=False)

    def clear(self, namespace: bytes | None = None) -> ClearReport:
        """Drop all unpinned records, or those of one namespace, quarantined ones included."""
        with self.translated():
            return ClearReport(*self._core.clear(namespace))

    def reap(self) -> ReapReport:
        """Take back what dead processes left and what silent ones hold."""
        with self.translated():
            return ReapReport(*self._core.reap())

    def fsck(self, *, repair: bool = False, verify_data: bool = False) -> FsckReport:
        """Check every invariant of the tables, while engines run or without any.

        Args:
            repair: Mend what is wrong; a record that cannot be trusted is dropped.
            verify_data: Also compare all records with their checksums, which takes as long as
                reading the pool; with `repair` those that differ are quarantined.
        """
        with self.translated():
            problems, num_records, num_repaired = self._core.fsck(repair, verify_data)
        told = tuple(Problem(_KINDS[kind], place, detail) for kind, place, detail in problems)
        return FsckReport(told, num_records, num_repaired)

    def records(self, *, since_tenths: int = 0) -> RecordTable:
        """Committed records that were accessed at or after a tenth of a second."""
        with self.translated():
            columns = self._core.records(since_tenths)
        refs, keys, *numbers = columns
        codes = ("I", "I", "I", "B", "H", "H")  # as the core packs them
        return RecordTable(
            refs, keys, *(array(code, data) for code, data in zip(codes, numbers, strict=True))
        )

    def evict(self, refs: bytes) -> int:
        """Drop those of the named records that still exist and are not pinned; their number."""
        with self.translated():
            return self._core.evict(refs)

    def claim_agent_role(self) -> bool:
        """Become the one process that looks after the pool, unless a living one is it already."""
        with self.translated():
            return self._core.claim_agent_role()

    @property
    def holds_agent_role(self) -> bool:
        """Whether this process is the pool's agent; a process that was fenced is it no more."""
        return self._core.holds_agent_role

    def release_agent_role(self) -> None:
        """Let another process become the agent."""
        with self.translated():
            self._core.release_agent_role()
