"""What a prober does: damage a copy of a region, use it, let fsck name and mend it."""

from pathlib import Path

import msgspec

from kvext.errors import PoolError
from kvext.pool import FsckReport, Pool, Reservation
from kvext.protocol.transfer import LoadOutcome, StoreOutcome
from tests.faults.records import (
    KEYS_A_ROW,
    RECORD_BYTES,
    SHAPE,
    Blocks,
    key_of,
    namespace_of,
    record_of,
)

__all__ = ["Damage", "Finding", "probe"]

_ROWS = 3
_NEW_ROW = 4


class Damage(msgspec.Struct, frozen=True):
    """One bit to flip in a copy of an image."""

    image: str
    at: int
    bit: int
    is_attached: bool
    """Whether a process is attached before the bit flips, rather than after."""


class Finding(msgspec.Struct, frozen=True):
    """What came of it."""

    refusal: str = ""
    """Why the region could not be attached."""
    problems: list[str] = []
    num_wrong: int = 0
    num_loaded: int = 0
    num_corrupt: int = 0
    left: list[str] = []
    """What was still wrong after a repair."""


def probe(damage: Damage, region: Path) -> Finding:
    """Carry it out."""
    region.write_bytes(Path(damage.image).read_bytes())
    try:
        if damage.is_attached:
            with _attached(region) as pool:
                _flip(region, damage)
                named = _named(region)
                wrong, loaded, corrupt = _use(pool)
        else:
            _flip(region, damage)
            named = _named(region)
            with _attached(region) as pool:
                wrong, loaded, corrupt = _use(pool)
        left, later_wrong = _mend(region)
    except PoolError as error:
        return Finding(refusal=str(error))
    return Finding(
        problems=named,
        num_wrong=wrong + later_wrong,
        num_loaded=loaded,
        num_corrupt=corrupt,
        left=left,
    )


def _attached(region: Path) -> Pool:
    return Pool.attach(region, extent_bytes=RECORD_BYTES, lock_wait_s=0.1)


def _flip(region: Path, damage: Damage) -> None:
    with region.open("r+b") as file:
        file.seek(damage.at)
        byte = file.read(1)[0]
        file.seek(damage.at)
        file.write(bytes([byte ^ 1 << damage.bit]))


def _named(region: Path) -> list[str]:
    """What `kvext pool fsck` would say."""
    with Pool.attach(region) as observer:
        return _texts(observer.fsck(verify_data=True))


def _texts(report: FsckReport) -> list[str]:
    return [f"{problem.kind} {problem.place} {problem.detail}" for problem in report.problems]


def _use(pool: Pool) -> tuple[int, int, int]:
    """Do everything once; how many records were wrong, right, told to be corrupt."""
    pool.set_bypass(False)
    read = _read_everything(pool)
    _write_something(pool)
    pool.reap()
    pool.stat()
    pool.records()
    pool.namespaces()
    return read


def _mend(region: Path) -> tuple[list[str], int]:
    """Repair, and say what is not as it should be afterwards."""
    with _attached(region) as pool:
        pool.fsck(repair=True, verify_data=True)
        left = _texts(pool.fsck(verify_data=True))
        wrong, _, corrupt = _read_everything(pool)
        stat = pool.stat()
    kept = stat.num_free + stat.num_committed + stat.num_quarantined
    if (kept, stat.num_pinned, corrupt) != (stat.num_extents, 0, 0):
        left.append(f"{corrupt} corrupt, {stat}")
    return left, wrong


def _read_everything(pool: Pool) -> tuple[int, int, int]:
    blocks = Blocks(1)
    wrong = loaded = corrupt = 0
    for row in range(_NEW_ROW + 1):
        for index in range(KEYS_A_ROW):
            lease = pool.match(key_of(row, index), SHAPE)
            for outcome in pool.load(lease.refs, blocks.pages, [0] * lease.num_blocks):
                loaded += outcome == LoadOutcome.LOADED
                corrupt += outcome == LoadOutcome.CORRUPT
                if outcome == LoadOutcome.LOADED:
                    wrong += blocks.read(0) != record_of(row, index)
            lease.release()
    return wrong, loaded, corrupt


def _write_something(pool: Pool) -> None:
    """More than there is room for, so that space is taken, freed and taken again."""
    blocks = Blocks(1)
    for index in range(KEYS_A_ROW):
        blocks.write(0, record_of(_NEW_ROW, index))
        pool.store(key_of(_NEW_ROW, index), SHAPE, namespace_of(_NEW_ROW), blocks.pages, [0])
    for row in range(_ROWS):
        made = pool.reserve(key_of(row, KEYS_A_ROW - 1), SHAPE, RECORD_BYTES, namespace_of(row))
        if isinstance(made, Reservation):
            made.fill(record_of(row, KEYS_A_ROW - 1))
            assert made.commit() in {StoreOutcome.STORED, StoreOutcome.FENCED}
