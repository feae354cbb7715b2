"""Who was fenced cannot harm anybody; who lives is never fenced, whatever the clocks say."""

import os
import select
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvext.pool import Pool
from kvext.protocol.transfer import StoreOutcome
from tests.faults.anatomy import CREATED_AT
from tests.faults.arena import ANSWER_S, Arena
from tests.faults.conftest import refused
from tests.faults.ledger import Tally
from tests.faults.nursery import Nursery
from tests.faults.orders import Arm
from tests.faults.records import (
    KEYS_A_ROW,
    RECORD_BYTES,
    SHAPE,
    Blocks,
    key_of,
    namespace_of,
    record_of,
)
from tests.faults.worker import GO, PAUSE, READY

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

TIGHT_BYTES = 330_000
LEASE_S = 0.2


@pytest.fixture
def quiet(nursery: Nursery, tmp_path: Path) -> Iterator[Arena]:
    """A small pool that nobody but the driver and the test's own workers use."""
    with Arena(
        tmp_path / "arena",
        [nursery],
        region_bytes=TIGHT_BYTES,
        num_writers=0,
        num_readers=0,
        lease_s=LEASE_S,
    ) as arena:
        yield arena


def store_one(pool: Pool, row: int, index: int) -> StoreOutcome:
    blocks = Blocks(1)
    blocks.write(0, record_of(row, index))
    outcomes = pool.store(key_of(row, index), SHAPE, namespace_of(row), blocks.pages, [0])
    return StoreOutcome(outcomes[0])


def fill_pool(pool: Pool, row: int, num_records: int) -> int:
    """Store that many records; how many of them were not there."""
    outcomes = [store_one(pool, row, index) for index in range(num_records)]
    return outcomes.count(StoreOutcome.STORED)


@pytest.mark.parametrize(
    "arm",
    [
        None,
        Arm("store.reserved", 1, signal.SIGSTOP),
        Arm("store.copied", 1, signal.SIGSTOP),
        Arm("store.checksummed", 1, signal.SIGSTOP),
    ],
    ids=["between calls", "before the copy", "before the checksum", "before the commit"],
)
def test_stalled_writer_that_wakes_after_fencing_changes_nothing(
    arm: Arm | None, quiet: Arena
) -> None:
    pool = quiet.pool
    writer = quiet.bear("late_writer", 0, arm=arm)
    writer.expect(READY)
    assert writer.fate(ANSWER_S).what == "stopped"
    reserved = pool.stat().num_reserved
    assert reserved >= 1
    quiet.await_fencing(1)
    assert (pool.num_limbo, pool.stat().num_reserved) == (reserved, 0)
    room = pool.num_extents - reserved
    assert fill_pool(pool, 1, KEYS_A_ROW) == KEYS_A_ROW
    assert fill_pool(pool, 2, KEYS_A_ROW) == KEYS_A_ROW
    assert pool.stat().num_committed == min(room, 2 * KEYS_A_ROW)
    before = stored_bytes(pool)
    writer.signal(signal.SIGCONT)
    writer.expect(READY)
    assert quiet.ledger.tally(0, Tally.FENCED) == reserved
    assert quiet.ledger.tally(0, Tally.STORES) == 0
    assert stored_bytes(pool) == before
    writer.order(PAUSE)
    writer.expect(PAUSE)
    pool.reap()
    assert pool.num_limbo == 0
    writer.kill()
    quiet.check(can_evict=True)


def stored_bytes(pool: Pool) -> dict[bytes, bytes]:
    """All records there are, by key; their bytes are right."""
    found = {}
    for row in (1, 2):
        for index in range(2 * KEYS_A_ROW):
            lease = pool.match(key_of(row, index), SHAPE)
            if lease.num_blocks:
                found[key_of(row, index)] = bytes(pool.record(lease.refs)[:RECORD_BYTES])
                assert found[key_of(row, index)] == record_of(row, index)
            lease.release()
    return found


def test_limbo_ends_when_the_stalled_writer_dies(quiet: Arena) -> None:
    writer = quiet.bear("late_writer", 0)
    writer.expect(READY)
    assert writer.fate(ANSWER_S).what == "stopped"
    quiet.await_fencing(1)
    assert quiet.pool.num_limbo == 1
    writer.kill()
    assert quiet.pool.reap().num_freed == 1
    quiet.check()


