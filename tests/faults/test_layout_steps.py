"""Steps that a pool under load never passes: laying out, quarantine, repair."""

import os
import signal
from pathlib import Path

import pytest

from kvext.cxl import create_region
from kvext.pool import Pool
from kvext.protocol.transfer import LoadOutcome
from tests.faults.arena import ANSWER_S, Arena, Worker
from tests.faults.conftest import Toll
from tests.faults.ledger import Ledger
from tests.faults.nursery import Fate, Nursery
from tests.faults.orders import Arm, Orders
from tests.faults.records import RECORD_BYTES, SHAPE, Blocks, key_of
from tests.faults.steps import LABELS
from tests.faults.worker import PAUSE, READY

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

KILLS = 10


@pytest.mark.parametrize("label", [label for label in LABELS if label.startswith("format.")])
def test_death_while_laying_the_tables_out_leaves_a_pool_for_the_next(
    label: str, nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    Ledger.create(tmp_path / "ledger")
    region = tmp_path / "kvext-new.pool"
    create_region(region, 1 << 20, Pool.initialise)

    def bear(row: int, arm: Arm | None = None) -> Worker:
        return Worker(
            nursery,
            Orders(
                task="writer",
                row=row,
                region=str(region),
                ledger=str(tmp_path / "ledger"),
                folder=str(tmp_path),
                arm=arm,
            ),
        )

    for round_number in range(KILLS):
        victim = bear(0, Arm(label, 1, signal.SIGKILL))
        assert victim.fate(ANSWER_S) == Fate("killed", signal.SIGKILL)
        victim.bury()
        toll.count(label, signal.SIGKILL)
        others = [bear(row) for row in (1, 2)]
        for other in others:
            other.expect(READY)
            other.order(PAUSE)
            other.expect(PAUSE)
        with Pool.attach(region, extent_bytes=RECORD_BYTES) as pool:
            assert pool.fsck(verify_data=True).is_clean
            stat = pool.stat()
            assert stat.num_free + stat.num_committed == stat.num_extents
        for other in others:
            other.kill()
        # Unformatted again for the next round:
        region.unlink()
        create_region(region, (1 << 20) + 4096 * round_number, Pool.initialise)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_death_while_a_corrupt_record_is_set_apart(
    number: signal.Signals, nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    label = "load.quarantined"
    with Arena(tmp_path / "arena", [nursery], region_bytes=2 << 20, lease_s=0.12) as arena:
        for round_number in range(1, KILLS + 1):
            victim = arena.bear("spoiler", arena.victim_row, arm=Arm(label, 1, number))
            assert victim.fate(ANSWER_S).number == number, victim.complaints()
            toll.count(label, number)
            if number is signal.SIGSTOP:
                arena.outlast(victim)
            victim.kill()
            arena.pause()
            arena.check(num_quarantined=round_number, is_corrupt=True)
            arena.go_on()
        arena.pause()
        arena.pool.clear()
        arena.forget()
        arena.check(is_corrupt=True, can_evict=True)
        arena.go_on()
        arena.end(is_corrupt=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_death_during_a_repair_leaves_something_that_can_be_repaired(
    number: signal.Signals, nursery: Nursery, tmp_path: Path, toll: Toll
) -> None:
    with Arena(tmp_path / "arena", [nursery], region_bytes=2 << 20, lease_s=0.12) as arena:
        for _ in range(KILLS):
            arena.pause()
            with arena.region.open("r+b") as region:  # lose the free list
                os.pwrite(region.fileno(), bytes(8), 208)
            assert not arena.pool.fsck().is_clean
            victim = arena.bear("repairer", arena.victim_row, arm=Arm("repair.begun", 1, number))
            assert victim.fate(ANSWER_S).number == number, victim.complaints()
            toll.count("repair.begun", number)
            arena.go_on()
            if number is signal.SIGSTOP:
                arena.outlast(victim)
            victim.kill()
            arena.pause()
            arena.pool.fsck(repair=True)
            arena.check()
            arena.go_on()
        arena.end()


def test_corrupt_record_is_set_apart_and_its_space_comes_back(
    nursery: Nursery, tmp_path: Path
) -> None:
    with Arena(tmp_path / "arena", [nursery], region_bytes=2 << 20) as arena:
        worker = arena.bear("spoiler", arena.victim_row)
        worker.expect(READY)
        worker.kill()
        arena.pause()
        arena.check(num_quarantined=1, is_corrupt=True)
        lease = arena.pool.match(key_of(arena.victim_row, 0), SHAPE)
        assert arena.pool.load(lease.refs, Blocks(1).pages, [0] * lease.num_blocks) == b""
        assert arena.pool.clear().num_dropped > 0
        arena.forget()
        arena.check(is_corrupt=True, can_evict=True)
        assert arena.pool.stat().counters["corrupt_loads"] == 1
        assert LoadOutcome.CORRUPT == 2
        arena.go_on()
        arena.end(is_corrupt=True)
