"""A flipped bit anywhere is never served as a wrong byte, crashes nobody, and can be mended.

All use of damaged regions is in a process of its own, so that a crash or a hang is seen.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kvext.cxl import create_region
from kvext.pool import Pool
from kvext.protocol.transfer import StoreOutcome
from tests.faults.anatomy import Anatomy, Field
from tests.faults.arena import Worker
from tests.faults.ledger import Ledger
from tests.faults.nursery import Nursery
from tests.faults.orders import Orders
from tests.faults.probe import Damage, Finding
from tests.faults.records import RECORD_BYTES, SHAPE, Blocks, key_of, namespace_of, record_of

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

REGION_BYTES = 400_000
NUM_RECORDS = 30
FLIPS_A_FIELD = 8
SEED = 11


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A region with records in three namespaces, tombstones and free extents."""
    path = tmp_path_factory.mktemp("image") / "kvext-image.pool"
    create_region(path, REGION_BYTES, Pool.initialise)
    blocks = Blocks(1)
    with Pool.attach(path, extent_bytes=RECORD_BYTES) as pool:
        for number in range(NUM_RECORDS + 8):
            row, index = number % 3, number // 3
            blocks.write(0, record_of(row, index))
            outcome = pool.store(key_of(row, index), SHAPE, namespace_of(row), blocks.pages, [0])
            assert outcome[0] == StoreOutcome.STORED
        for number in range(NUM_RECORDS, NUM_RECORDS + 8):
            lease = pool.match(key_of(number % 3, number // 3), SHAPE)
            refs = lease.refs
            lease.release()
            assert pool.evict(refs) == 1
        assert pool.num_free > 4
    return path


class Prober:
    """A process that uses damaged regions; another one takes its place when it has died."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._orders = Orders(
            task="prober",
            row=0,
            region=str(folder / "kvext-probed.pool"),
            ledger=str(folder / "ledger"),
            folder=str(folder),
        )
        Ledger.create(folder / "ledger")
        self._worker = Worker(nursery, self._orders)

    def probe(self, damage: Damage) -> Finding:
        """Damage a fresh copy of the image, use it, check and mend it."""
        Path(self._orders.folder, "damage.json").write_bytes(msgspec.json.encode(damage))
        self._worker.order(b"g")
        try:
            self._worker.expect(b"r")
        except AssertionError as gone:
            raise AssertionError(f"{damage}: {gone}") from gone
        return msgspec.json.decode(
            Path(self._orders.folder, "finding.json").read_bytes(), type=Finding
        )

    def end(self) -> None:
        self._worker.kill()


@pytest.fixture
def prober(nursery: Nursery, tmp_path: Path) -> Iterator[Prober]:
    made = Prober(nursery, tmp_path)
    yield made
    made.end()


def _flips(image: Path, *, whole: bool) -> Iterator[tuple[Field, Damage]]:
    choose = random.Random(SEED)
    for field in Anatomy(image).fields(num_records=4):
        for _ in range(FLIPS_A_FIELD):
            at = field.at + choose.randrange(field.num_bytes)
            damage = Damage(str(image), at, choose.randrange(8), is_attached=whole)
            yield field, damage


@pytest.mark.parametrize("is_attached", [False, True], ids=["before attaching", "in use"])
def test_flipped_bit_is_never_served_and_can_be_mended(
    is_attached: bool, image: Path, prober: Prober
) -> None:
    unnamed: list[str] = []
    for field, damage in _flips(image, whole=is_attached):
        finding = prober.probe(damage)
        where = (
            f"{field.table}.{field.name} byte {damage.at - field.at} bit {damage.bit}: {finding}"
        )
        assert finding.num_wrong == 0, where
        if finding.refusal:
            assert field.table == "superblock", where
            continue
        assert not finding.left, where
        if field.is_checked and not finding.problems:
            unnamed.append(where)
    assert not unnamed, "\n".join(unnamed)
