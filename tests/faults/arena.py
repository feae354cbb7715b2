"""One pool, several living readers and writers, and what must hold after each death among them."""

import contextlib
import random
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kvext.cxl import create_region
from kvext.errors import PoolLockTimeout
from kvext.pool import Pool
from kvext.protocol.transfer import LoadOutcome
from tests.faults.ledger import Ledger, Tally
from tests.faults.nursery import Nursery
from tests.faults.orders import Arm, Orders
from tests.faults.records import KEYS_A_ROW, RECORD_BYTES, SHAPE, Blocks, keys_of, record_of
from tests.faults.ward import Ward
from tests.faults.worker import ANSWER_S, GO, OPERATIONS, PAUSE, READY

__all__ = ["SCHEDULING_S", "Arena", "Cast"]

SCHEDULING_S = 5.0
"""How late a process may be on a crowded machine before we call it stuck."""
_LOCK_WAIT_S = 0.1
_FIRST_PID, _PIDS_APART = 1000, 50
"""Threads take process ids, too."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part; rows of the ledger are given out in this order."""

    num_writers: int = 2
    num_readers: int = 2
    num_victims: int = 2
    pace_s: float = 0.0005
    """How long survivors pause between operations."""
    is_damaged: bool = False
    """Whether bits of the region will flip under them."""