def test_new_process_with_the_pid_of_a_dead_one_inherits_nothing(
    twins: tuple[Nursery, Nursery], tmp_path: Path
) -> None:
    with Arena(
        tmp_path / "arena", twins, region_bytes=TIGHT_BYTES, num_writers=1, num_readers=1
    ) as arena:
        first = arena.bear("holder", arena.victim_row, nursery=0, wanted_pid=4321)
        assert first.pid == 4321
        first.expect(READY)
        held = arena.pool.stat()
        assert held.num_pinned > 0
        assert held.num_reserved > 0
        first.kill()
        second = arena.bear("everything", arena.victim_row, nursery=0, wanted_pid=4321)
        assert second.pid == 4321
        second.expect(READY)
        arena.pause(second)
        arena.check(can_evict=True)
        assert sum(process.pid == 4321 for process in arena.pool.stat().processes) <= 1
        arena.go_on(second)
        second.kill()
        arena.pause()
        arena.check(can_evict=True)
        arena.go_on()
        arena.end()


def test_clocks_that_differ_fence_nobody_alive(nursery: Nursery, tmp_path: Path) -> None:
    """Processes in time namespaces: their clocks are days ahead of the others'."""
    ahead = ("unshare", "--time", "--fork", "--kill-child")
    offsets = [
        (*ahead, "--boottime", str(seconds), "--monotonic", str(seconds))
        for seconds in (1_000_000, 50)
    ]
    if reason := refused(*offsets[0]):
        pytest.skip(f"no time namespaces here: {reason}")
    lease_s = 1.0
    with (
        Nursery(tmp_path, through=offsets[0]) as one,
        Nursery(tmp_path, through=offsets[1]) as other,
        Arena(
            tmp_path / "arena",
            [nursery, one, other],
            region_bytes=2 << 20,
            num_writers=3,
            num_readers=3,
            lease_s=lease_s,
        ) as arena,
    ):
        deadline = time.monotonic() + 4 * lease_s
        while time.monotonic() < deadline:
            select.select([], [], [], lease_s / 8)
            assert arena.pool.reap().num_hung == 0
        assert arena.pool.stat().counters["fenced_processes"] == 0
        arena.pause()
        arena.check()
        arena.go_on()
        arena.end()


@pytest.mark.parametrize("jump_s", [-400 * 86400, 86400, 40 * 365 * 86400])
def test_wall_clock_that_jumps_costs_no_record(jump_s: int, quiet: Arena) -> None:
    """Only the age of accesses is told by the wall clock: play a jump by moving its origin."""
    pool = quiet.pool
    assert fill_pool(pool, 1, 10) == 10
    with quiet.region.open("r+b") as region:
        created_s = struct.unpack("<Q", os.pread(region.fileno(), 8, CREATED_AT))[0]
        os.pwrite(region.fileno(), struct.pack("<Q", max(0, created_s + jump_s)), CREATED_AT)
    assert len(stored_bytes(pool)) == 10
    assert fill_pool(pool, 2, KEYS_A_ROW) == KEYS_A_ROW
    assert len(pool.records().lengths) == pool.stat().num_committed
    quiet.check(can_evict=True)


def test_reaper_that_was_stopped_itself_convicts_nobody(nursery: Nursery, tmp_path: Path) -> None:
    with Arena(
        tmp_path / "arena",
        [nursery],
        region_bytes=2 << 20,
        num_writers=1,
        num_readers=1,
        lease_s=1.0,
    ) as arena:
        reaper = arena.bear("reaper", arena.victim_row)
        reaper.expect(READY)
        arena.leave()  # nobody else reaps meanwhile
        reaper.signal(signal.SIGSTOP)
        select.select([], [], [], 2.5 * arena.lease_s)
        reaper.signal(signal.SIGCONT)
        for _ in range(20):
            reaper.order(PAUSE)
            reaper.expect(PAUSE)
            reaper.order(GO)
        reaper.quit()
        arena.come_back()
        assert arena.pool.stat().counters["fenced_processes"] == 0
        arena.end()


def test_process_that_asks_to_reap_does_not_convict_itself(quiet: Arena) -> None:
    pool = quiet.pool
    fill_pool(pool, 1, 1)
    lease = pool.match(key_of(1, 0), SHAPE)
    select.select([], [], [], 3 * LEASE_S)  # silent beyond its lease although it holds a pin
    assert pool.reap().num_hung == 0
    assert pool.stat().num_pinned == 1
    lease.release()


def test_death_in_mid_eviction_leaves_the_evicted_counted(quiet: Arena) -> None:
    pool = quiet.pool
    stored, index = 0, 0
    for label in ("evict.vacated", "evict.counted", "free.owner_cleared", "free.linked"):
        while pool.num_free > 0:
            stored += store_one(pool, 1, index) is StoreOutcome.STORED
            index += 1
        victim = quiet.bear("late_writer", 0, arm=Arm(label, 1, signal.SIGKILL))
        assert victim.fate(ANSWER_S).what == "killed", victim.complaints()
        victim.bury()
        pool.reap()
        assert len(stored_bytes(pool)) >= stored - pool.stat().counters["evictions"], label
    quiet.check(can_evict=True)
