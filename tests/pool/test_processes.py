"""Several processes and one pool: sharing, death, hanging, forking."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

import pytest

from kvext.errors import PoolDetached, PoolLockTimeout, PoolUnusable
from kvext.pool import Pool, Reservation
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of

_spawn = multiprocessing.get_context("spawn")
_WAIT_S = 30.0


class Other:
    """Another process that runs `work(region, pipe)`; killed and reaped at the end."""

    def __init__(self, work: Callable[[Path, Connection], None], region: Path) -> None:
        self.pipe, theirs = _spawn.Pipe()
        self.process = _spawn.Process(target=work, args=(region, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def __enter__(self) -> Self:
        assert self.next() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def next(self) -> object:
        assert self.pipe.poll(_WAIT_S), "the other process is silent"
        return self.pipe.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(_WAIT_S)
        assert self.process.exitcode is not None


def store_anything(pool: Pool, number: int) -> StoreOutcome:
    outcome = pool.store(key_of(number), SHAPE, NAMESPACE, EngineMemory().pages, [0])
    return StoreOutcome(outcome[0])


def store_one_and_wait(region: Path, pipe: Connection) -> None:
    pool = Pool.attach(region, extent_bytes=RECORD_BYTES, label="other")
    memory = EngineMemory()
    memory.write(1, seed=1)
    assert pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])[0] == StoreOutcome.STORED
    pipe.send("ready")
    pipe.recv()


def pin_and_reserve_and_wait(region: Path, pipe: Connection) -> None:
    pool = Pool.attach(region, extent_bytes=RECORD_BYTES, label="other")
    memory = EngineMemory()
    pool.store(key_of(1), SHAPE, NAMESPACE, memory.pages, [1])
    lease = pool.match(key_of(1), SHAPE)
    reservation = pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE)
    assert isinstance(reservation, Reservation)
    pipe.send("ready")
    pipe.recv()
    lease.release()


def store_for_ever(region: Path, pipe: Connection) -> None:
    pool = Pool.attach(region, extent_bytes=RECORD_BYTES, label="other")
    memory = EngineMemory()
    pipe.send("ready")
    number = 0
    while True:
        number = (number + 1) % 500
        memory.write(number % memory.num_blocks, seed=number)
        pool.store(key_of(number), SHAPE, NAMESPACE, memory.pages, [number % memory.num_blocks])


def test_another_process_reads_the_same_bytes(pool: Pool, region: Path) -> None:
    memory = EngineMemory()
    memory.write(0, seed=1)
    with Other(store_one_and_wait, region):
        lease = pool.match(key_of(1), SHAPE)
        assert pool.load(lease.refs, memory.pages, [5])[0] == LoadOutcome.LOADED
        assert memory.read(5) == memory.read(0)
        assert {process.label for process in pool.stat().processes} == {"test", "other"}


def test_blocks_survive_the_kill_of_their_writer(pool: Pool, region: Path) -> None:
    with Other(store_one_and_wait, region) as other:
        other.kill()
        assert pool.match(key_of(1), SHAPE).num_blocks == 1
        assert [process.label for process in pool.stat().processes] == ["test"]


def test_pins_and_reservations_of_the_dead_are_given_back(pool: Pool, region: Path) -> None:
    with Other(pin_and_reserve_and_wait, region) as other:
        assert pool.reap().num_freed == 0, "a living process keeps what it holds"
        assert pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE) is StoreOutcome.EXISTS
        assert pool.stat().num_pinned == 1
        other.kill()
        assert pool.reap().num_freed == 1
        stat = pool.stat()
        assert (stat.num_pinned, stat.num_reserved) == (0, 0)
        assert isinstance(pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE), Reservation)


def test_writing_a_key_that_a_dead_process_reserved_needs_no_reaper(
    pool: Pool, region: Path
) -> None:
    with Other(pin_and_reserve_and_wait, region) as other:
        other.kill()
        made = pool.reserve(key_of(2), SHAPE, RECORD_BYTES, NAMESPACE)
        assert isinstance(made, Reservation)


def test_pins_of_the_dead_do_not_block_eviction(pool: Pool, region: Path) -> None:
    with Other(pin_and_reserve_and_wait, region) as other:
        leases = []
        for number in range(100, 100 + pool.stat().num_extents - 2):
            assert store_anything(pool, number) is StoreOutcome.STORED
            leases.append(pool.match(key_of(number), SHAPE))
        assert store_anything(pool, 900) is StoreOutcome.NO_SPACE
        other.kill()
        assert store_anything(pool, 900) is StoreOutcome.STORED


def test_kill_in_the_middle_of_stores_leaves_only_whole_blocks(pool: Pool, region: Path) -> None:
    reader, expected = EngineMemory(), EngineMemory(1)
    for _ in range(10):
        with Other(store_for_ever, region) as other:
            before = pool.stat().counters["stores"]
            while pool.stat().counters["stores"] < before + 50:
                os.sched_yield()
            other.kill()
        pool.reap()
        for number in range(500):
            lease = pool.match(key_of(number), SHAPE)
            if lease.num_blocks:
                assert pool.load(lease.refs, reader.pages, [0])[0] == LoadOutcome.LOADED
                expected.write(0, seed=number)
                assert reader.read(0) == expected.read(0)
            lease.release()
        stat = pool.stat()
        assert (stat.num_reserved, stat.num_pinned) == (0, 0)
        assert stat.num_free + stat.num_committed + stat.num_quarantined == stat.num_extents
        assert stat.counters["corrupt_loads"] == 0


def test_readers_never_see_torn_blocks_while_others_write_and_evict(
    pool: Pool, region: Path
) -> None:
    reader, expected = EngineMemory(), EngineMemory(1)
    loaded = 0
    with Other(store_for_ever, region), Other(store_for_ever, region):
        deadline = time.monotonic() + _WAIT_S
        while loaded < 500 and time.monotonic() < deadline:
            for number in range(500):
                lease = pool.match(key_of(number), SHAPE)
                if lease.num_blocks:
                    assert pool.load(lease.refs, reader.pages, [0])[0] == LoadOutcome.LOADED
                    expected.write(0, seed=number)
                    assert reader.read(0) == expected.read(0)
                    loaded += 1
                lease.release()
    assert loaded >= 500
    assert pool.stat().counters["evictions"] > 0


def clear_for_ever(region: Path, pipe: Connection) -> None:
    pool = Pool.attach(region, extent_bytes=RECORD_BYTES, label="other")
    pipe.send("ready")
    while True:
        pool.clear()


def test_pinned_block_can_be_loaded_whatever_others_evict(pool: Pool, region: Path) -> None:
    memory = EngineMemory()
    store_anything(pool, 0)
    lease = pool.match(key_of(0), SHAPE)
    with Other(clear_for_ever, region):
        for _ in range(5000):
            assert pool.load(lease.refs, memory.pages, [1])[0] == LoadOutcome.LOADED


HOLD_THE_LOCK = """
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
allocation_lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 60, 1, 0)
fcntl.fcntl(fd, fcntl.F_OFD_SETLK, allocation_lock)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def lock_held_elsewhere(region: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(region)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.send_signal(signal.SIGKILL)


def test_closing_while_the_lock_is_held_leaves_everything_to_the_reaper(region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as survivor:
        pool = Pool.attach(region, extent_bytes=RECORD_BYTES, lock_wait_s=0.05)
        store_anything(pool, 0)
        lease = pool.match(key_of(0), SHAPE)
        reservation = pool.reserve(key_of(1), SHAPE, RECORD_BYTES, NAMESPACE)
        assert isinstance(reservation, Reservation)
        with lock_held_elsewhere(region):
            pool.close()
        assert store_anything(survivor, 1) is StoreOutcome.STORED
        stat = survivor.stat()
        assert (stat.num_pinned, stat.num_reserved) == (0, 0)
        assert stat.num_free + stat.num_committed == stat.num_extents
        lease.release()


def test_hung_lock_holder_costs_a_bounded_wait_and_a_counted_refusal(region: Path) -> None:
    with Pool.attach(region, extent_bytes=RECORD_BYTES, lock_wait_s=0.05) as pool:
        store_anything(pool, 0)
        with lock_held_elsewhere(region):
            assert store_anything(pool, 1) is StoreOutcome.LOCK_TIMEOUT
            assert pool.match(key_of(0), SHAPE).num_blocks == 1, "reading needs no lock"
            with pytest.raises(PoolLockTimeout):
                pool.clear()
        assert pool.stat().counters["rejected_lock_timeout"] == 1
        assert store_anything(pool, 1) is StoreOutcome.STORED


def test_forked_child_forgets_the_pool_and_leaves_the_parents_locks_alone(
    pool: Pool, region: Path
) -> None:
    lease = pool.match(key_of(0), SHAPE)
    child = os.fork()
    if child == 0:
        try:
            pool.match(key_of(0), SHAPE)
        except PoolDetached:
            lease.release()
            pool.close()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    with Pool.attach(region, extent_bytes=RECORD_BYTES) as other:
        assert len(other.stat().processes) == 2
        assert other.reap().num_freed == 0
    assert pool.match(key_of(0), SHAPE).num_blocks == 0


def test_child_forked_while_a_thread_uses_the_pool_does_not_hang(pool: Pool) -> None:
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            pool.stat()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        children = [_forked_match(pool) for _ in range(20)]
    finally:
        done.set()
        looking.join()
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert [os.waitstatus_to_exitcode(status) for status in statuses] == [0] * 20


def _forked_match(pool: Pool) -> int:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)  # a child that hangs is killed
        try:
            pool.match(key_of(0), SHAPE)
        except PoolDetached:
            os._exit(0)
        os._exit(1)
    return child


def test_more_processes_than_the_table_holds_are_refused(region: Path) -> None:
    pools = [Pool.attach(region, extent_bytes=RECORD_BYTES) for _ in range(128)]
    try:
        with pytest.raises(PoolUnusable, match="128 processes are attached"):
            Pool.attach(region, extent_bytes=RECORD_BYTES)
    finally:
        for pool in pools:
            pool.close()
    Pool.attach(region, extent_bytes=RECORD_BYTES).close()
