"""One worker process: its pool, its row of the ledger, the two pipes to the driver."""

import os
import random
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvext.errors import PoolLockTimeout
from kvext.pool import Lease, Pool
from kvext.protocol.transfer import StoreOutcome
from tests.faults.ledger import Ledger, Tally
from tests.faults.orders import Orders
from tests.faults.records import KEYS_A_ROW, RECORD_BYTES, SHAPE, Blocks, key_of

__all__ = [
    "ANSWER_S",
    "GO",
    "MOST_HELD",
    "OPERATIONS",
    "PAUSE",
    "QUIT",
    "READY",
    "Dismissed",
    "Worker",
]

READY, PAUSE, GO, QUIT = b"r", b"p", b"g", b"q"
OPERATIONS = ("store", "load", "evict", "fill", "other")
"""What `Tally.WORST_OPERATION` indexes."""

ANSWER_S = 30.0
"""Deadline of everything that a worker is asked."""

_MOST_AT_ONCE = 4
MOST_HELD = 3
"""Leases that a reader keeps."""


class Dismissed(Exception):
    """The driver wants the worker to end."""


class Worker:
    """One process: its pool, its row of the ledger, its two pipes."""

    def __init__(self, orders: Orders) -> None:
        """Open everything but the pool."""
        self.orders = orders
        self.row = orders.row
        self.random = random.Random(orders.seed)  # noqa: S311 - a test's draws
        self.ledger = Ledger(Path(orders.ledger))
        self.blocks = Blocks(_MOST_AT_ONCE)
        self.held: list[Lease] = []
        self._in = os.open(Path(orders.folder, f"{orders.row}.in"), os.O_RDWR)
        self._out = os.open(Path(orders.folder, f"{orders.row}.out"), os.O_RDWR)
        self._pool: Pool | None = None

    @property
    def pool(self) -> Pool:
        """The pool, attached."""
        assert self._pool is not None
        return self._pool

    def attach(self) -> None:
        """Attach as an engine."""
        self._pool = Pool.attach(
            Path(self.orders.region),
            extent_bytes=RECORD_BYTES,
            label=f"{self.orders.task}-{self.row}",
            lock_wait_s=self.orders.lock_wait_s,
        )

    def say(self, word: bytes) -> None:
        """Answer the driver."""
        os.write(self._out, word)

    def obey(self, wait_s: float = 0.0) -> None:
        """Follow a command of the driver, if there is one within `wait_s`."""
        if not select.select([self._in], [], [], wait_s)[0]:
            return
        command = os.read(self._in, 1)
        if command == QUIT:
            raise Dismissed
        assert command == PAUSE
        self.let_go()
        if self._pool is not None:  # whoever was fenced comes back at its next call
            self._pool.match(key_of(self.row, 0), SHAPE).release()
            self._settle(self._pool)
        self.say(PAUSE)
        self.take(GO)

    def _settle(self, pool: Pool) -> None:
        """Have the lock once: with it goes back what was given up while it was taken."""
        deadline_s = time.monotonic() + ANSWER_S / 2
        while True:
            try:
                pool.reap()
            except PoolLockTimeout:  # who had it for too long has just been killed or continued
                if time.monotonic() > deadline_s:
                    raise
            else:
                return

    def take(self, wanted: bytes) -> None:
        """Wait for a command, which is that one or the last."""
        command = os.read(self._in, 1)
        if command == QUIT:
            raise Dismissed
        assert command == wanted, command

    def let_go(self) -> None:
        """Give all pins back."""
        while self.held:
            self.held.pop().release()

    def end(self) -> None:
        """Leave as one should."""
        self.let_go()
        if self._pool is not None:
            self._pool.close()
        self.say(QUIT)

    @contextmanager
    def timed(self, operation: str) -> Iterator[None]:
        """Note how long an operation took, if it was the longest so far."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            took_us = (time.monotonic_ns() - start) // 1000
            if took_us > self.ledger.tally(self.row, Tally.WORST_US):
                self.ledger.put(self.row, Tally.WORST_US, took_us)
                self.ledger.put(self.row, Tally.WORST_OPERATION, OPERATIONS.index(operation))
            self.ledger.add(self.row, Tally.OPERATIONS)

    def some_indexes(self) -> list[int]:
        """A few neighbouring keys."""
        start = self.random.randrange(KEYS_A_ROW)
        return [(start + i) % KEYS_A_ROW for i in range(self.random.randint(1, _MOST_AT_ONCE))]

    def count(self, outcome: StoreOutcome) -> None:
        """Count what became of one block that was to be stored."""
        if outcome is StoreOutcome.STORED:
            self.ledger.add(self.row, Tally.STORES)
        elif outcome is StoreOutcome.FENCED:
            self.ledger.add(self.row, Tally.FENCED)
        elif outcome is StoreOutcome.LOCK_TIMEOUT:
            self.ledger.add(self.row, Tally.LOCK_TIMEOUTS)
        elif outcome.is_rejected:
            self.ledger.add(self.row, Tally.REJECTED)
