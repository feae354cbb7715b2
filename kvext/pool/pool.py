"""One process's handle of a pool.

Invariant: a record is visible only between its commit and its eviction, its bytes never change in
between, and it is not evicted while anybody's lease pins it.
"""

import functools
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kvext.pool import _core
from kvext.pool.faults import error_of, translated_faults
from kvext.pool.lease import NOTHING, Lease
from kvext.pool.oversight import Oversight
from kvext.protocol.layout import RecordShape
from kvext.protocol.transfer import StoreOutcome

__all__ = ["DEFAULT_LEASE_S", "Pool", "Reservation"]

DEFAULT_LOCK_WAIT_S = 0.2
DEFAULT_LEASE_S = 30.0


class Reservation:
    """An extent that this process may fill: `fill`, then `commit`, or else `abort`."""

    __slots__ = ("_checksum", "_core", "_pool", "ref")

    def __init__(self, pool: "Pool", core: _core.Pool, ref: bytes) -> None:
        """Wrap what the pool has reserved."""
        self._pool = pool
        self._core = core
        self._checksum: int | None = None
        self.ref = ref

    def fill(self, record: bytes) -> None:
        """Write the record's bytes; without effect if the reservation is no longer ours.

        Raises:
            ValueError: `record` is not as long as what was reserved.
        """
        with self._pool.translated():
            self._checksum = self._core.fill(self.ref, record)

    def commit(self) -> StoreOutcome:
        """Make the record visible; `FENCED` if the reservation was given up in between."""
        if self._checksum is None:
            return StoreOutcome.FENCED
        with self._pool.translated():
            return StoreOutcome(self._core.commit(self.ref, self._checksum))

    def abort(self) -> bool:
        """Give the extent back; False if it is no longer ours."""
        with self._pool.translated():
            return self._core.abort(self.ref)


