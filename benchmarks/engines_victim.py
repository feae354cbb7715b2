"""A process that dies at the worst moment for the others of its pool, for `engines_stall.py`.

It is attached as an engine is, pins every block that there is, and is killed inside the allocation
lock, with the tables marked as being changed.
"""

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from kvext.pool import Pages, Pool, _core
from kvext.protocol.layout import RecordShape

__all__ = ["Victim", "victim"]

START_DEADLINE_S = 60.0
DEATH_DEADLINE_S = 10.0
DEADLY_STEP = "lock.marked"
NAMESPACE = b"v" * 32


class Victim:
    """One such process, ready to die."""

    def __init__(self, process: "multiprocessing.context.SpawnProcess", orders: Connection) -> None:
        """Wrap a started process."""
        self._process = process
        self._orders = orders

    def wait_until_attached(self) -> int:
        """Returns how many blocks it has pinned."""
        if not self._orders.poll(START_DEADLINE_S):
            raise TimeoutError("the victim did not attach")
        num_pins: int = self._orders.recv()
        return num_pins

    def die(self) -> None:
        """Let it be killed where it holds the lock; returns when it is dead."""
        self._orders.send(None)
        self._process.join(DEATH_DEADLINE_S)
        assert self._process.exitcode == -signal.SIGKILL, "the victim did not die in the lock"


@contextmanager
def victim(region: Path, block_tokens: int) -> Iterator[Victim]:
    """Start one; nothing of it is left afterwards."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_live, args=(region, block_tokens, theirs))
    process.start()
    theirs.close()
    try:
        yield Victim(process, ours)
    finally:
        process.kill()
        process.join()


def _live(region: Path, block_tokens: int, orders: Connection) -> None:
    with Pool.attach(region) as observer:
        record_bytes = observer.extent_bytes
        keys = bytes(observer.records().keys)
    shape = RecordShape(block_tokens)
    memory = np.zeros(record_bytes, np.uint8)
    pages = Pages([memory.ctypes.data], [record_bytes], 1)
    with Pool.attach(region, extent_bytes=record_bytes, label="victim") as pool:
        leases = [pool.match(keys[at : at + 32], shape) for at in range(0, len(keys), 32)]
        orders.send(sum(lease.num_blocks for lease in leases))
        orders.recv()
        _core.arm_step(DEADLY_STEP, 1, int(signal.SIGKILL))
        pool.store(b"k" * 32, shape, NAMESPACE, pages, [0])