class Arena:
    """A pool under load; a context manager."""

    def __init__(
        self,
        folder: Path,
        nurseries: Sequence[Nursery],
        *,
        region_bytes: int,
        cast: Cast = Cast(),
        lease_s: float = 30.0,
        equal_pids: bool = False,
        seed: int = 0,
    ) -> None:
        """Create the pool and attach the driver to it.

        Args:
            folder: For the region and all that belongs to it.
            nurseries: Who bears the workers; row by row they take turns.
            region_bytes: Size of the region.
            cast: How many survivors and victims.
            lease_s: The pool's.
            equal_pids: The nurseries have PID namespaces of their own: give the n-th worker of
                each the same process id, also when another one had it before.
            seed: Of all that is drawn.
        """
        self.folder = folder
        folder.mkdir()
        self.region = folder / "kvext-arena.pool"
        create_region(
            self.region, region_bytes, lambda path: Pool.initialise(path, lease_s=lease_s)
        )
        self.ledger = Ledger.create(folder / "ledger")
        self.random = random.Random(seed)  # noqa: S311 - a test's draws
        self.come_back()
        self.cast = cast
        self.lease_s = lease_s
        self.num_missing = 0
        self.survivors: list[Ward] = []
        self._nurseries = nurseries
        self._equal_pids = equal_pids
        self._blocks = Blocks(KEYS_A_ROW)

    def __enter__(self) -> Self:
        for row in range(self.victim_row):
            self.survivors.append(
                self.bear("writer" if row < self.cast.num_writers else "reader", row)
            )
        for worker in self.survivors:
            worker.expect(READY)
        if self.cast.num_writers and self.cast.num_readers:
            self.await_more(Tally.LOADS, 20)  # so that there is something to read from here on
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.survivors:
            if worker.fate().what in {"running", "stopped"}:
                worker.signal(signal.SIGKILL)
        self.pool.close()

    @property
    def num_rows(self) -> int:
        """Rows whose keys may be in the pool."""
        return self.victim_row + self.cast.num_victims

    @property
    def victim_row(self) -> int:
        """The first row of those who die."""
        return self.cast.num_writers + self.cast.num_readers

    def bear(
        self, task: str, row: int, *, arm: Arm | None = None, nursery: int = -1, wanted_pid: int = 0
    ) -> Ward:
        """Start a worker; by turns in the nurseries unless one is named."""
        orders = Orders(
            task=task,
            row=row,
            region=str(self.region),
            ledger=str(self.ledger_path),
            folder=str(self.folder),
            seed=self.random.randrange(2**32),
            arm=arm,
            num_rows=self.num_rows,
            pace_s=self.cast.pace_s,
            is_damaged=self.cast.is_damaged,
            lock_wait_s=_LOCK_WAIT_S,
        )
        if nursery < 0:
            nursery = row % len(self._nurseries)
        if self._equal_pids and not wanted_pid:
            wanted_pid = _FIRST_PID + _PIDS_APART * (row // len(self._nurseries))
        return Ward(self._nurseries[nursery], orders, wanted_pid=wanted_pid)

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.folder / "ledger"

    def pause(self, *others: Ward) -> None:
        """Let all survivors (and others) give back what they hold, and wait."""
        workers = [*self.survivors, *others]
        for worker in workers:
            worker.order(PAUSE)
        for worker in workers:
            worker.expect(PAUSE)

    def go_on(self, *others: Ward) -> None:
        """End a pause."""
        for worker in [*self.survivors, *others]:
            worker.order(GO)

    def end(self, *, is_corrupt: bool = False) -> None:
        """Let the survivors leave of their own will, and check once more."""
        for worker in self.survivors:
            worker.quit()
        self.survivors.clear()
        self.check(can_evict=True, is_corrupt=is_corrupt)
        assert [process.label for process in self.pool.stat().processes] == ["driver"]
        assert self.pool.claim_agent_role(), "a dead or departed agent keeps its role"

    def replace(self, row: int) -> None:
        """Put another process into the place of a dead survivor."""
        self.ledger.put(row, Tally.WORST_US, 0)
        self.survivors[row] = self.bear(self.survivors[row].task, row)
        self.survivors[row].expect(READY)

    @staticmethod
    def doze(time_s: float) -> None:
        """Let time pass."""
        select.select([], [], [], time_s)

    def try_to_reap(self) -> None:
        """Reap, unless somebody has stopped with the lock."""
        with contextlib.suppress(PoolLockTimeout):
            self.pool.reap()

    def leave(self) -> None:
        """Detach the driver, too."""
        self.pool.close()

    def come_back(self) -> None:
        """Attach the driver (again)."""
        self.pool = Pool.attach(
            self.region, extent_bytes=RECORD_BYTES, label="driver", lock_wait_s=_LOCK_WAIT_S
        )

    def num_equal_pids(self) -> int:
        """Process ids that attached processes of two namespaces have in common."""
        seen: dict[int, set[int]] = {}
        for process in self.pool.stat().processes:
            seen.setdefault(process.pid, set()).add(process.pid_namespace)
        return sum(len(namespaces) > 1 for namespaces in seen.values())

    def await_fencing(self, num_hung: int) -> None:
        """Reap until that many have been fenced as hung."""
        deadline = time.monotonic() + ANSWER_S
        while num_hung > 0:
            assert time.monotonic() < deadline, "nobody was fenced"
            self.doze(self.lease_s / 8)
            num_hung -= self.pool.reap().num_hung

    def await_more(self, what: Tally, number: int) -> None:
        """Wait until workers have counted that many more."""
        wanted = self.ledger.total(what) + number
        deadline = time.monotonic() + ANSWER_S
        while self.ledger.total(what) < wanted:
            assert time.monotonic() < deadline, f"{self.ledger.total(what)} of {wanted} {what.name}"
            self.doze(0.01)

    def outlast(self, victim: Ward) -> None:
        """Let a stopped process stay stopped beyond its lease; the survivors go on meanwhile.

        If it holds the allocation lock nobody can fence it, and everybody else only reads.
        """
        loads = self.ledger.total(Tally.LOADS)
        deadline = time.monotonic() + ANSWER_S
        patience = time.monotonic() + 2 * self.lease_s
        while True:
            assert time.monotonic() < deadline, f"{victim} was not fenced"
            self.doze(self.lease_s / 8)
            is_fenced = self._fences(victim)
            is_read = self.ledger.total(Tally.LOADS) > loads
            if is_read and (is_fenced or (is_fenced is None and time.monotonic() > patience)):
                return

    def _fences(self, victim: Ward) -> bool | None:
        """Whether the victim has no place in the table any more; None while the lock is taken."""
        try:
            self.pool.reap()
        except PoolLockTimeout:
            return None
        labels = [process.label for process in self.pool.stat().processes]
        return f"{victim.task}-{victim.row}" not in labels

    def forget(self) -> None:
        """The pool owes nobody anything: the driver has cleared it during a pause."""
        for row in range(self.num_rows):
            self.ledger.forget(row)

    def check(
        self, *, num_quarantined: int = 0, can_evict: bool = False, is_corrupt: bool = False
    ) -> None:
        """Everything that must hold while nobody does anything and the dead are reaped."""
        self.pool.reap()
        stat = self.pool.stat()
        assert (stat.num_pinned, stat.num_reserved, stat.num_limbo) == (0, 0, 0), stat
        kept = stat.num_free + stat.num_committed + stat.num_quarantined
        assert kept == stat.num_extents, stat
        assert stat.num_quarantined == num_quarantined
        report = self.pool.fsck(verify_data=True)
        assert report.is_clean, report
        assert report.num_records == stat.num_committed + stat.num_quarantined
        assert is_corrupt or stat.counters["corrupt_loads"] == 0
        self.num_missing += sum(self._missing(row) for row in range(self.num_rows))
        evictions = stat.counters["evictions"] if can_evict else 0
        assert self.num_missing <= evictions, f"{self.num_missing} acknowledged records are gone"
        self.check_waits()

    def check_waits(self) -> None:
        """Nobody waited longer than its deadline."""
        for worker in self.survivors:
            worst_s = self.ledger.tally(worker.row, Tally.WORST_US) / 1e6
            operation = OPERATIONS[self.ledger.tally(worker.row, Tally.WORST_OPERATION)]
            assert worst_s < _LOCK_WAIT_S + SCHEDULING_S, f"{worker}: {operation} {worst_s} s"

    def _missing(self, row: int) -> int:
        """Acknowledged records that have gone since the last check; the others are right."""
        indexes = self.ledger.acknowledged(row)
        missing = 0
        for index in indexes:
            lease = self.pool.match(keys_of(row, [index]), SHAPE)
            if lease.num_blocks == 0:
                missing += 1
                self.ledger.mark(row, index, acknowledged=False)
                continue
            outcome = self.pool.load(lease.refs, self._blocks.pages, [index])[0]
            assert outcome == LoadOutcome.LOADED, LoadOutcome(outcome)
            assert self._blocks.read(index) == record_of(row, index)
            lease.release()
        return missing
