"""fsck finds what is broken in the tables, names it, and mends it without serving wrong bytes."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kvext.pool import Pool, ProblemKind
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE, EngineMemory, key_of
from tests.pool.tables import Tables

NUMBERS = range(6)


@pytest.fixture
def filled(pool: Pool) -> Pool:
    memory = EngineMemory()
    for number in NUMBERS:
        memory.write(0, seed=number)
        pool.store(key_of(number), SHAPE, NAMESPACE, memory.pages, [0])
    return pool


def readable(pool: Pool) -> int:
    """Numbers whose records can be loaded; each must have its own bytes."""
    read, expected = EngineMemory(), EngineMemory()
    count = 0
    for number in NUMBERS:
        lease = pool.match(key_of(number), SHAPE)
        if lease.num_blocks and set(pool.load(lease.refs, read.pages, [0])) == {LoadOutcome.LOADED}:
            expected.write(0, seed=number)
            assert read.read(0) == expected.read(0)
            count += 1
        lease.release()
    return count


def test_sound_pool_is_clean_by_whomever_it_is_checked(region: Path, filled: Pool) -> None:
    assert filled.fsck(verify_data=True).is_clean
    with Pool.attach(region) as observer:
        report = observer.fsck(verify_data=True)
    assert (report.is_clean, report.num_records) == (True, len(NUMBERS))


def test_pool_that_no_engine_has_used_is_clean(region: Path) -> None:
    with Pool.attach(region) as observer:
        assert observer.fsck(repair=True, verify_data=True).is_clean


@pytest.mark.parametrize(
    ("field", "value", "kind", "num_lost"),
    [
        ("slot.state", 9, ProblemKind.BAD_STATE, 1),
        ("slot.state", 3, ProblemKind.BAD_STATE, 1),
        ("slot.extent", 10**6, ProblemKind.BAD_EXTENT, 1),
        ("slot.length", 2**32 - 1, ProblemKind.BAD_LENGTH, 1),
        ("slot.name_space", 7, ProblemKind.BAD_NAMESPACE, 1),
        ("slot.key", 12345, ProblemKind.UNREACHABLE, 1),
        ("extent.slot", 3, ProblemKind.BACK_REFERENCE, 0),
        ("extent.owner_epoch", 0, ProblemKind.FREE_LIST, 1),
        ("super.free_head", 0, ProblemKind.LEAKED, 0),
        ("super.free_head", 10**6, ProblemKind.FREE_LIST, 0),
        ("super.num_free", 1, ProblemKind.COUNT, 0),
        ("namespace.num_extents", 77, ProblemKind.COUNT, 0),
        ("super.epoch", 0, ProblemKind.EPOCH, 0),
    ],
)
def test_damaged_table_is_named_and_mended(
    region: Path, filled: Pool, field: str, value: int, kind: ProblemKind, num_lost: int
) -> None:
    tables = Tables(region)
    tables.write(field, value, key=key_of(2))
    found = filled.fsck()
    assert kind in {problem.kind for problem in found.problems}
    assert found.num_repaired == 0
    mended = filled.fsck(repair=True)
    assert mended.num_repaired == len(mended.problems)
    assert filled.fsck(verify_data=True).is_clean
    assert readable(filled) == len(NUMBERS) - num_lost
    assert filled.num_free == filled.num_extents - len(NUMBERS) + num_lost


def test_two_slots_with_one_extent_keep_one(region: Path, filled: Pool) -> None:
    tables = Tables(region)
    tables.write("slot.extent", tables.read("slot.extent", key=key_of(1)), key=key_of(2))
    kinds = {problem.kind for problem in filled.fsck(repair=True).problems}
    assert ProblemKind.BAD_EXTENT in kinds
    assert filled.fsck().is_clean
    assert readable(filled) in (len(NUMBERS) - 1, len(NUMBERS) - 2)


def test_free_list_that_names_a_record_never_gives_its_extent_away(
    region: Path, filled: Pool
) -> None:
    tables = Tables(region)
    tables.write("super.free_head", tables.read("slot.extent", key=key_of(2)) + 1)
    memory = EngineMemory()
    memory.write(0, seed=40)
    filled.store(key_of(40), SHAPE, NAMESPACE, memory.pages, [0])
    assert readable(filled) == len(NUMBERS)
    assert filled.fsck(verify_data=True).is_clean


_DIES = """
import os, sys
from pathlib import Path
from kvext.pool import Pool
from tests.pool.engine_memory import NAMESPACE, RECORD_BYTES, SHAPE
pool = Pool.attach(Path(sys.argv[1]), extent_bytes=RECORD_BYTES, label="dies")
for key in sys.argv[2:]:
    pool.reserve(bytes.fromhex(key), SHAPE, RECORD_BYTES, NAMESPACE)
os._exit(0)
"""


def test_record_stored_while_the_free_list_is_mended_can_be_found(
    region: Path, filled: Pool
) -> None:
    home = (50).to_bytes(8, "little")
    first, second, third = (home + bytes([number]) * 24 for number in (1, 2, 3))
    command = [sys.executable, "-c", _DIES, str(region), first.hex(), second.hex()]
    subprocess.run(command, check=True, timeout=30)
    tables = Tables(region)
    tables.write("super.free_head", tables.read("slot.extent", key=key_of(2)) + 1)
    # Mending the list takes back the reservations before it, and frees their slots.
    stored = filled.store(third, SHAPE, NAMESPACE, EngineMemory().pages, [0])
    assert stored[0] == StoreOutcome.STORED
    assert filled.lookup(third, SHAPE) == b"\1"
    assert filled.fsck().is_clean


def test_flipped_bit_in_a_record_is_found_only_by_reading_the_data(
    filled: Pool,
) -> None:
    lease = filled.match(key_of(3), SHAPE)
    filled.record(lease.refs)[RECORD_BYTES - 1] ^= 16
    lease.release()
    assert filled.fsck().is_clean
    report = filled.fsck(verify_data=True, repair=True)
    assert [problem.kind for problem in report.problems] == [ProblemKind.CHECKSUM]
    assert filled.stat().num_quarantined == 1
    assert readable(filled) == len(NUMBERS) - 1


def test_pins_of_a_row_without_a_process_are_void_and_found(region: Path, filled: Pool) -> None:
    tables = Tables(region)
    tables.write_raw(tables.pin_at(process=9, extent=0), struct.pack("<H", 3))
    report = filled.fsck(repair=True)
    assert [problem.kind for problem in report.problems] == [ProblemKind.VOID_PINS]
    assert filled.fsck().is_clean