class Pool(Oversight):
    """A pool as one process sees it; a context manager that detaches on exit.

    A process that others took for dead, because it was stopped for longer than the pool's lease,
    enters anew at its next call: what it had pinned is given back, what it had reserved is
    `FENCED`.
    """

    def __init__(self, core: _core.Pool, path: Path, lock_wait_s: float) -> None:
        """Wrap an attached core; use `attach`."""
        super().__init__(core, path, lock_wait_s)
        _register_fork_hook()
        _attached.add(self)

    @staticmethod
    def initialise(path: Path, lease_s: float = DEFAULT_LEASE_S) -> None:
        """Write the header of a fresh region into a file that has its final size.

        Args:
            path: The file.
            lease_s: How long an attached process may be silent before others take back what it
                holds, in seconds.

        Raises:
            PoolError: The file cannot be written.
        """
        with translated_faults(path):
            _core.initialise(str(path), round(lease_s * 1000))

    @classmethod
    def attach(
        cls,
        path: Path,
        *,
        extent_bytes: int | None = None,
        label: str = "",
        lock_wait_s: float = DEFAULT_LOCK_WAIT_S,
    ) -> Self:
        """Map the region and, as an engine, enter its process table.

        Args:
            path: The region's file.
            extent_bytes: Bytes of this engine's records; the first engine fixes the extent size.
                None attaches an observer, which may look and clear but neither match nor store.
            label: How `kvext pool stat` names this process.
            lock_wait_s: Deadline of every wait for the allocation lock.

        Raises:
            PoolMissing: There is no such file.
            PoolPermission: The file may not be opened for reading and writing.
            PoolVersionMismatch: Another format version.
            PoolDamaged: The file is no pool, truncated or inconsistent.
            PoolGeometryMismatch: `extent_bytes` exceeds the pool's extents, and the pool is in use.
            PoolLockTimeout: The allocation lock stayed taken.
            PoolUnusable: The region is too small for one record, or its process table is full.
        """
        with translated_faults(path, record_bytes=extent_bytes or 0, waited_s=lock_wait_s):
            return cls(_core.Pool(str(path), extent_bytes, label, lock_wait_s), path, lock_wait_s)

    def __enter__(self) -> Self:
        """Return the pool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Detach."""
        self.close()

    def match(self, keys: bytes, shape: RecordShape) -> Lease:
        """Pin the longest prefix of `keys` (32 bytes each) that is stored in this shape."""
        try:  # not `translated`, which costs more than the lookup
            refs, epoch = self._core.match(keys, shape.packed)
        except _core.Fault as fault:
            raise error_of(fault, self.path) from None
        return Lease(self._core.unpin, refs, epoch) if refs else NOTHING

    def lookup(self, keys: bytes, shape: RecordShape) -> bytes:
        """One byte a key: 1 if it is stored in this shape. Pins nothing."""
        with self.translated():
            return self._core.lookup(keys, shape.packed)

    def store(
        self,
        keys: bytes,
        shape: RecordShape,
        namespace: bytes,
        pages: _core.Pages,
        block_ids: Sequence[int],
    ) -> bytes:
        """Copy blocks out of the engine's pages and commit them; one `StoreOutcome` byte each.

        Raises:
            ValueError: A block id is outside `pages`, or counts do not match.
        """
        with self.translated():
            return self._core.store(keys, shape.packed, namespace, pages, block_ids)

    def load(
        self, refs: bytes, pages: _core.Pages, block_ids: Sequence[int], *, verify: bool = True
    ) -> bytes:
        """Copy records into the engine's pages; one `LoadOutcome` byte each.

        A block whose outcome is not `LOADED` has undefined contents in the engine.

        Args:
            refs: 16 bytes a record, of a live lease of any process.
            pages: The engine's KV memory.
            block_ids: Where to, one a record.
            verify: Compare checksums and quarantine what does not match.

        Raises:
            ValueError: A block id is outside `pages`, or counts do not match.
        """
        with self.translated():
            return self._core.load(refs, pages, block_ids, verify)

    def begin_load(
        self, refs: bytes, pages: _core.Pages, block_ids: Sequence[int]
    ) -> _core.LayeredLoad:
        """Begin a verified `load` on a thread of its own, layer after layer over all blocks.

        Raises:
            ValueError: A block id is outside `pages`, or counts do not match.
        """
        with self.translated():
            return _core.LayeredLoad(self._core, refs, pages, block_ids)

    def pace_loads(self, bytes_per_s: float, latency_s: float = 0.0) -> None:
        """Let this handle's loads take as long as from slower memory: a model, for measurements.

        The copy is as fast as ever; what is left of the time passes asleep, with no core busy.

        Args:
            bytes_per_s: What the memory gives; 0 ends the model.
            latency_s: Before the first byte of each load.
        """
        self._core.set_pace(bytes_per_s, latency_s)

    def reserve(
        self, key: bytes, shape: RecordShape, num_bytes: int, namespace: bytes
    ) -> Reservation | StoreOutcome:
        """Reserve an extent for one record, or say why not; for writers other than `store`."""
        with self.translated():
            made = self._core.reserve(key, shape.packed, num_bytes, namespace)
        outcome = StoreOutcome(made.outcome)
        if outcome is not StoreOutcome.STORED:
            return outcome
        return Reservation(self, self._core, made.ref)

    def record(self, ref: bytes) -> memoryview:
        """The bytes of one record in place, valid while it is pinned and the pool attached."""
        with self.translated():
            return self._core.record(ref)

    @property
    def bypassed(self) -> bool:
        """Whether the pool is switched off for matches and stores; one read of shared memory."""
        return self._core.bypassed

    def set_bypass(self, on: bool) -> None:  # noqa: FBT001 - "set" and its value
        """Switch the pool off or on again for every process, at once.

        While it is off, engines find nothing in it and store nothing. Its blocks stay, and what
        was pinned before can still be loaded.
        """
        with self.translated():
            self._core.set_bypass(on)

    def close(self) -> None:
        """Give back pins and reservations and unmap; a second call does nothing."""
        self._core.close()

    def abandon_after_fork(self) -> None:
        """In a forked child: forget the pool without touching the parent's pins and locks."""
        self._core.abandon_after_fork()


_attached: weakref.WeakSet[Pool] = weakref.WeakSet()


@functools.cache
def _register_fork_hook() -> None:
    # A forked child shares the parent's locks: it must forget its pools, not release them.
    os.register_at_fork(after_in_child=_abandon_all)


def _abandon_all() -> None:
    for pool in list(_attached):
        pool.abandon_after_fork()
